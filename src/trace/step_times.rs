//! Times of the recorded steps: of one rank by stage, and as means over ranks with their operations.

use std::collections::BTreeMap;

use expctl_ledger::{
    PerStage, Stage, TraceMeta,
    trace_rows::{BUCKET_CATEGORY, LOAD, LOADER_CATEGORY, LOADER_WAIT_CATEGORY},
};
use expctl_settings::ProfileWindow;

use super::forest::{Forest, Slice, union};
use super::operations::operation_at;

/// Times of one step on one rank by its trace, ns.
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

/// Times of the steps of a window: `steps` is the thread that ran them, `all` every slice of the rank.
///
/// Stages of the step's own thread are the direct children of the range of the step. Events of loader threads and of gradient
/// buckets, which are on other threads, name their step. The wait for the batch is split over the stages that the batch was in
/// meanwhile; the wait at the end of the backward pass for the last bucket is the exposed part of *allreduce*. Where a device computes, a stage
/// is exposed until the device is done with it. The ledger uses the same rules.
pub fn step_times(steps: &Forest, all: &[Slice], meta: &TraceMeta) -> Vec<StepTimes> {
    let ProfileWindow { first, end, .. } = meta.window;
    let mut found = Vec::new();
    for (at, slice) in steps.slices.iter().enumerate() {
        let Some(step) = slice.step_of_range().filter(|step| (first..end).contains(step)) else { continue };
        let mut times = StepTimes { step, wall: ns(slice.duration()), ..StepTimes::default() };
        let mut load = None;
        let mut stages = Vec::new();
        for (_, part) in steps.children(at) {
            if let Some(stage) = part.stage_of_range() {
                times.busy[stage] += ns(part.duration());
                times.exposed[stage] += ns(part.duration());
                if stage != Stage::Other {
                    stages.push((stage, part.start, part.end));
                }
            } else if part.is_range() && part.name == LOAD {
                load = Some(part);
            }
        }
        expose_device(&mut times, &stages, slice, all);
        add_loader(&mut times, load, all);
        add_allreduce(&mut times, all);
        found.push(times);
    }
    found
}

/// Where kernels ran in the `step`, replace the host's exposed times of its `stages` (with start and end on the host, in order) by those of the
/// device: a stage ends when the host has launched it and the device has computed it, as an event behind its last kernel tells.
///
/// Kineto repeats a range of the host on the device, from the first to the last kernel that its own thread launched; those of the backward
/// pass come from another thread. So a stage's kernels are taken to be all that begin before the range of a later stage does.
fn expose_device(times: &mut StepTimes, stages: &[(Stage, i64, i64)], step: &Slice, all: &[Slice]) {
    let within = |slice: &&Slice| slice.start >= step.start && slice.end <= step.end;
    let kernels: Vec<&Slice> = all.iter().filter(within).filter(|slice| slice.category == "kernel").collect();
    let Some((_, begin, _)) = stages.first().filter(|_| !kernels.is_empty()) else { return };
    let on_device = |stage: Stage| {
        let ranges = all.iter().filter(within).filter(|slice| slice.category == "gpu_user_annotation");
        ranges.filter(|range| range.name == stage.name()).map(|range| range.start).min()
    };
    // A trace without ranges on the device does not tell whose a kernel is.
    let named = stages.iter().any(|(stage, ..)| on_device(*stage).is_some());
    let mut before = *begin;
    for (i, (stage, start, end)) in stages.iter().enumerate() {
        let next = stages[i + 1..].iter().filter_map(|(later, ..)| on_device(*later)).min();
        let is_its = |kernel: &&&Slice| next.is_none_or(|next| kernel.start < next);
        let computed = kernels.iter().filter(is_its).map(|kernel| kernel.end).max().filter(|_| named);
        let ended = computed.unwrap_or(*end).max(*end).max(before);
        times.exposed[*stage] -= ns(end - start).min(times.exposed[*stage]);
        times.exposed[*stage] += ns(ended - before);
        before = ended;
    }
}

