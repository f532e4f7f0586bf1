use std::collections::BTreeMap;

use expctl_record::{AttemptDir, RecordError, StepRecord, TraceMeta};

use super::collectives::{Collective, add_collectives};
use super::device::{Copies, Idle, Place, add_copies, add_idle};
use super::ledger_steps::{Agreement, agreements, records};
use super::longest::{LongestCall, LongestCalls};
use super::operations::{Operation, add_device_operations, add_operations};
use super::stages::step_times;
use super::step_figures::{StepFigures, StepSpans, StepSums};
use super::{Forest, RankTrace, Slice, StepTimes, nest};
use crate::report::breakdown::RunTotals;

/// What the traces of a trial show, over all ranks and windows.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// What each trace says of itself.
    pub parts: Vec<TraceMeta>,
    /// Trace and ledger side by side, by rank.
    pub agreements: Vec<(u32, Vec<Agreement>)>,
    /// Steps that were recorded, summed over ranks.
    pub steps: u64,
    /// Length of those, ns.
    pub wall: u64,
    /// Operations of the host, the one with the most own time first.
    pub operations: Vec<Operation>,
    /// Kernels, copies and fills: name, calls, ns; the longest first.
    pub device_operations: Vec<(String, (u64, i64))>,
    /// Copies to, from and on devices.
    pub copies: BTreeMap<(String, Option<u64>), Copies>,
    /// Pauses of devices by where the host was, the longest first.
    pub idle: Vec<(Place, Idle)>,
    /// Length of the steps in which a device worked, ns; 0 without one.
    pub device_steps: i64,
    /// Collectives of the process group.
    pub collectives: BTreeMap<String, Collective>,
    /// Events that begin within another of their thread and end behind it: in no figure of operations.
    pub beside: usize,
    /// The longest single call of each kind that occurred.
    pub longest: Vec<LongestCall>,
    /// Each recorded step by itself, in order.
    pub step_figures: Vec<StepFigures>,
    /// Seconds by stage over the steps of the attempt, as the ledger has them; none where it lacks the steps of a rank.
    pub totals: Option<RunTotals>,
}

impl Summary {
    /// Of the traces of an attempt, by rank and cycle.
    ///
    /// # Errors
    /// The steps of a rank cannot be read in the ledger.
    pub fn of(traces: &[RankTrace], attempt: &AttemptDir) -> Result<Self, RecordError> {
        let mut summary = Self { parts: traces.iter().map(|trace| trace.meta.clone()).collect(), ..Self::default() };
        let (mut operations, mut devices, mut idle) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (mut longest, mut sums) = (LongestCalls::default(), StepSums::default());
        let mut steps: BTreeMap<u32, Vec<StepTimes>> = BTreeMap::new();
        for trace in traces {
            let slices = trace.slices();
            let threads = threads(&slices, trace.meta.pid);
            for forest in threads.values() {
                add_operations(&mut operations, forest);
                summary.beside += forest.beside.len();
            }
            if let Some(forest) = threads.get(&trace.meta.step_thread) {
                let times = step_times(forest, &slices, &trace.meta);
                let spans = StepSpans::of(forest, trace.meta.window);
                sums.add(&times, &spans, &threads, &slices);
                longest.add(trace, &spans, &threads, &slices);
                steps.entry(trace.meta.rank).or_default().extend(times);
                if slices.iter().any(super::operations::is_device_work) {
                    summary.device_steps += add_idle(&mut idle, &slices, forest);
                }
            }
            add_device_operations(&mut devices, &slices);
            add_copies(&mut summary.copies, &slices);
            add_collectives(&mut summary.collectives, &slices);
        }
        for (rank, times) in &steps {
            summary.steps += times.len() as u64;
            summary.wall += times.iter().map(|times| times.wall).sum::<u64>();
            summary.agreements.push((*rank, agreements(times, &records(attempt, *rank, times)?)));
        }
        summary.operations = operations.into_values().collect();
        summary.operations.sort_by_key(|operation: &Operation| -operation.own);
        summary.device_operations = devices.into_iter().collect();
        summary.device_operations.sort_by_key(|(_, (_, ns))| -ns);
        summary.idle = idle.into_iter().collect();
        summary.idle.sort_by_key(|(_, idle)| -idle.total);
        summary.longest = longest.into_calls();
        summary.step_figures = sums.means();
        summary.totals = totals(traces.first().map_or(0, |trace| trace.meta.world_size), attempt);
        Ok(summary)
    }

    /// The largest difference of trace and ledger among the figures that make a part of a step worth comparing; none where the
    /// ledger has none of the steps.
    pub fn largest_difference(&self) -> Option<f64> {
        let of_rank = |agreements: &Vec<Agreement>| {
            let step = agreements.last()?.busy.1;
            agreements.iter().filter_map(|agreement| agreement.largest(step)).reduce(f64::max)
        };
        self.agreements.iter().filter_map(|(_, agreements)| of_rank(agreements)).reduce(f64::max)
    }
}

/// Seconds by stage over the steps of the ranks of an attempt, of a trial on so many ranks.
fn totals(world_size: u32, attempt: &AttemptDir) -> Option<RunTotals> {
    // The summary is of the traces; the totals beside it need not be there.
    let ranks: Vec<Vec<StepRecord>> = (0..world_size).map(|rank| attempt.steps(rank).ok()).collect::<Option<_>>()?;
    RunTotals::from_ranks(&ranks.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// The threads of the process itself, nested; without the rows that the worker adds, which hold no operations.
fn threads(slices: &[Slice], pid: i64) -> BTreeMap<i64, Forest> {
    let mut threads: BTreeMap<i64, Vec<Slice>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.pid == pid && slice.tid < expctl_record::trace_rows::LOADER) {
        threads.entry(slice.tid).or_default().push(slice.clone());
    }
    threads.into_iter().map(|(tid, slices)| (tid, nest(slices))).collect()
}
