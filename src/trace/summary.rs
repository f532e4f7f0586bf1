//! The traces of a trial summed up over ranks and windows, and held against the ledger.

use std::collections::BTreeMap;

use expctl_ledger::{AttemptDir, LedgerError, PerStage, RunTotals, Stage, StepRecord, TraceMeta};
use serde_json::{Value as Json, json};

use super::forest::{Forest, Slice, nest};
use super::longest_calls::{LongestCall, LongestCalls};
use super::operations::{
    Collective, Copies, DevicePauses, HostOperation, HostPosition, add_collectives, add_copies, add_device_operations,
    add_device_pauses, add_operations,
};
use super::rank_trace::{RankTrace, TrialTraces};
use super::step_times::{StepFigures, StepSpans, StepSums, StepTimes, step_times};

/// The traces of a trial, summed up over all ranks and windows.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Metadata of each trace.
    pub parts: Vec<TraceMeta>,
    /// Times of the trace beside those of the ledger, by rank.
    pub agreements: Vec<(u32, Vec<LedgerAgreement>)>,
    /// Steps that were recorded, summed over ranks.
    pub steps: u64,
    /// Their length, ns.
    pub wall: u64,
    /// Operations of the host, the one with the most own time first.
    pub operations: Vec<HostOperation>,
    /// Kernels, copies and fills: name, calls, ns; the longest first.
    pub device_operations: Vec<(String, (u64, i64))>,
    /// Copies to, from and on devices.
    pub copies: BTreeMap<(String, Option<u64>), Copies>,
    /// Pauses of devices by the operation that the host was in, the longest first.
    pub idle: Vec<(HostPosition, DevicePauses)>,
    /// Length of the steps of ranks with a device, ns; 0 without one.
    pub device_steps: i64,
    /// Collectives of the process group.
    pub collectives: BTreeMap<String, Collective>,
    /// Events that begin within another of their thread and end after it: they are in no figure of operations.
    pub beside: usize,
    /// The longest single call of each kind that occurred.
    pub longest: Vec<LongestCall>,
    /// Each recorded step, in order.
    pub step_figures: Vec<StepFigures>,
    /// Seconds by stage over all steps of the attempt, by the ledger; `None` where it lacks the steps of a rank.
    pub totals: Option<RunTotals>,
}

impl Summary {
    /// Sum up the traces of an attempt, by rank and cycle.
    ///
    /// # Errors
    /// [`LedgerError`] if the ledger's steps of a rank cannot be read.
    pub fn new(traces: &[RankTrace], attempt: &AttemptDir) -> Result<Self, LedgerError> {
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
                let spans = StepSpans::new(forest, trace.meta.window);
                sums.add(&times, &spans, &threads, &slices);
                longest.add(trace, &spans, &threads, &slices);
                steps.entry(trace.meta.rank).or_default().extend(times);
                if slices.iter().any(Slice::is_device_work) {
                    summary.device_steps += add_device_pauses(&mut idle, &slices, forest);
                }
            }
            add_device_operations(&mut devices, &slices);
            add_copies(&mut summary.copies, &slices);
            add_collectives(&mut summary.collectives, &slices);
        }
        for (rank, times) in &steps {
            summary.steps += times.len() as u64;
            summary.wall += times.iter().map(|times| times.wall).sum::<u64>();
            summary.agreements.push((*rank, agreements(times, &ledger_steps(attempt, *rank, times)?)));
        }
        summary.operations = operations.into_values().collect();
        summary.operations.sort_by_key(|operation: &HostOperation| -operation.own);
        summary.device_operations = devices.into_iter().collect();
        summary.device_operations.sort_by_key(|(_, (_, ns))| -ns);
        summary.idle = idle.into_iter().collect();
        summary.idle.sort_by_key(|(_, idle)| -idle.total);
        summary.longest = longest.into_calls();
        summary.step_figures = sums.means();
        summary.totals = totals(traces.first().map_or(0, |trace| trace.meta.world_size), attempt);
        Ok(summary)
    }

    /// The largest relative difference of trace and ledger among the times that are worth comparing (`WORTH_COMPARING`); `None` where the
    /// ledger has none of the steps.
    pub fn largest_difference(&self) -> Option<f64> {
        let of_rank = |agreements: &Vec<LedgerAgreement>| {
            let step = agreements.last()?.busy.1;
            agreements.iter().filter_map(|agreement| agreement.largest(step)).reduce(f64::max)
        };
        self.agreements.iter().filter_map(|(_, agreements)| of_rank(agreements)).reduce(f64::max)
    }
}

