//! Where rank 0 is found. Invariant: one address where that is known to lead to it from all ranks, and loopback alone where
//! all ranks are on this machine; all addresses only where neither is sure.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs, UdpSocket};

use super::RankEnv;
use crate::hostlist;

/// Where the others find rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Served on this address alone.
    At(IpAddr),
    /// Served on all addresses of this machine, under a name of it.
    Everywhere(String),
}

/// Where rank 0, which this process is, serves what the other ranks connect to.
pub fn meeting_place(env: RankEnv) -> Place {
    place(env, &|name| std::env::var(name).ok().filter(|v| !v.is_empty()))
}

fn place(env: RankEnv, get: &dyn Fn(&str) -> Option<String>) -> Place {
    let loopback = Place::At(Ipv4Addr::LOCALHOST.into());
    if let Some(host) = get("EXPCTL_STORE_HOST") {
        return match host.parse::<IpAddr>() {
            Ok(address) if address.is_loopback() => Place::At(address),
            _ => Place::Everywhere(host),
        };
    }
    if env.world_size == 1 {
        return loopback;
    }
    match nodes(get).as_deref() {
        Some([_]) => loopback,
        Some([first, ..]) => first_host(first, &own_name()).unwrap_or_else(own_address),
        _ => own_address(),
    }
}

/// The nodes of this rank's step, as Slurm names them; none where Slurm did not number the ranks.
fn nodes(get: &dyn Fn(&str) -> Option<String>) -> Option<Vec<String>> {
    if get("RANK").is_some() && get("WORLD_SIZE").is_some() {
        return None;
    }
    let list = get("SLURM_STEP_NODELIST").or_else(|| get("SLURM_JOB_NODELIST"))?;
    hostlist::expand(&list).inspect_err(|e| tracing::warn!("Slurm's node list {list:?} cannot be read: {e}")).ok()
}

/// The first node of the list, if that is this machine. Its name is what Slurm and so the other nodes know it by.
fn first_host(name: &str, own_name: &str) -> Option<Place> {
    let found: Vec<IpAddr> = (name, 0).to_socket_addrs().ok()?.map(|a| a.ip()).collect();
    // Where a name leads to loopback here (as Debian's installer sets it up), it leads to a real address elsewhere.
    if let Some(address) = found.iter().find(|ip| !ip.is_loopback() && UdpSocket::bind((**ip, 0)).is_ok()) {
        return Some(Place::At(*address));
    }
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    if !found.is_empty() && short(name) == short(own_name) {
        return Some(Place::Everywhere(name.to_owned()));
    }
    tracing::warn!(
        "rank 0 does not run on {name}, the first node of the list; the others look for it under its own name"
    );
    None
}

fn own_name() -> String {
    nix::unistd::gethostname().map(|h| h.to_string_lossy().into_owned()).unwrap_or_default()
}

/// An address of this machine under which the other ranks find it. It is checked to lead somewhere: libtorch would try a
/// name that does not resolve until its time limit, without a word.
fn own_address() -> Place {
    let name = own_name();
    if (name.as_str(), 0).to_socket_addrs().is_ok_and(|mut found| found.next().is_some()) {
        return Place::Everywhere(name);
    }
    // Connecting a UDP socket asks the kernel for the route and sends nothing.
    let route = || -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        socket.connect(("10.255.255.255", 9))?;
        Ok(socket.local_addr()?.ip())
    };
    Place::At(route().unwrap_or_else(|_| Ipv4Addr::LOCALHOST.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place_of(world_size: u32, set: &[(&str, &str)]) -> Place {
        let get = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        place(RankEnv { rank: 0, local_rank: 0, world_size }, &get)
    }

    #[test]
    fn ranks_of_one_machine_meet_on_loopback() {
        let loopback = Place::At(Ipv4Addr::LOCALHOST.into());
        assert_eq!(place_of(1, &[]), loopback);
        assert_eq!(place_of(4, &[("SLURM_STEP_NODELIST", "n7"), ("SLURM_JOB_NODELIST", "n[7-8]")]), loopback);
        assert_eq!(place_of(4, &[("EXPCTL_STORE_HOST", "127.0.0.1")]), loopback);
        assert_eq!(place_of(4, &[("EXPCTL_STORE_HOST", "n3-ib")]), Place::Everywhere("n3-ib".to_owned()));
    }

    #[test]
    fn slurms_nodes_count_only_where_slurm_numbered_the_ranks() {
        let list =
            |set: &[(&str, &str)]| nodes(&|name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()));
        let both = ("SLURM_JOB_NODELIST", "n[1-2]");
        assert_eq!(list(&[both]), Some(vec!["n1".to_owned(), "n2".to_owned()]));
        // RANK alone is left over from something else.
        assert_eq!(list(&[both, ("RANK", "0")]).map(|n| n.len()), Some(2));
        assert_eq!(list(&[both, ("RANK", "0"), ("WORLD_SIZE", "2")]), None);
        assert_eq!(list(&[("SLURM_JOB_NODELIST", "n[1-")]), None);
    }

    #[test]
    fn the_first_node_is_taken_only_if_it_is_this_machine() {
        assert_eq!(first_host("localhost", "localhost.site"), Some(Place::Everywhere("localhost".to_owned())));
        assert_eq!(first_host("localhost", "other"), None);
        assert_eq!(first_host("no-such-host.invalid", "no-such-host"), None);
        // An address for documentation, which no machine has.
        assert_eq!(first_host("192.0.2.1", "other"), None);
    }
}
