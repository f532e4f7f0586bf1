//! The activity of a rank's step thread, for the threads that watch it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use torch_dist::AllreduceWatch;

/// An activity of the step thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Opens the data, builds the model, reads a checkpoint.
    SetUp,
    /// Connects to the other ranks, or waits for them in front of the first step.
    Rendezvous,
    /// Waits for its own loader.
    Load,
    /// Makes masks where the batch is used.
    Mask,
    /// Makes tensors of a batch.
    Transfer,
    /// Forward pass.
    Forward,
    /// Waits within a step for other ranks: for their predictions, for the order of the gradient buckets, or after an emulated step.
    Gather,
    /// Backward pass, with the averaging of gradients in it.
    Backward,
    /// Clipping and parameter update.
    Optimizer,
    /// Waits for its device, to which the step has been launched.
    Device,
    /// Records the step.
    Record,
    /// Validates: loads a batch and predicts it.
    Validate,
    /// Writes or reads a state.
    Checkpoint,
    /// Waits for the others to agree on a checkpoint, or to write it.
    AwaitCheckpoint,
    /// Starts the profiler, or writes its trace.
    Profile,
    /// Ends its loader after the last step.
    End,
    /// Waits for ranks that have steps left; nothing can be stuck.
    Done,
}

impl Phase {
    const ALL: [Self; 17] = [
        Self::SetUp,
        Self::Rendezvous,
        Self::Load,
        Self::Mask,
        Self::Transfer,
        Self::Forward,
        Self::Gather,
        Self::Backward,
        Self::Optimizer,
        Self::Device,
        Self::Record,
        Self::Validate,
        Self::Checkpoint,
        Self::AwaitCheckpoint,
        Self::Profile,
        Self::End,
        Self::Done,
    ];

    /// The word for messages.
    const fn name(self) -> &'static str {
        match self {
            Self::SetUp => "set-up",
            Self::Rendezvous => "meeting",
            Self::Load => "load",
            Self::Mask => "mask",
            Self::Transfer => "transfer",
            Self::Forward => "forward",
            Self::Gather => "gathering",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Device => "device",
            Self::Record => "record",
            Self::Validate => "validate",
            Self::Checkpoint | Self::AwaitCheckpoint => "checkpoint",
            Self::Profile => "profile",
            Self::End | Self::Done => "end",
        }
    }
}

/// The current step and phase of a rank's step thread, with a clock. Invariants: its clock restarts with every step, every batch of a validation,
/// every part of the set-up and of a checkpoint and every turn of the profiler, and with nothing else; a stuck step thread blocks no reader.
#[derive(Debug)]
pub struct Activity {
    created: Instant,
    /// [`NO_STEP`] in front of the first one.
    step: AtomicU64,
    phase: AtomicU8,
    /// When the clock restarted, in ms after `created`.
    since_ms: AtomicU64,
    /// Number of restarts of the clock.
    restarts: AtomicU64,
    allreduce: OnceLock<AllreduceWatch>,
}

const NO_STEP: u64 = u64::MAX;

/// An [`Activity`] at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivitySnapshot {
    /// Changes whenever the clock restarts.
    pub restarts: u64,
    /// The rank waits for other ranks and does no work of its own.
    pub is_waiting: bool,
    /// Step, phase and duration for a message: `at step 41 (load) for 612 s`.
    pub description: String,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            created: Instant::now(),
            step: AtomicU64::new(NO_STEP),
            phase: AtomicU8::new(Phase::SetUp as u8),
            since_ms: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            allreduce: OnceLock::new(),
        }
    }
}

impl Activity {
    /// Set the watch on the all-reduce, where there are other ranks: a backward pass with a bucket in flight then counts as waiting for them,
    /// and so does waiting for the device.
    pub fn watch_allreduce(&self, watch: AllreduceWatch) {
        // There is one reducer in a process.
        let _ = self.allreduce.set(watch);
    }

    /// A step begins, with loading its batch.
    pub fn begin_step(&self, step: u64) {
        self.step.store(step, Ordering::SeqCst);
        self.enter(Phase::Load);
    }