/// Seconds by stage over all steps of the ranks of an attempt.
fn totals(world_size: u32, attempt: &AttemptDir) -> Option<RunTotals> {
    // The totals are an addition to the traces, so steps that cannot be read are no error.
    let ranks: Vec<Vec<StepRecord>> = (0..world_size).map(|rank| attempt.steps(rank).ok()).collect::<Option<_>>()?;
    RunTotals::from_ranks(&ranks.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// The threads of the process itself as forests; without the rows that the worker adds, which hold no operations.
fn threads(slices: &[Slice], pid: i64) -> BTreeMap<i64, Forest> {
    let mut threads: BTreeMap<i64, Vec<Slice>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.pid == pid && slice.tid < expctl_ledger::trace_rows::LOADER) {
        threads.entry(slice.tid).or_default().push(slice.clone());
    }
    threads.into_iter().map(|(tid, slices)| (tid, nest(slices))).collect()
}

impl Summary {
    /// As JSON: times in ns, sums over all ranks and recorded steps unless a name says otherwise.
    pub fn json(&self, job: u64, found: &TrialTraces) -> Json {
        let windows = self.parts.iter().map(|part| {
            json!({ "rank": part.rank, "host": part.host, "cycle": part.window.cycle, "first": part.window.first, "end": part.window.end,
                "clock_offset_ns": part.clock.offset_ns, "clock_offset_uncertainty_ns": part.clock.offset_uncertainty_ns })
        });
        let stages = self
            .agreements
            .iter()
            .flat_map(|(rank, all)| all.iter().map(move |agreement| agreement_json(*rank, agreement)));
        let operations = self.operations.iter().map(|operation| {
            json!({ "name": operation.name, "stage": Some(operation.stage()).filter(|stage| !stage.is_empty()),
                "calls": operation.calls, "own_ns": operation.own, "total_ns": operation.total })
        });
        let device_operations =
            self.device_operations.iter().map(|(name, (calls, ns))| json!({ "name": name, "calls": calls, "ns": ns }));
        let copies = self.copies.iter().map(|((name, below), copies)| {
            json!({ "name": name, "smaller_than_bytes": below, "copies": copies.copies, "bytes": copies.bytes, "ns": copies.total })
        });
        let pauses = self.idle.iter().map(|((stage, operation), idle)| {
            json!({ "stage": stage, "operation": operation, "pauses": idle.gaps, "ns": idle.total })
        });
        let collectives = self.collectives.iter().map(|(name, found)| {
            json!({ "name": name, "calls": found.calls, "total_ns": found.total, "longest_ns": found.longest })
        });
        let missing = found.missing.iter().map(|(rank, cycle)| json!({ "rank": rank, "cycle": cycle }));
        json!({
            "job": job,
            "trial": found.trial.id,
            "variant": found.trial.label(),
            "method": found.trial.method,
            "attempt": found.attempt.number(),
            "world_size": self.parts.first().map(|part| part.world_size),
            "windows": windows.collect::<Vec<_>>(),
            "missing": missing.collect::<Vec<_>>(),
            "steps": self.steps,
            "wall_ns": self.wall,
            "stages": stages.collect::<Vec<_>>(),
            "totals": self.totals,
            "operations": operations.collect::<Vec<_>>(),
            "longest": self.longest,
            "device_operations": device_operations.collect::<Vec<_>>(),
            "device_steps_ns": self.device_steps,
            "copies": copies.collect::<Vec<_>>(),
            "pauses": pauses.collect::<Vec<_>>(),
            "collectives": collectives.collect::<Vec<_>>(),
            "events_beside": self.beside,
        })
    }
}

fn agreement_json(rank: u32, agreement: &LedgerAgreement) -> Json {
    let both = |(trace, ledger): (f64, f64)| json!({ "trace": trace, "ledger": ledger });
    json!({
        "rank": rank,
        "stage": agreement.stage,
        "busy_ns_per_step": both(agreement.busy),
        "exposed_ns_per_step": both(agreement.exposed),
    })
}

/// Times of a stage of a rank, or of its whole step, in the trace and in the ledger: means over the same steps, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LedgerAgreement {
    /// The stage; `None` for the whole step.
    pub stage: Option<Stage>,
    /// Busy time by trace and ledger; for the whole step its length.
    pub busy: (f64, f64),
    /// Exposed time by trace and ledger.
    pub exposed: (f64, f64),
}

/// Share of a step from which on a time is compared: a shorter one differs by the few microseconds that recording a range takes.
pub const WORTH_COMPARING: f64 = 0.01;

