use std::time::Duration;

use cxx::UniquePtr;
use tch::Tensor;

use crate::ffi::bridge;
use crate::interface::binding;
use crate::store::millis;
use crate::{DistError, Nccl, Store};

/// How tensors of GPUs come together.
#[derive(Clone, Copy, Debug)]
pub enum GpuBackend {
    /// Through the hosts; several ranks may share a GPU. Gloo's threads make the default stream of a GPU wait for what they
    /// copied back and no other stream, so a backward pass on another one is refused.
    Gloo,
    /// NCCL, between GPUs directly, each of one rank alone.
    Nccl(Nccl),
}

/// A c10d process group: collective operations on tensors of the host over Gloo, and on those of GPUs over what was chosen for them.
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
    /// Connect all ranks with each other. Groups are matched by their order: the n-th that each rank makes through its
    /// connection to the store belong together.
    ///
    /// It listens on the interface in `GLOO_SOCKET_IFNAME`, if set; on loopback if the store is there; else on the
    /// address of this machine's name, or the one from which the store is reached.
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

    /// The same for tensors of GPUs as well. With NCCL, ranks connect in their first such call. Who waits for the device there waits
    /// for ever where a peer is gone: a caller that must not hang watches from another thread. Dropped without
    /// [`ProcessGroup::shutdown`], the group gives up what other ranks might wait for.
    ///
    /// # Errors
    /// As with [`ProcessGroup::gloo`], or NCCL refuses.
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

    /// Part from the other ranks in peace: to be called by each of them when it is through its last call, and its device is. Waits
    /// until all are, where the group has NCCL; else there is nothing to do.
    ///
    /// # Errors
    /// A peer is gone, or did not come within the limit of time.
    pub fn shutdown(&self) -> Result<(), DistError> {
        self.handle.shutdown().map_err(DistError::torch("shut the process group down"))
    }

    /// This process' rank.
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub const fn world(&self) -> u32 {
        self.world
    }

    /// Wait until every rank is here.
    pub fn barrier(&self) -> Result<(), DistError> {
        self.handle.barrier().map_err(DistError::torch("barrier"))
    }

    /// Replace `tensor`, of one shape and dtype on all ranks, by its sum over the ranks.
    pub fn all_reduce_sum(&self, tensor: &mut Tensor) -> Result<(), DistError> {
        self.handle.all_reduce_sum(address(tensor)).map_err(DistError::torch("all-reduce"))
    }

    /// Replace `tensor`, of one shape and dtype on all ranks, by the one of rank `root`.
    pub fn broadcast(&self, tensor: &mut Tensor, root: u32) -> Result<(), DistError> {
        self.handle.broadcast(address(tensor), to_c_int(root)).map_err(DistError::torch("broadcast"))
    }

    /// The `tensor`s of all ranks, of one shape and dtype, by rank.
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

/// Ranks are small; one beyond 2³¹ is turned into one that libtorch refuses.
fn to_c_int(rank: u32) -> i32 {
    i32::try_from(rank).unwrap_or(-1)
}
