//! The ranks of an attempt: which one this process is, and where it finds the others.
//!
//! Invariant: rank 0 serves one address where that is known to be reachable from all ranks, loopback alone where all ranks are on this
//! machine, and all addresses only where neither is sure.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{AttemptDir, LedgerError, hostlist};

/// The rank that this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankEnv {
    /// Rank over all nodes.
    pub rank: u32,
    /// Rank on this node.
    pub local_rank: u32,
    /// Number of ranks.
    pub world_size: u32,
}

/// Why the environment does not say which rank this is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RankEnvError {
    /// Neither pair of variables is set.
    #[error("neither RANK and WORLD_SIZE nor SLURM_PROCID and SLURM_NTASKS are set: start ranks with `expctl submit`")]
    Missing,
    /// A variable is not a number.
    #[error("{0}={1} is not a number")]
    NotANumber(&'static str, String),
    /// The number of ranks is not that of the trial.
    #[error("the environment says {found} ranks, the trial has {expected}")]
    WorldSize {
        /// Ranks in the environment.
        found: u32,
        /// Ranks of the trial.
        expected: u32,
    },
    /// The rank is not below the number of ranks.
    #[error("rank {rank} does not exist among {world_size}")]
    OutOfRange {
        /// This rank.
        rank: u32,
        /// Number of ranks.
        world_size: u32,
    },
}

impl RankEnv {
    /// Read RANK and WORLD_SIZE, if both are set, else Slurm's SLURM_PROCID and SLURM_NTASKS. The two kinds never mix, because one variable
    /// may be left over in the user's shell. LOCAL_RANK or SLURM_LOCALID is 0 if it is not set.
    ///
    /// # Errors
    /// Neither pair is set, a value is not a number, or the numbers do not fit the trial.
    pub fn read(get: impl Fn(&str) -> Option<String>, expected_ranks: u32) -> Result<Self, RankEnvError> {
        let number = |name: &'static str| {
            get(name)
                .map(|text| u32::from_str(text.trim()).map_err(|_| RankEnvError::NotANumber(name, text)))
                .transpose()
        };
        let kind = |rank, world, local| -> Result<Option<(u32, u32, u32)>, RankEnvError> {
            match (number(rank)?, number(world)?) {
                (Some(r), Some(w)) => Ok(Some((r, w, number(local)?.unwrap_or(0)))),
                _ => Ok(None),
            }
        };
        let (rank, world_size, local_rank) = match kind("RANK", "WORLD_SIZE", "LOCAL_RANK")? {
            Some(plain) => plain,
            None => kind("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")?.ok_or(RankEnvError::Missing)?,
        };
        if world_size != expected_ranks {
            return Err(RankEnvError::WorldSize { found: world_size, expected: expected_ranks });
        }
        if rank >= world_size {
            return Err(RankEnvError::OutOfRange { rank, world_size });
        }
        Ok(Self { rank, local_rank, world_size })
    }
}

/// The address that rank 0 serves for the other ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RendezvousAddress {
    /// This address alone.
    Only(IpAddr),
    /// All addresses of this machine, under this name.
    All(String),
}

/// Choose the address that rank 0 serves for the other ranks. This process has to be rank 0.
pub fn rendezvous_address(env: RankEnv) -> RendezvousAddress {
    choose_address(env, &|name| std::env::var(name).ok().filter(|v| !v.is_empty()))
}

fn choose_address(env: RankEnv, get: &dyn Fn(&str) -> Option<String>) -> RendezvousAddress {
    let loopback = RendezvousAddress::Only(Ipv4Addr::LOCALHOST.into());
    if let Some(host) = get("EXPCTL_STORE_HOST") {
        return match host.parse::<IpAddr>() {
            Ok(address) if address.is_loopback() => RendezvousAddress::Only(address),
            _ => RendezvousAddress::All(host),
        };
    }
    if env.world_size == 1 {
        return loopback;
    }
    match nodes_of_step(get).as_deref() {
        Some([_]) => loopback,
        Some([first, ..]) => address_of_first_node(first, &host_name()).unwrap_or_else(host_address),
        _ => host_address(),
    }
}

