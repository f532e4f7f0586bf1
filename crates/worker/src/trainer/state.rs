use std::collections::BTreeMap;

use expctl_dist::ProcessGroup;
use tch::Tensor;

use super::{TrainError, Trainer};
use crate::losses::Buffer;
use crate::models::named_variables;

/// Name of what the loss of a rank remembers.
fn memory_of(rank: u32) -> String {
    format!("sinkhorn/{rank}")
}

impl Trainer {
    /// Put into the state what only other ranks know: what their losses remember. All ranks call it together, right before
    /// the one that keeps the state asks for it. Costs nothing where there is no such thing.
    ///
    /// # Errors
    /// A peer is gone.
    pub fn share_state(&mut self, group: &ProcessGroup) -> Result<(), TrainError> {
        self.shared.clear();
        let Some(own) = self.objective.memory().filter(|_| self.world > 1) else { return Ok(()) };
        // Settings alone decide who takes part and with which shapes, not what a rank happens to remember.
        let all = own.packed().into_iter().map(|tensor| group.all_gather(&tensor)).collect::<Result<Vec<_>, _>>()?;
        let [pairs, places] = all.as_slice() else { return Ok(()) };
        for (rank, (pairs, place)) in (0u32..).zip(pairs.iter().zip(places)) {
            if rank != self.rank {
                self.shared.extend(Buffer::unpacked(&memory_of(rank), pairs, place)?);
            }
        }
        Ok(())
    }

    /// All that later steps depend on, by name, in front of a step that [`Trainer::boundary`] names. The model draws no
    /// random numbers after it was made, the buffer of the loss draws by count, and the sampler's position follows from
    /// the step.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        let model = named_variables(&self.vs).into_iter().map(|(name, tensor)| (format!("model/{name}"), tensor));
        let shared = self.shared.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone()));
        let memory = self.objective.memory().filter(|memory| !memory.is_empty());
        let memory = memory.map(|memory| memory.state(&memory_of(self.rank))).unwrap_or_default();
        model.chain(self.optimizer.state()).chain(self.schedule.state()).chain(memory).chain(shared).collect()
    }

    /// Take over a state. Where it does not say what the loss of every rank remembered (it was kept before the first step, or
    /// by a run with fewer ranks), the losses of all ranks start with nothing.
    ///
    /// # Errors
    /// A tensor is missing or has another shape; the message names it.
    pub fn restore(&mut self, state: &BTreeMap<String, Tensor>) -> Result<(), String> {
        for (name, mut tensor) in named_variables(&self.vs) {
            let kept = state.get(&format!("model/{name}")).ok_or_else(|| format!("parameter {name} is missing"))?;
            if kept.size() != tensor.size() || kept.kind() != tensor.kind() {
                let (found, wanted) = (kept.size(), tensor.size());
                return Err(format!("parameter {name} has another shape: {found:?}, and the model has {wanted:?}"));
            }
            tch::no_grad(|| tensor.f_copy_(kept)).map_err(|e| e.to_string())?;
        }
        self.optimizer.restore(state)?;
        self.schedule.restore(state)?;
        // The rate may be another one than that of the epoch so far.
        self.epoch = None;
        let rank = self.rank;
        // All ranks remember as much, or none does: they see each other's batches, and share what they remember.
        let complete = (0..self.world).all(|rank| Buffer::is_in(&memory_of(rank), state));
        if let Some(memory) = self.objective.memory_mut()
            && (!complete || !memory.restore(&memory_of(rank), state)?)
        {
            memory.clear();
            tracing::warn!("rank {rank}: the state does not say what every loss remembered: all buffers start empty");
        }
        Ok(())
    }

    /// What the loss remembers of earlier batches, if it does.
    pub fn memory(&self) -> Option<&Buffer> {
        self.objective.memory()
    }
}