/// Add the busy times of loader threads, and split the wait for the batch over their stages.
fn add_loader(times: &mut StepTimes, load: Option<&Slice>, all: &[Slice]) {
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

/// Move the wait for the last gradient bucket from *backward* to *allreduce*.
fn add_allreduce(times: &mut StepTimes, all: &[Slice]) {
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

/// The recorded steps of one rank in one window: start and end (ns since 1970) and number, in order.
#[derive(Clone, Debug, Default)]
pub struct StepSpans(Vec<(i64, i64, u64)>);

impl StepSpans {
    /// The recorded steps of a window; `steps` is the thread that ran them.
    pub fn new(steps: &Forest, window: ProfileWindow) -> Self {
        let recorded = |slice: &Slice| slice.step_of_range().filter(|step| (window.first..window.end).contains(step));
        Self(steps.slices.iter().filter_map(|slice| Some((slice.start, slice.end, recorded(slice)?))).collect())
    }

    /// The step that ran at a moment (ns since 1970); `None` between two steps.
    pub fn at(&self, moment: i64) -> Option<u64> {
        let begun = self.0.partition_point(|(start, ..)| *start <= moment);
        let (_, end, step) = self.0.get(begun.checked_sub(1)?)?;
        (moment < *end).then_some(*step)
    }
}

/// Calls of one operation in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallTime {
    /// Number of calls.
    pub calls: f64,
    /// Their time without the operations that they call, ns; for an operation of a device the whole time.
    pub ns: f64,
}

/// One step in the traces of a trial: means over the ranks that recorded it, so that a step is one observation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepFigures {
    /// Number of the step.
    pub step: u64,
    /// Ranks that recorded it.
    pub ranks: u64,
    /// Its length, ns.
    pub wall: f64,
    /// Time worked on each stage, summed over threads, ns.
    pub busy: PerStage<f64>,
    /// Time that the step spent on each stage, ns.
    pub exposed: PerStage<f64>,
    /// Operations of the host that began in it, by name.
    pub operations: BTreeMap<String, CallTime>,
    /// Operations of devices that began in it, by name.
    pub device_operations: BTreeMap<String, CallTime>,
}

/// Figures by step, summed over ranks.
#[derive(Clone, Debug, Default)]
pub struct StepSums(BTreeMap<u64, StepFigures>);

impl StepSums {
    /// Add what one rank recorded in one window: its steps with their `times`, the forests of its threads, and all its slices.
    ///
    /// An operation belongs to the step in which it began, whichever thread or device it ran on.
    pub fn add(&mut self, times: &[StepTimes], spans: &StepSpans, threads: &BTreeMap<i64, Forest>, slices: &[Slice]) {
        for of_step in times {
            let figures = self.0.entry(of_step.step).or_default();
            figures.step = of_step.step;
            figures.ranks += 1;
            figures.wall += of_step.wall as f64;
            for stage in Stage::ALL {
                figures.busy[stage] += of_step.busy[stage] as f64;
                figures.exposed[stage] += of_step.exposed[stage] as f64;
            }
        }
        for forest in threads.values() {
            for (at, slice) in forest.slices.iter().enumerate() {
                let Some((name, _)) = operation_at(forest, at) else { continue };
                if let Some(figures) = self.at(spans, slice) {
                    add_call(&mut figures.operations, name, forest.own[at]);
                }
            }
        }
        for slice in slices.iter().filter(|slice| slice.is_device_work()) {
            if let Some(figures) = self.at(spans, slice) {
                add_call(&mut figures.device_operations, &slice.name, slice.duration());
            }
        }
    }

    fn at(&mut self, spans: &StepSpans, slice: &Slice) -> Option<&mut StepFigures> {
        self.0.get_mut(&spans.at(slice.start)?)
    }

    /// Means over the ranks of each step, in the order of steps.
    pub fn means(self) -> Vec<StepFigures> {
        let mean = |mut figures: StepFigures| {
            let ranks = figures.ranks.max(1) as f64;
            figures.wall /= ranks;
            for stage in Stage::ALL {
                figures.busy[stage] /= ranks;
                figures.exposed[stage] /= ranks;
            }
            for time in figures.operations.values_mut().chain(figures.device_operations.values_mut()) {
                time.calls /= ranks;
                time.ns /= ranks;
            }
            figures
        };
        self.0.into_values().map(mean).collect()
    }
}

fn add_call(times: &mut BTreeMap<String, CallTime>, name: &str, ns: i64) {
    // Most calls are of a name that is known already.
    if !times.contains_key(name) {
        times.insert(name.to_owned(), CallTime::default());
    }
    if let Some(time) = times.get_mut(name) {
        time.calls += 1.0;
        time.ns += ns as f64;
    }
}

#[cfg(test)]
mod tests {
    use expctl_ledger::TraceClock;

    use super::super::forest::nest;
    use super::super::operations::NO_OPERATION;
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

