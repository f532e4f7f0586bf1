//! `ProcessGroup` has the collectives between ranks: barrier, sum, broadcast, gather. The address that it listens on is chosen
//! here too, because libtorch's own choice fails on some clusters.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use cxx::UniquePtr;
use tch::Tensor;

use crate::ffi::bridge;
use crate::store::millis;
use crate::{DistError, Nccl, Store};

/// The backend for collectives on tensors of GPUs.
#[derive(Clone, Copy, Debug)]
pub enum GpuBackend {
    /// Through the hosts; several ranks may share a GPU. Gloo's threads make only the default stream of a GPU wait for the data that they copied
    /// back, so a backward pass on another stream is refused.
    Gloo,
    /// NCCL, directly between GPUs; each rank has its own.
    Nccl(Nccl),
}

/// A c10d process group: collectives on tensors of the host over Gloo, and on those of GPUs over a [`GpuBackend`].
///
/// Every rank must make the same calls in the same order. A call fails when a peer is gone (at once, if its connection
/// closed) or when `timeout` has passed; after that the group is of no further use.
pub struct ProcessGroup {
    pub(crate) handle: UniquePtr<bridge::GroupHandle>,
    rank: u32,
    world: u32,
}

impl std::fmt::Debug for ProcessGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessGroup").field("rank", &self.rank).field("world", &self.world).finish()
    }
}

impl ProcessGroup {
    /// Connect all ranks with each other. Groups are matched by their order: the n-th groups that the ranks make through their connections to the
    /// store belong together.
    ///
    /// The group listens on the interface in `GLOO_SOCKET_IFNAME`, if set; on loopback if the store is there; else on the address of this machine's
    /// name, or the one from which the store is reached.
    ///
    /// # Errors
    /// Not all ranks connected within `timeout`.
    pub fn gloo(store: &Store, rank: u32, world: u32, timeout: Duration) -> Result<Self, DistError> {
        let bound = binding(&store.host, store.port());
        let handle = bridge::open_gloo_group(
            &store.handle,
            &store.next_group(),
            to_c_int(rank),
            to_c_int(world),
            millis(timeout),
            &bound.interface,
            &bound.address,
        )
        .map_err(DistError::torch("connect the process group"))?;
        Ok(Self { handle, rank, world })
    }

    /// [`ProcessGroup::gloo`] with a backend for tensors of GPUs. With NCCL, ranks connect in their first such collective, and waiting for the
    /// device never ends where a peer is gone: a caller that must not hang watches from another thread. Dropped without
    /// [`ProcessGroup::shutdown`], the group aborts collectives that other ranks might wait for.
    ///
    /// # Errors
    /// As with [`ProcessGroup::gloo`], or NCCL fails.
    pub fn with_gpus(
        store: &Store,
        rank: u32,
        world: u32,
        timeout: Duration,
        gpus: GpuBackend,
    ) -> Result<Self, DistError> {
        let group = Self::gloo(store, rank, world, timeout)?;
        let added = match gpus {
            GpuBackend::Gloo => group.handle.serve_gpus(),
            GpuBackend::Nccl(nccl) => {
                group.handle.add_nccl(&store.handle, &store.next_group(), nccl.open as usize, millis(timeout))
            }
        };
        added.map_err(DistError::torch("connect the GPUs"))?;
        Ok(group)
    }

    /// End the group in order: each rank calls this when it and its device have finished the last collective. Waits for all ranks where the group
    /// has NCCL; else does nothing.
    ///
    /// # Errors
    /// A peer is gone, or did not call this within the time limit.
    pub fn shutdown(&self) -> Result<(), DistError> {
        self.handle.shutdown().map_err(DistError::torch("shut the process group down"))
    }

    /// Rank of this process.
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub const fn world(&self) -> u32 {
        self.world
    }

    /// Wait until every rank has called this.
    ///
    /// # Errors
    /// A peer is gone, or late.
    pub fn barrier(&self) -> Result<(), DistError> {
        self.handle.barrier().map_err(DistError::torch("barrier"))
    }

