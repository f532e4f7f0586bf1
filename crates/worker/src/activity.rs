//! What a rank is at, for the threads that watch it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use expctl_dist::AllreduceWatch;

/// What the step thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Opens the data, makes the model, reads a checkpoint.
    SetUp,
    /// Connects with the other ranks, or waits for them in front of the first step.
    Meet,
    /// Waits for its own loader.
    Load,
    /// Makes masks where the batch is used.
    Mask,
    /// Makes tensors of a batch.
    Transfer,
    /// Forward pass.
    Forward,
    /// Waits within the forward pass for other ranks: for what they predict, or for the order of the buckets of gradients.
    Gather,
    /// Backward pass, with the averaging of gradients in it.
    Backward,
    /// Clipping and parameter update.
    Optimizer,
    /// Waits for its device, to which the step has been handed over.
    Device,
    /// Writes down the step.
    Record,
    /// Validates: loads a batch and predicts it.
    Validate,
    /// Keeps its state, or reads it back.
    Checkpoint,
    /// Waits for the others to agree on a checkpoint, or to write it.
    AwaitCheckpoint,
    /// Starts the profiler, or writes what it recorded.
    Profile,
    /// Ends its loader after the last step.
    End,
    /// Nothing that could be stuck: it waits for ranks that have steps left.
    Over,
}

impl Phase {
    const ALL: [Self; 17] = [
        Self::SetUp,
        Self::Meet,
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
        Self::Over,
    ];

    /// The word for messages.
    const fn name(self) -> &'static str {
        match self {
            Self::SetUp => "set-up",
            Self::Meet => "meeting",
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
            Self::End | Self::Over => "end",
        }
    }
}

/// What a rank's step thread is at, for the threads that watch it. Invariants: its clock restarts with every step, every
/// batch of a validation, every part of the set-up and of a checkpoint and every turn of the profiler, and with nothing else; a step thread that is stuck keeps nobody from looking.
#[derive(Debug)]
pub struct Activity {
    begun: Instant,
    /// [`NO_STEP`] in front of the first one.
    step: AtomicU64,
    phase: AtomicU8,
    /// When the clock restarted, in ms after `begun`.
    since_ms: AtomicU64,
    /// How often it did.
    restarts: AtomicU64,
    allreduce: OnceLock<AllreduceWatch>,
}

const NO_STEP: u64 = u64::MAX;

/// A look at an [`Activity`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// Changes whenever the clock restarts.
    pub restarts: u64,
    /// It waits for other ranks and does no work of its own.
    pub waits: bool,
    /// Where, for a message: `at step 41 (load) for 612 s`.
    pub place: String,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            step: AtomicU64::new(NO_STEP),
            phase: AtomicU8::new(Phase::SetUp as u8),
            since_ms: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            allreduce: OnceLock::new(),
        }
    }
}

impl Activity {
    /// There are other ranks: whether a backward pass waits for them is known from here on, and who waits for the device may wait for them.
    pub fn watch_allreduce(&self, watch: AllreduceWatch) {
        // There is one reducer in a process.
        let _ = self.allreduce.set(watch);
    }

    /// A step begins, with loading its batch.
    pub fn step(&self, step: u64) {
        self.step.store(step, Ordering::SeqCst);
        self.enter(Phase::Load);
    }

    /// The next part of the step.
    pub fn phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    /// Something begins that has a time limit of its own.
    pub fn enter(&self, phase: Phase) {
        self.phase(phase);
        self.since_ms.store(self.now_ms(), Ordering::SeqCst);
        self.restarts.fetch_add(1, Ordering::SeqCst);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// What it is at; none where nothing can be stuck. A change in the middle of a look shows in `restarts` at the next one.
    pub fn look(&self) -> Option<Look> {
        let restarts = self.restarts.load(Ordering::SeqCst);
        let phase = Phase::ALL.into_iter().find(|p| *p as u8 == self.phase.load(Ordering::SeqCst))?;
        let waits = match phase {
            Phase::Over => return None,
            Phase::Meet | Phase::Gather | Phase::AwaitCheckpoint => true,
            // NCCL makes the device wait for the other ranks, and no call of the host.
            Phase::Device => self.allreduce.get().is_some(),
            // With a bucket under way this rank's part is done; it is the others' that is missing.
            Phase::Backward => self.allreduce.get().is_some_and(AllreduceWatch::under_way),
            _ => false,
        };
        let place = match self.step.load(Ordering::SeqCst) {
            NO_STEP => format!("in front of the first step ({})", phase.name()),
            step => format!("at step {step} ({})", phase.name()),
        };
        let seconds = self.now_ms().saturating_sub(self.since_ms.load(Ordering::SeqCst)) / 1000;
        Some(Look { restarts, waits, place: format!("{place} for {seconds} s") })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use expctl_dist::{ProcessGroup, Reducer, ReducerOptions, Store};
    use tch::Tensor;

    use super::*;

    /// Of a rank that averages gradients with others, as far as it can tell.
    pub(crate) fn among_others() -> Activity {
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
        for (activity, waits) in [(Activity::default(), false), (among_others(), true)] {
            activity.step(3);
            activity.phase(Phase::Optimizer);
            assert!(!activity.look().unwrap().waits);
            let begun = activity.look().unwrap().restarts;
            activity.phase(Phase::Device);
            let look = activity.look().unwrap();
            assert_eq!((look.waits, look.restarts), (waits, begun));
            assert!(look.place.starts_with("at step 3 (device)"), "{}", look.place);
        }
    }

    #[test]
    fn the_clock_restarts_with_a_step_and_not_within_it() {
        let activity = Activity::default();
        assert_eq!(activity.look().unwrap().place, "in front of the first step (set-up) for 0 s");
        activity.enter(Phase::Meet);
        assert!(activity.look().unwrap().waits);
        activity.step(41);
        let loading = activity.look().unwrap();
        assert_eq!((loading.place.as_str(), loading.waits), ("at step 41 (load) for 0 s", false));
        activity.phase(Phase::Backward);
        let backward = activity.look().unwrap();
        assert_eq!((backward.restarts, backward.waits), (loading.restarts, false));
        activity.step(42);
        assert!(activity.look().unwrap().restarts > loading.restarts);
        for phase in Phase::ALL {
            activity.enter(phase);
            assert_eq!(activity.look().is_none(), phase == Phase::Over, "{phase:?}");
        }
        activity.enter(Phase::Over);
        assert_eq!(activity.look(), None);
    }
}