    #[test]
    fn where_a_device_computes_a_stage_is_exposed_until_it_is_done() {
        let range = |name: &str, times| slice("user_annotation", name, 1, times, None);
        // The host launches everything in 400 ns, then waits.
        let steps = nest(vec![
            range("step 4", (0, 1000)),
            range("transfer", (0, 20)),
            range("forward", (20, 120)),
            range("backward", (120, 300)),
            range("optimizer", (300, 400)),
            range("other", (980, 990)),
        ]);
        let device = |category: &str, name: &str, times| slice(category, name, 20_001, times, None);
        let all = [
            device("kernel", "gemm", (30, 350)),
            device("kernel", "gelu", (350, 400)),
            device("gpu_user_annotation", "forward", (30, 400)),
            // The backward pass is launched by another thread; its range ends behind the first kernel.
            device("kernel", "seed", (401, 402)),
            device("gpu_user_annotation", "backward", (401, 402)),
            device("kernel", "gemm backward", (402, 800)),
            device("kernel", "adamw", (810, 970)),
            device("gpu_user_annotation", "optimizer", (810, 970)),
            // The next batch on another stream, and a kernel of the step before.
            device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", (500, 990)),
            device("kernel", "adamw", (-20, -1)),
        ];
        let StepTimes { busy, exposed, .. } = step_times(&steps, &all, &meta())[0];
        assert_eq!((busy[Stage::Forward], busy[Stage::Backward], busy[Stage::Optimizer]), (100, 180, 100));
        assert_eq!((exposed[Stage::Transfer], exposed[Stage::Forward]), (20, 380));
        assert_eq!((exposed[Stage::Backward], exposed[Stage::Optimizer], exposed[Stage::Other]), (400, 170, 10));
        // A host that launches more slowly than the device computes decides.
        let mut slow = vec![device("kernel", "gemm", (30, 40)), device("kernel", "adamw", (310, 320))];
        for ranges in 0..2 {
            let StepTimes { busy, exposed, .. } = step_times(&steps, &slow, &meta())[0];
            assert_eq!(busy, exposed, "{ranges} times ranges on the device");
            slow.push(device("gpu_user_annotation", "forward", (30, 40)));
            slow.push(device("gpu_user_annotation", "optimizer", (310, 320)));
        }
    }

    fn host_slice(category: &str, name: &str, (start, end): (i64, i64)) -> Slice {
        let (name, category) = (name.to_owned(), category.to_owned());
        Slice { name, category, pid: 1, tid: 1, start, end, step: None, bytes: None }
    }

    #[test]
    fn a_step_is_one_observation_over_its_ranks() {
        let window = ProfileWindow { cycle: 0, prepare: 3, first: 4, end: 6 };
        let of_rank = |mm: i64| {
            let steps = nest(vec![
                host_slice("user_annotation", "step 4", (0, 1000)),
                host_slice("user_annotation", "forward", (0, 500)),
                host_slice("cpu_op", "aten::mm", (10, 10 + mm)),
                // Between the two steps: in neither.
                host_slice("cpu_op", "aten::mm", (1000, 1005)),
                host_slice("user_annotation", "step 5", (1010, 2010)),
                host_slice("cpu_op", "aten::mm", (1020, 1040)),
                // Behind the window.
                host_slice("user_annotation", "step 6", (2010, 3000)),
                host_slice("cpu_op", "aten::mm", (2020, 2900)),
            ]);
            // An operator of the backward pass, on another thread.
            let other = nest(vec![host_slice("cpu_op", "aten::mul", (300, 340))]);
            (StepSpans::new(&steps, window), BTreeMap::from([(1, steps), (2, other)]))
        };
        let mut sums = StepSums::default();
        for mm in [100, 300] {
            let (spans, threads) = of_rank(mm);
            let time = |step: u64| {
                let mut times = StepTimes { step, wall: 1000, ..StepTimes::default() };
                times.exposed[Stage::Forward] = 500;
                times
            };
            let device = [host_slice("kernel", "gemm", (1500, 1600)), host_slice("kernel", "gemm", (1600, 1700))];
            sums.add(&[time(4), time(5)], &spans, &threads, &device);
        }
        let found = sums.means();
        assert_eq!(
            found.iter().map(|f| (f.step, f.ranks, f.wall)).collect::<Vec<_>>(),
            [(4, 2, 1000.0), (5, 2, 1000.0)]
        );
        assert_eq!((found[0].exposed[Stage::Forward], found[0].busy[Stage::Forward]), (500.0, 0.0));
        assert_eq!(found[0].operations["aten::mm"], CallTime { calls: 1.0, ns: 200.0 });
        assert_eq!(found[0].operations[NO_OPERATION], CallTime { calls: 1.0, ns: 300.0 });
        assert_eq!(found[0].operations["aten::mul"], CallTime { calls: 1.0, ns: 40.0 });
        assert_eq!(found[1].operations["aten::mm"], CallTime { calls: 1.0, ns: 20.0 });
        assert_eq!(found[1].device_operations["gemm"], CallTime { calls: 2.0, ns: 200.0 });
        assert!(!found[0].device_operations.contains_key("gemm") && !found[1].operations.contains_key("aten::mul"));
    }
}