    /// Replace `tensor`, of one shape and dtype on all ranks, by its sum over the ranks.
    ///
    /// # Errors
    /// A peer is gone, or late.
    pub fn all_reduce_sum(&self, tensor: &mut Tensor) -> Result<(), DistError> {
        self.handle.all_reduce_sum(address(tensor)).map_err(DistError::torch("all-reduce"))
    }

    /// Replace `tensor`, of one shape and dtype on all ranks, by that of rank `root`.
    ///
    /// # Errors
    /// A peer is gone, or late.
    pub fn broadcast(&self, tensor: &mut Tensor, root: u32) -> Result<(), DistError> {
        self.handle.broadcast(address(tensor), to_c_int(root)).map_err(DistError::torch("broadcast"))
    }

    /// The `tensor`s of all ranks, of one shape and dtype, in rank order.
    ///
    /// # Errors
    /// A peer is gone, or late.
    pub fn all_gather(&self, tensor: &Tensor) -> Result<Vec<Tensor>, DistError> {
        let contiguous = tensor.detach().f_contiguous().map_err(|e| DistError::from_tch("all-gather", &e))?;
        let outputs = (0..self.world)
            .map(|_| contiguous.f_empty_like())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| DistError::from_tch("all-gather", &e))?;
        let addresses: Vec<usize> = outputs.iter().map(address).collect();
        self.handle.all_gather(&addresses, address(&contiguous)).map_err(DistError::torch("all-gather"))?;
        Ok(outputs)
    }
}

/// Address of the `at::Tensor` that tch owns, for one call across the bridge.
pub(crate) fn address(tensor: &Tensor) -> usize {
    tensor.as_ptr() as usize
}

/// A rank for libtorch; one beyond 2³¹ becomes -1, which libtorch refuses.
fn to_c_int(rank: u32) -> i32 {
    i32::try_from(rank).unwrap_or(-1)
}

/// Listening end of a process group: an interface by name, an address, or (both empty) libtorch's own choice. That choice (resolve the
/// host name, else loopback) leaves ranks on two machines unable to connect where the name does not resolve, or resolves to loopback as in
/// Debian's default set-up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Binding {
    interface: String,
    address: String,
}

/// The binding of a group whose store is at `host:port`: the interface in `GLOO_SOCKET_IFNAME`, as PyTorch reads it; else loopback if the store
/// is on loopback; else the address of this machine's name, where that is not loopback; else the address from which the store is reached.
fn binding(host: &str, port: u16) -> Binding {
    if let Ok(name) = std::env::var("GLOO_SOCKET_IFNAME")
        && let Some(first) = name.split(',').next().filter(|n| !n.is_empty())
    {
        return Binding { interface: first.to_owned(), ..Binding::default() };
    }
    let Some(peer) = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next()) else {
        return Binding::default();
    };
    let own = || host_name().and_then(|name| local_address_of(&name));
    let address = if peer.ip().is_loopback() {
        // This machine's own name can resolve to loopback here and to a real address elsewhere.
        if host_name().as_deref() == Some(host) { own().unwrap_or(peer.ip()) } else { peer.ip() }
    } else {
        match own().or_else(|| route_to(peer)) {
            Some(address) => address,
            None => return Binding::default(),
        }
    };
    Binding { address: address.to_string(), ..Binding::default() }
}

fn host_name() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|n| n.trim().to_owned()).filter(|n| !n.is_empty())
}

/// First address of `name` that is one of this machine and not loopback.
fn local_address_of(name: &str) -> Option<IpAddr> {
    let found = (name, 0).to_socket_addrs().ok()?;
    found.map(|a| a.ip()).find(|ip| !ip.is_loopback() && UdpSocket::bind((*ip, 0)).is_ok())
}

/// Address from which packets to `peer` leave. Connecting a UDP socket asks the kernel for the route and sends nothing.
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
