use std::collections::BTreeMap;

use expctl_record::{PerStage, ProfileWindow, Stage};

use super::operations::{is_device_work, operation_at};
use super::stages::step_of;
use super::{Forest, Slice, StepTimes};

/// The recorded steps of one rank in one window: start and end (ns since 1970) and number, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct StepSpans(Vec<(i64, i64, u64)>);

impl StepSpans {
    /// Of the thread that ran the steps.
    pub(super) fn of(steps: &Forest, window: ProfileWindow) -> Self {
        let recorded = |slice: &Slice| step_of(slice).filter(|step| (window.first..window.end).contains(step));
        Self(steps.slices.iter().filter_map(|slice| Some((slice.start, slice.end, recorded(slice)?))).collect())
    }

    /// The step that ran at a moment; none between two steps.
    pub(super) fn at(&self, moment: i64) -> Option<u64> {
        let begun = self.0.partition_point(|(start, ..)| *start <= moment);
        let (_, end, step) = self.0.get(begun.checked_sub(1)?)?;
        (moment < *end).then_some(*step)
    }
}

/// What the calls of one operation took in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallTime {
    /// Number of calls.
    pub calls: f64,
    /// Their own time, ns; of an operation of a device its whole time.
    pub ns: f64,
}

/// What the traces of a trial show of one step: means over the ranks that recorded it, so that a step is one observation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepFigures {
    /// Number of the step.
    pub step: u64,
    /// Ranks that recorded it.
    pub ranks: u64,
    /// Its length, ns.
    pub wall: f64,
    /// Time worked on each stage, ns.
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
pub(super) struct StepSums(BTreeMap<u64, StepFigures>);

impl StepSums {
    /// Add what one rank recorded in one window: its steps with their `times`, the forests of its threads, and all its slices.
    ///
    /// An operation belongs to the step in which it began, whichever thread or device it ran on.
    pub(super) fn add(
        &mut self,
        times: &[StepTimes],
        spans: &StepSpans,
        threads: &BTreeMap<i64, Forest>,
        slices: &[Slice],
    ) {
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
        for slice in slices.iter().filter(|slice| is_device_work(slice)) {
            if let Some(figures) = self.at(spans, slice) {
                add_call(&mut figures.device_operations, &slice.name, slice.duration());
            }
        }
    }

    fn at(&mut self, spans: &StepSpans, slice: &Slice) -> Option<&mut StepFigures> {
        self.0.get_mut(&spans.at(slice.start)?)
    }

    /// Means over the ranks of each step, in the order of steps.
    pub(super) fn means(self) -> Vec<StepFigures> {
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
    use super::super::nesting::nest;
    use super::super::operations::NO_OPERATION;
    use super::*;

    fn slice(category: &str, name: &str, (start, end): (i64, i64)) -> Slice {
        let (name, category) = (name.to_owned(), category.to_owned());
        Slice { name, category, pid: 1, tid: 1, start, end, step: None, bytes: None }
    }

    #[test]
    fn a_step_is_one_observation_over_its_ranks() {
        let window = ProfileWindow { cycle: 0, prepare: 3, first: 4, end: 6 };
        let of_rank = |mm: i64| {
            let steps = nest(vec![
                slice("user_annotation", "step 4", (0, 1000)),
                slice("user_annotation", "forward", (0, 500)),
                slice("cpu_op", "aten::mm", (10, 10 + mm)),
                // Between the two steps: in neither.
                slice("cpu_op", "aten::mm", (1000, 1005)),
                slice("user_annotation", "step 5", (1010, 2010)),
                slice("cpu_op", "aten::mm", (1020, 1040)),
                // Behind the window.
                slice("user_annotation", "step 6", (2010, 3000)),
                slice("cpu_op", "aten::mm", (2020, 2900)),
            ]);
            // An operator of the backward pass, on another thread.
            let other = nest(vec![slice("cpu_op", "aten::mul", (300, 340))]);
            (StepSpans::of(&steps, window), BTreeMap::from([(1, steps), (2, other)]))
        };
        let mut sums = StepSums::default();
        for mm in [100, 300] {
            let (spans, threads) = of_rank(mm);
            let time = |step: u64| {
                let mut times = StepTimes { step, wall: 1000, ..StepTimes::default() };
                times.exposed[Stage::Forward] = 500;
                times
            };
            let device = [slice("kernel", "gemm", (1500, 1600)), slice("kernel", "gemm", (1600, 1700))];
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
