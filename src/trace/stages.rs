use expctl_record::trace_rows::{BUCKET_CATEGORY, LOAD, LOADER_CATEGORY, LOADER_WAIT_CATEGORY};
use expctl_record::{PerStage, ProfileWindow, Stage, TraceMeta};

use super::nesting::Forest;
use super::slice::{Slice, union};

/// Times of one step, as a trace has them, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTimes {
    /// Number of the step.
    pub step: u64,
    /// Length of its range.
    pub wall: u64,
    /// Time worked on each stage.
    pub busy: PerStage<u64>,
    /// Time that the step spent on each stage.
    pub exposed: PerStage<u64>,
}

/// Number of the step that a range of the worker is of.
pub(super) fn step_of(slice: &Slice) -> Option<u64> {
    if !slice.is_range() {
        return None;
    }
    step_number(&slice.name)
}

/// Number of the step that a range of this name is of: `step 12`.
pub(super) fn step_number(name: &str) -> Option<u64> {
    name.strip_prefix("step ")?.parse().ok()
}

/// The stage that a range of the worker is of.
pub(super) fn stage_of(slice: &Slice) -> Option<Stage> {
    Stage::ALL.into_iter().find(|stage| slice.is_range() && stage.name() == slice.name)
}

/// Times of the steps of a window: `steps` is the thread that ran them, `all` every slice of the rank.
///
/// A stage of the step's own thread is what lies directly in the range of the step. Of loader threads and of buckets of
/// gradients, which lie on rows of their own, each event says its step. What a step waited for its batch is split over the
/// stages that the batch was in meanwhile, and what it waited at the end of the backward pass for the last bucket is the
/// exposed part of *allreduce*: by the same rules as in the ledger.
pub fn step_times(steps: &Forest, all: &[Slice], meta: &TraceMeta) -> Vec<StepTimes> {
    let ProfileWindow { first, end, .. } = meta.window;
    let mut found = Vec::new();
    for (at, slice) in steps.slices.iter().enumerate() {
        let Some(step) = step_of(slice).filter(|step| (first..end).contains(step)) else { continue };
        let mut times = StepTimes { step, wall: ns(slice.duration()), ..StepTimes::default() };
        let mut load = None;
        for (_, part) in steps.children(at) {
            if let Some(stage) = stage_of(part) {
                times.busy[stage] += ns(part.duration());
                times.exposed[stage] += ns(part.duration());
            } else if part.is_range() && part.name == LOAD {
                load = Some(part);
            }
        }
        loader(&mut times, load, all);
        allreduce(&mut times, all);
        found.push(times);
    }
    found
}

fn loader(times: &mut StepTimes, load: Option<&Slice>, all: &[Slice]) {
    let mut rest = load.map_or(0, Slice::duration);
    for slice in all.iter().filter(|slice| slice.step == Some(times.step)) {
        let busy = slice.category == LOADER_CATEGORY;
        let Some(stage) = Stage::ALL.into_iter().find(|stage| stage.name() == slice.name) else { continue };
        if busy {
            times.busy[stage] += ns(slice.duration());
        }
        if let Some(load) = load.filter(|_| busy || slice.category == LOADER_WAIT_CATEGORY) {
            let waited = slice.overlap(load.start, load.end);
            times.exposed[stage] += ns(waited);
            rest -= waited;
        }
    }
    times.exposed[Stage::Other] += ns(rest);
}

fn allreduce(times: &mut StepTimes, all: &[Slice]) {
    let of_step = |slice: &&Slice| slice.category == BUCKET_CATEGORY && slice.step == Some(times.step);
    let buckets: Vec<(i64, i64)> = all.iter().filter(of_step).map(|slice| (slice.start, slice.end)).collect();
    let last = buckets.iter().map(|(start, _)| *start).max();
    let (Some(last), Some(end)) = (last, buckets.iter().map(|(_, end)| *end).max()) else { return };
    let waited = ns(end - last).min(times.exposed[Stage::Backward]);
    times.busy[Stage::Allreduce] = ns(union(buckets));
    times.exposed[Stage::Allreduce] = waited;
    times.busy[Stage::Backward] -= waited;
    times.exposed[Stage::Backward] -= waited;
}

fn ns(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use expctl_record::TraceClock;

    use super::super::nesting::nest;
    use super::*;

    fn slice(category: &str, name: &str, tid: i64, (start, end): (i64, i64), step: Option<u64>) -> Slice {
        let (name, category) = (name.to_owned(), category.to_owned());
        Slice { name, category, pid: 1, tid, start, end, step, bytes: None }
    }

    fn meta() -> TraceMeta {
        TraceMeta {
            schema: 1,
            trial: "t".to_owned(),
            rank: 0,
            world_size: 2,
            host: "h".to_owned(),
            window: ProfileWindow { cycle: 0, prepare: 3, first: 4, end: 5 },
            pid: 1,
            step_thread: 1,
            clock: TraceClock {
                realtime_ns: 0,
                monotonic_ns: 0,
                pair_uncertainty_ns: 0,
                drift_ns: 0,
                offset_ns: 0,
                offset_uncertainty_ns: 0,
                boot_id: String::new(),
            },
        }
    }

    #[test]
    fn stages_are_what_lies_directly_in_a_step() {
        let range = |name: &str, times| slice("user_annotation", name, 1, times, None);
        let steps = nest(vec![
            range("step 4", (0, 1000)),
            range("load", (0, 100)),
            range("forward", (100, 300)),
            // A module of the user's may call its own ranges as it likes, and operators are called what they are called.
            range("backward", (150, 160)),
            slice("cpu_op", "optimizer", 1, (310, 320), None),
            range("backward", (350, 700)),
            range("other", (900, 950)),
            // Behind the window.
            range("step 5", (1000, 1100)),
        ]);
        let all = [
            // Worked on before the step came for it, too.
            slice("loader", "read", 9, (-50, 30), Some(4)),
            slice("loader_wait", "decode", 9, (30, 60), Some(4)),
            slice("loader", "read", 9, (60, 90), Some(5)),
            slice("bucket", "bucket 0", 8, (400, 500), Some(4)),
            slice("bucket", "bucket 1", 8, (600, 690), Some(4)),
        ];
        let found = step_times(&steps, &all, &meta());
        assert_eq!(found.len(), 1);
        let StepTimes { wall, busy, exposed, .. } = found[0];
        assert_eq!(wall, 1000);
        assert_eq!((busy[Stage::Forward], exposed[Stage::Forward]), (200, 200));
        assert_eq!((busy[Stage::Optimizer], busy[Stage::Read], exposed[Stage::Read]), (0, 80, 30));
        assert_eq!((busy[Stage::Decode], exposed[Stage::Decode]), (0, 30));
        assert_eq!((busy[Stage::Other], exposed[Stage::Other]), (50, 90));
        assert_eq!((busy[Stage::Allreduce], exposed[Stage::Allreduce]), (190, 90));
        assert_eq!((busy[Stage::Backward], exposed[Stage::Backward]), (260, 260));
    }
}