    /// The next phase of the step; the clock runs on.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    /// A phase begins that has a time limit of its own: the clock restarts.
    pub fn enter(&self, phase: Phase) {
        self.set_phase(phase);
        self.since_ms.store(self.now_ms(), Ordering::SeqCst);
        self.restarts.fetch_add(1, Ordering::SeqCst);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The activity now; `None` in `Phase::Done`, where nothing can be stuck. A change during the call shows in `restarts` of the next
    /// snapshot.
    pub fn snapshot(&self) -> Option<ActivitySnapshot> {
        let restarts = self.restarts.load(Ordering::SeqCst);
        let phase = Phase::ALL.into_iter().find(|p| *p as u8 == self.phase.load(Ordering::SeqCst))?;
        let is_waiting = match phase {
            Phase::Done => return None,
            Phase::Rendezvous | Phase::Gather | Phase::AwaitCheckpoint => true,
            // NCCL makes the device wait for the other ranks, and no call of the host.
            Phase::Device => self.allreduce.get().is_some(),
            // With a bucket in flight this rank has done its part; the others' is missing.
            Phase::Backward => self.allreduce.get().is_some_and(AllreduceWatch::in_flight),
            _ => false,
        };
        let at = match self.step.load(Ordering::SeqCst) {
            NO_STEP => format!("in front of the first step ({})", phase.name()),
            step => format!("at step {step} ({})", phase.name()),
        };
        let seconds = self.now_ms().saturating_sub(self.since_ms.load(Ordering::SeqCst)) / 1000;
        Some(ActivitySnapshot { restarts, is_waiting, description: format!("{at} for {seconds} s") })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use tch::Tensor;
    use torch_dist::{ProcessGroup, Reducer, ReducerOptions, Store};

    use super::*;

    /// The activity of a rank that averages gradients with others, as far as it can tell.
    pub(crate) fn with_peers() -> Activity {
        let limit = Duration::from_secs(60);
        let store = Store::serve("127.0.0.1", 0, limit).unwrap();
        let group = ProcessGroup::gloo(&store, 0, 1, limit).unwrap();
        let parameter = Tensor::from_slice(&[1f32]).set_requires_grad(true);
        let reducer = Reducer::new(&[("p".to_owned(), parameter)], &group, ReducerOptions::default()).unwrap();
        let activity = Activity::default();
        activity.watch_allreduce(reducer.watch());
        activity
    }

    #[test]
    fn who_waits_for_the_device_waits_for_the_others_where_there_are_any() {
        for (activity, is_waiting) in [(Activity::default(), false), (with_peers(), true)] {
            activity.begin_step(3);
            activity.set_phase(Phase::Optimizer);
            assert!(!activity.snapshot().unwrap().is_waiting);
            let begun = activity.snapshot().unwrap().restarts;
            activity.set_phase(Phase::Device);
            let snapshot = activity.snapshot().unwrap();
            assert_eq!((snapshot.is_waiting, snapshot.restarts), (is_waiting, begun));
            assert!(snapshot.description.starts_with("at step 3 (device)"), "{}", snapshot.description);
        }
    }

    #[test]
    fn the_clock_restarts_with_a_step_and_not_within_it() {
        let activity = Activity::default();
        assert_eq!(activity.snapshot().unwrap().description, "in front of the first step (set-up) for 0 s");
        activity.enter(Phase::Rendezvous);
        assert!(activity.snapshot().unwrap().is_waiting);
        activity.begin_step(41);
        let loading = activity.snapshot().unwrap();
        assert_eq!((loading.description.as_str(), loading.is_waiting), ("at step 41 (load) for 0 s", false));
        activity.set_phase(Phase::Backward);
        let backward = activity.snapshot().unwrap();
        assert_eq!((backward.restarts, backward.is_waiting), (loading.restarts, false));
        activity.begin_step(42);
        assert!(activity.snapshot().unwrap().restarts > loading.restarts);
        for phase in Phase::ALL {
            activity.enter(phase);
            assert_eq!(activity.snapshot().is_none(), phase == Phase::Done, "{phase:?}");
        }
        activity.enter(Phase::Done);
        assert_eq!(activity.snapshot(), None);
    }
}