/// The nodes of this rank's Slurm step. `None`: Slurm did not number the ranks, or its list cannot be read.
fn nodes_of_step(get: &dyn Fn(&str) -> Option<String>) -> Option<Vec<String>> {
    if get("RANK").is_some() && get("WORLD_SIZE").is_some() {
        return None;
    }
    let list = get("SLURM_STEP_NODELIST").or_else(|| get("SLURM_JOB_NODELIST"))?;
    hostlist::expand(&list).inspect_err(|e| tracing::warn!("Slurm's node list {list:?} cannot be read: {e}")).ok()
}

/// The address of the first node of the list. Slurm, and so the other nodes, know it by this name. `None`: this machine is another one.
fn address_of_first_node(name: &str, host_name: &str) -> Option<RendezvousAddress> {
    let found: Vec<IpAddr> = (name, 0).to_socket_addrs().ok()?.map(|a| a.ip()).collect();
    // A name that resolves to loopback here (as Debian's installer sets it up) resolves to a real address on other machines.
    if let Some(address) = found.iter().find(|ip| !ip.is_loopback() && UdpSocket::bind((**ip, 0)).is_ok()) {
        return Some(RendezvousAddress::Only(*address));
    }
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    if !found.is_empty() && short(name) == short(host_name) {
        return Some(RendezvousAddress::All(name.to_owned()));
    }
    tracing::warn!(
        "rank 0 does not run on {name}, the first node of the list; the others look for it under its own name"
    );
    None
}

fn host_name() -> String {
    nix::unistd::gethostname().map(|h| h.to_string_lossy().into_owned()).unwrap_or_default()
}

/// An address of this machine that the other ranks can reach. Its name is used only if it resolves: libtorch would try a name that does not
/// until its timeout, without a message.
fn host_address() -> RendezvousAddress {
    let name = host_name();
    if (name.as_str(), 0).to_socket_addrs().is_ok_and(|mut found| found.next().is_some()) {
        return RendezvousAddress::All(name);
    }
    // Connecting a UDP socket asks the kernel for the route and sends nothing.
    let route = || -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        socket.connect(("10.255.255.255", 9))?;
        Ok(socket.local_addr()?.ip())
    };
    RendezvousAddress::Only(route().unwrap_or_else(|_| Ipv4Addr::LOCALHOST.into()))
}

/// What the ranks of an attempt know and nobody else: 64 hexadecimal digits.
#[derive(Clone, Serialize, Deserialize)]
pub struct Secret(String);

