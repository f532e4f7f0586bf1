//! Which address of this machine a process group listens on.
//!
//! libtorch's own rule (resolve the host name, else loopback) leaves ranks on two machines unable to meet where the
//! name does not resolve, or resolves to loopback as Debian's installer sets it up.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};

/// What to bind: an interface by name, an address, or (both empty) libtorch's own choice.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Binding {
    pub interface: String,
    pub address: String,
}

/// Binding for a group whose store is at `host:port`: the interface in `GLOO_SOCKET_IFNAME`, as PyTorch reads it; else
/// loopback if the store is on loopback; else this machine's own name, where that leads to a real address; else the
/// address from which the store is reached.
pub(crate) fn binding(host: &str, port: u16) -> Binding {
    if let Ok(name) = std::env::var("GLOO_SOCKET_IFNAME")
        && let Some(first) = name.split(',').next().filter(|n| !n.is_empty())
    {
        return Binding { interface: first.to_owned(), ..Binding::default() };
    }
    let Some(peer) = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next()) else {
        return Binding::default();
    };
    let own = || own_name().and_then(|name| local_address_of(&name));
    let address = if peer.ip().is_loopback() {
        // A store's host that is this machine's own name can resolve to loopback here and to a real address elsewhere.
        if own_name().as_deref() == Some(host) { own().unwrap_or(peer.ip()) } else { peer.ip() }
    } else {
        match own().or_else(|| route_to(peer)) {
            Some(address) => address,
            None => return Binding::default(),
        }
    };
    Binding { address: address.to_string(), ..Binding::default() }
}

fn own_name() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|n| n.trim().to_owned()).filter(|n| !n.is_empty())
}

/// First address of `name` that is not loopback and that this machine has.
fn local_address_of(name: &str) -> Option<IpAddr> {
    let found = (name, 0).to_socket_addrs().ok()?;
    found.map(|a| a.ip()).find(|ip| !ip.is_loopback() && UdpSocket::bind((*ip, 0)).is_ok())
}

/// Address that packets to `peer` leave from. Connecting a UDP socket asks the kernel for the route and sends nothing.
fn route_to(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_store_keeps_the_group_on_loopback() {
        assert_eq!(binding("127.0.0.1", 29500), Binding { address: "127.0.0.1".into(), ..Binding::default() });
    }

    #[test]
    fn the_route_to_loopback_leaves_from_loopback() {
        assert_eq!(route_to("127.0.0.1:9".parse().unwrap()), Some(Ipv4Addr::LOCALHOST.into()));
    }
}
