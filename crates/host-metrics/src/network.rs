/// Bytes that the network interfaces of this namespace moved since they are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Network {
    /// Received, without loopback.
    pub received: u64,
    /// Sent, without loopback.
    pub sent: u64,
    /// Through loopback.
    pub loopback: u64,
}

/// What the interfaces of this process's namespace moved.
pub(crate) fn network() -> Option<Network> {
    Some(parse(&std::fs::read_to_string("/proc/self/net/dev").ok()?))
}

/// The form of /proc/net/dev: eight numbers of what was received, eight of what was sent, bytes first.
fn parse(text: &str) -> Network {
    let mut all = Network::default();
    for line in text.lines() {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let (Some(received), Some(sent)) = (numbers.first(), numbers.get(8)) else { continue };
        if name.trim() == "lo" {
            all.loopback += received;
        } else {
            all.received += received;
            all.sent += sent;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_apart() {
        let text = "Inter-|   Receive                            |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes\n\
                    lo: 700 9 0 0 0 0 0 0 700 9 0 0 0 0 0 0\n  eth0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n  ib0:3 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n";
        assert_eq!(parse(text), Network { received: 103, sent: 25, loopback: 700 });
        assert!(network().is_some());
    }
}