impl Secret {
    /// A new one, from the kernel.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub fn generate() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Whether both are the same, in a time that does not say up to where they are.
    pub fn is(&self, other: &Self) -> bool {
        let differ = self.0.bytes().zip(other.0.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
        self.0.len() == other.0.len() && std::hint::black_box(differ) == 0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// The file in which rank 0 publishes where it listens: `<host>:<port>`, and the secret of the attempt where it asks for one. Only the user
/// can read it.
///
/// The kernel chooses the port, so two trials on one node never share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RendezvousFile(PathBuf);

impl RendezvousFile {
    /// The rendezvous file of an attempt.
    pub fn new(attempt: &AttemptDir) -> Self {
        Self(attempt.path().join("rendezvous"))
    }

    /// Publish the address of rank 0.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn publish(&self, host: &str, port: u16) -> Result<(), LedgerError> {
        Ok(atomic_file::write_private(&self.0, format!("{host}:{port}").as_bytes())?)
    }

    /// Publish the address of rank 0 with the secret that it asks for.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn publish_with_secret(&self, host: &str, port: u16, secret: &Secret) -> Result<(), LedgerError> {
        Ok(atomic_file::write_private(&self.0, format!("{host}:{port} {}", secret.0).as_bytes())?)
    }

    /// The address. `None`: it is not published yet.
    pub fn lookup(&self) -> Option<(String, u16)> {
        self.lookup_with_secret().map(|(host, port, _)| (host, port))
    }

    /// The address and the secret, which is empty where none was published. `None`: the address is not published yet.
    pub fn lookup_with_secret(&self) -> Option<(String, u16, Secret)> {
        let text = std::fs::read_to_string(&self.0).ok()?;
        let (address, secret) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let (host, port) = address.rsplit_once(':')?;
        Some((host.to_owned(), port.parse().ok()?, Secret(secret.to_owned())))
    }

    /// Remove the file when rank 0 no longer listens.
    pub fn clear(&self) {
        // Best effort: a stale address only costs a later reader one refused connection.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)], expected: u32) -> Result<RankEnv, RankEnvError> {
        RankEnv::read(|k| set.iter().find(|(n, _)| *n == k).map(|(_, v)| (*v).to_owned()), expected)
    }

    #[test]
    fn plain_names_come_before_slurms() {
        let slurm = [("SLURM_PROCID", "3"), ("SLURM_LOCALID", "1"), ("SLURM_NTASKS", "4")];
        assert_eq!(read(&slurm, 4), Ok(RankEnv { rank: 3, local_rank: 1, world_size: 4 }));
        // A RANK alone is left over from something else.
        let stale = [&slurm[..], &[("RANK", "0")]].concat();
        assert_eq!(read(&stale, 4), Ok(RankEnv { rank: 3, local_rank: 1, world_size: 4 }));
        let both = [&slurm[..], &[("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2")]].concat();
        assert_eq!(read(&both, 2), Ok(RankEnv { rank: 0, local_rank: 0, world_size: 2 }));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |set: &[(&str, &str)], expected| read(set, expected).unwrap_err().to_string();
        assert!(message(&[], 1).contains("neither RANK and WORLD_SIZE nor"));
        let set = [("RANK", "1"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2")];
        assert_eq!(message(&set, 4), "the environment says 2 ranks, the trial has 4");
        assert!(message(&[("RANK", "x"), ("WORLD_SIZE", "1")], 1).contains("RANK=x"));
    }

    #[test]
    fn only_the_user_can_read_the_secret_of_an_attempt() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = RendezvousFile(folder.path().join("rendezvous"));
        let secret = Secret::generate().unwrap();
        file.publish_with_secret("n1", 7, &secret).unwrap();
        let (host, port, found) = file.lookup_with_secret().unwrap();
        assert_eq!((host.as_str(), port, file.lookup()), ("n1", 7, Some(("n1".to_owned(), 7))));
        assert!(found.is(&secret) && !found.is(&Secret::generate().unwrap()) && !found.is(&Secret(String::new())));
        assert_eq!(std::fs::metadata(&file.0).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!format!("{secret:?}").contains(&secret.0));
    }

    fn address_of(world_size: u32, set: &[(&str, &str)]) -> RendezvousAddress {
        let get = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        choose_address(RankEnv { rank: 0, local_rank: 0, world_size }, &get)
    }

    #[test]
    fn ranks_of_one_machine_meet_on_loopback() {
        let loopback = RendezvousAddress::Only(Ipv4Addr::LOCALHOST.into());
        assert_eq!(address_of(1, &[]), loopback);
        assert_eq!(address_of(4, &[("SLURM_STEP_NODELIST", "n7"), ("SLURM_JOB_NODELIST", "n[7-8]")]), loopback);
        assert_eq!(address_of(4, &[("EXPCTL_STORE_HOST", "127.0.0.1")]), loopback);
        assert_eq!(address_of(4, &[("EXPCTL_STORE_HOST", "n3-ib")]), RendezvousAddress::All("n3-ib".to_owned()));
    }

    #[test]
    fn slurms_nodes_count_only_where_slurm_numbered_the_ranks() {
        let list = |set: &[(&str, &str)]| {
            nodes_of_step(&|name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
        };
        let both = ("SLURM_JOB_NODELIST", "n[1-2]");
        assert_eq!(list(&[both]), Some(vec!["n1".to_owned(), "n2".to_owned()]));
        // RANK alone is left over from something else.
        assert_eq!(list(&[both, ("RANK", "0")]).map(|n| n.len()), Some(2));
        assert_eq!(list(&[both, ("RANK", "0"), ("WORLD_SIZE", "2")]), None);
        assert_eq!(list(&[("SLURM_JOB_NODELIST", "n[1-")]), None);
    }

    #[test]
    fn the_first_node_is_taken_only_if_it_is_this_machine() {
        assert_eq!(
            address_of_first_node("localhost", "localhost.site"),
            Some(RendezvousAddress::All("localhost".to_owned()))
        );
        assert_eq!(address_of_first_node("localhost", "other"), None);
        assert_eq!(address_of_first_node("no-such-host.invalid", "no-such-host"), None);
        // An address for documentation, which no machine has.
        assert_eq!(address_of_first_node("192.0.2.1", "other"), None);
    }
}