impl LedgerAgreement {
    /// Relative difference of trace and ledger, of the busy and of the exposed time; `None` where the ledger has no time.
    pub fn differences(&self) -> [Option<f64>; 2] {
        let share = |(trace, ledger): (f64, f64)| (ledger > 0.0).then(|| trace / ledger - 1.0);
        [share(self.busy), share(self.exposed)]
    }

    /// The largest relative difference of the times that are worth comparing in a step of `step` ns.
    pub fn largest(&self, step: f64) -> Option<f64> {
        let worth = |(trace, ledger): (f64, f64)| trace.max(ledger) >= step * WORTH_COMPARING;
        let figures = [self.busy, self.exposed].into_iter().zip(self.differences());
        figures
            .filter(|(figures, _)| worth(*figures))
            // A time that the ledger lacks differs without bound.
            .map(|(_, difference)| difference.map_or(f64::INFINITY, f64::abs))
            .reduce(f64::max)
    }
}

/// The ledger's steps of `rank` for each of `times`; `None` for a step that it lacks.
///
/// # Errors
/// [`LedgerError`] if the table of steps cannot be read.
fn ledger_steps(attempt: &AttemptDir, rank: u32, times: &[StepTimes]) -> Result<Vec<Option<StepRecord>>, LedgerError> {
    let steps = attempt.steps(rank)?;
    Ok(times.iter().map(|times| steps.iter().find(|step| step.step == times.step).cloned()).collect())
}

/// A step in the trace and in the ledger.
type StepPair<'a> = (&'a StepTimes, &'a StepRecord);

/// Trace and ledger side by side, for the stages that either has; the whole step last. Empty where the ledger has none of
/// the steps.
fn agreements(times: &[StepTimes], records: &[Option<StepRecord>]) -> Vec<LedgerAgreement> {
    let pairs: Vec<StepPair<'_>> =
        times.iter().zip(records).filter_map(|(times, record)| Some((times, record.as_ref()?))).collect();
    if pairs.is_empty() {
        return Vec::new();
    }
    let mean = |of: &dyn Fn(&StepPair<'_>) -> (u64, u64)| {
        let (trace, ledger) = pairs.iter().map(of).fold((0, 0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        (trace as f64 / pairs.len() as f64, ledger as f64 / pairs.len() as f64)
    };
    let both = |trace: &PerStage<u64>, ledger: &PerStage<u64>, stage| (trace[stage], ledger[stage]);
    let mut all: Vec<LedgerAgreement> = Vec::new();
    for stage in Stage::ALL {
        let busy = mean(&|(times, record)| both(&times.busy, &record.busy, stage));
        let exposed = mean(&|(times, record)| both(&times.exposed, &record.exposed, stage));
        if [busy.0, busy.1, exposed.0, exposed.1].iter().any(|ns| *ns > 0.0) {
            all.push(LedgerAgreement { stage: Some(stage), busy, exposed });
        }
    }
    let wall = mean(&|(times, record)| (times.wall, record.wall_ns));
    all.push(LedgerAgreement { stage: None, busy: wall, exposed: wall });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_figures_that_make_a_part_of_the_step_are_judged() {
        let mut times = StepTimes { step: 3, wall: 990, ..StepTimes::default() };
        let mut record = StepRecord { step: 3, wall_ns: 1000, ..StepRecord::default() };
        for (stage, trace, ledger) in [(Stage::Forward, 612, 600), (Stage::Clip, 9, 4), (Stage::Read, 0, 0)] {
            (times.busy[stage], times.exposed[stage]) = (trace, trace);
            (record.busy[stage], record.exposed[stage]) = (ledger, ledger);
        }
        let found = agreements(&[times, StepTimes::default()], &[Some(record), None]);
        assert_eq!(found.iter().map(|a| a.stage).collect::<Vec<_>>(), [Some(Stage::Forward), Some(Stage::Clip), None]);
        let largest: Vec<_> = found.iter().map(|a| a.largest(1000.0).map(|d| (d * 1e4).round())).collect();
        assert_eq!(largest, [Some(200.0), None, Some(100.0)]);
        assert_eq!(found[1].differences(), [Some(1.25), Some(1.25)]);
        assert!(agreements(&[times], &[None]).is_empty());
        let lost = LedgerAgreement { stage: None, busy: (50.0, 0.0), exposed: (0.0, 0.0) };
        assert_eq!(lost.largest(1000.0), Some(f64::INFINITY));
    }
}
