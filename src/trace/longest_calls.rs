//! The longest single call of each kind.

use std::collections::BTreeMap;

use expctl_ledger::{
    Stage,
    trace_rows::{COLLECTIVES, LOAD, LOADER_CATEGORY},
};
use serde::Serialize;

use super::forest::{Forest, Slice};
use super::operations::{NO_OPERATION, is_recursive, operation_at};
use super::rank_trace::RankTrace;
use super::step_times::StepSpans;

/// Kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// An operation of the host, without the operations that it calls.
    HostExclusive,
    /// An operation of the host with all that it calls.
    HostInclusive,
    /// A stage of one batch on a loader thread.
    Loader,
    /// A kernel, copy or fill of a device.
    Device,
    /// A collective of the process group, from hand-over to completion.
    Collective,
}

impl CallKind {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::HostExclusive => "host, own time",
            Self::HostInclusive => "host, with its calls",
            Self::Loader => "loader thread",
            Self::Device => "device",
            Self::Collective => "collective",
        }
    }

    /// Whether all of its time is work of its own. The other kinds contain other calls, or waiting.
    const fn is_work(self) -> bool {
        matches!(self, Self::HostExclusive | Self::Loader | Self::Device)
    }
}

/// The longest single call of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LongestCall {
    /// Kind of the call.
    pub kind: CallKind,
    /// Name of the operation; for a loader thread the stage.
    pub name: String,
    /// Its time, ns.
    pub ns: i64,
    /// The rank that called it.
    pub rank: u32,
    /// The thread or stream that it ran on.
    pub thread: String,
    /// The step in which it began; for a loader thread the step that its batch is for.
    pub step: Option<u64>,
    /// The stage around it.
    pub stage: Option<Stage>,
    /// Number of the calls of the same name in the traces of all ranks.
    pub calls: u64,
    /// Time of all calls of the same name, ns.
    pub total_ns: i64,
}

impl LongestCall {
    /// Rank, thread, step and stage: `rank 1, steps, step 8, in forward`.
    pub fn location(&self) -> String {
        let mut words = vec![format!("rank {}", self.rank), self.thread.clone()];
        words.extend(self.step.map(|step| format!("step {step}")));
        words.extend(self.stage.filter(|_| self.kind != CallKind::Loader).map(|stage| format!("in {stage}")));
        words.join(", ")
    }
}

/// The longest calls so far, and the sums by name that they are part of.
#[derive(Clone, Debug, Default)]
pub struct LongestCalls {
    longest: BTreeMap<CallKind, LongestCall>,
    sums: BTreeMap<(CallKind, String), (u64, i64)>,
}

impl LongestCalls {
    /// Add what one rank recorded in one window: operations of the host and of devices and collectives that began in one of the recorded
    /// steps, and all work of loader threads.
    pub fn add(&mut self, trace: &RankTrace, spans: &StepSpans, threads: &BTreeMap<i64, Forest>, slices: &[Slice]) {
        let names = trace.thread_names();
        let mut offer = |kind: CallKind, slice: &Slice, ns: i64, step: Option<u64>, stage: Option<Stage>| {
            let (calls, total) = self.sums.entry((kind, slice.name.clone())).or_default();
            *calls += 1;
            *total += ns;
            if self.longest.get(&kind).is_none_or(|longest| ns > longest.ns) {
                let named = names.get(&(slice.pid, slice.tid)).map(|name| (*name).to_owned());
                let (name, rank) = (slice.name.clone(), trace.meta.rank);
                let thread = named.unwrap_or_else(|| format!("thread {}", slice.tid));
                self.longest
                    .insert(kind, LongestCall { kind, name, ns, rank, thread, step, stage, calls: 0, total_ns: 0 });
            }
        };
        for forest in threads.values() {
            for (at, slice) in forest.slices.iter().enumerate() {
                let (Some((name, stage)), Some(step)) = (operation_at(forest, at), spans.at(slice.start)) else {
                    continue;
                };
                // The time outside of operations is no call, and the wait for the batch no operation.
                if name == NO_OPERATION || slice.is_range() && name == LOAD {
                    continue;
                }
                offer(CallKind::HostExclusive, slice, forest.own[at], Some(step), stage);
                if !is_recursive(forest, at) {
                    offer(CallKind::HostInclusive, slice, slice.duration(), Some(step), stage);
                }
            }
        }
        for slice in slices {
            let step = spans.at(slice.start);
            if slice.category == LOADER_CATEGORY {
                let stage = Stage::ALL.into_iter().find(|stage| stage.name() == slice.name);
                offer(CallKind::Loader, slice, slice.duration(), slice.step, stage);
            } else if slice.is_device_work() && step.is_some() {
                offer(CallKind::Device, slice, slice.duration(), step, None);
            } else if slice.tid >= COLLECTIVES && step.is_some() {
                offer(CallKind::Collective, slice, slice.duration(), step, None);
            }
        }
    }

    /// The longest call of each kind that occurred, with the sum of all calls of its name.
    pub fn into_calls(self) -> Vec<LongestCall> {
        let Self { longest, sums } = self;
        let with_sum = |call: LongestCall| {
            let (calls, total_ns) = sums.get(&(call.kind, call.name.clone())).copied().unwrap_or_default();
            LongestCall { calls, total_ns, ..call }
        };
        longest.into_values().map(with_sum).collect()
    }
}

/// The longest call whose time is all work of its own: on the host without what it calls, of a loader thread, or of a device.
pub fn longest_of_all(calls: &[LongestCall]) -> Option<&LongestCall> {
    calls.iter().filter(|call| call.kind.is_work()).max_by_key(|call| call.ns)
}

#[cfg(test)]
mod tests {
    use expctl_ledger::{TraceClock, TraceMeta};
    use expctl_settings::ProfileWindow;
    use serde_json::{Map, json};

    use super::super::forest::nest;
    use super::*;

    fn slice(category: &str, name: &str, tid: i64, (start, end): (i64, i64), step: Option<u64>) -> Slice {
        let (name, category) = (name.to_owned(), category.to_owned());
        Slice { name, category, pid: 1, tid, start, end, step, bytes: None }
    }

    fn trace(rank: u32, window: ProfileWindow) -> RankTrace {
        let clock = TraceClock {
            realtime_ns: 0,
            monotonic_ns: 0,
            pair_uncertainty_ns: 0,
            drift_ns: 0,
            offset_ns: 0,
            offset_uncertainty_ns: 0,
            boot_id: String::new(),
        };
        let (trial, host) = ("t".to_owned(), "h".to_owned());
        let meta = TraceMeta { schema: 1, trial, rank, world_size: 2, host, window, pid: 1, step_thread: 1, clock };
        let name = |tid: i64, name: &str| json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": name}});
        RankTrace { meta, base: 0, events: vec![name(1, "steps"), name(9, "loader 3")], head: Map::new() }
    }

    #[test]
    fn the_longest_call_of_each_kind_is_named_with_its_sum() {
        let window = ProfileWindow { cycle: 0, prepare: 3, first: 4, end: 5 };
        let mut calls = LongestCalls::default();
        for (rank, inner) in [(0, 40), (1, 90)] {
            let steps = nest(vec![
                slice("user_annotation", "step 4", 1, (0, 1000), None),
                slice("user_annotation", "load", 1, (0, 400), None),
                slice("user_annotation", "forward", 1, (400, 900), None),
                slice("cpu_op", "aten::linear", 1, (400, 600), None),
                slice("cpu_op", "aten::mm", 1, (410, 410 + inner), None),
                slice("cpu_op", "aten::mm", 1, (600, 620), None),
                // In front of a recorded step: longer than all, and in none.
                slice("cpu_op", "aten::empty", 1, (-5000, -1000), None),
            ]);
            let slices = [
                slice("loader", "mask", 9, (-50, 300), Some(6)),
                slice("loader", "collate", 9, (300, 310), Some(6)),
                slice("loader_wait", "read", 9, (310, 999), Some(6)),
            ];
            let spans = StepSpans::new(&steps, window);
            calls.add(&trace(rank, window), &spans, &BTreeMap::from([(1, steps)]), &slices);
        }
        let found = calls.into_calls();
        let words: Vec<_> = found.iter().map(|c| (c.kind, c.name.as_str(), c.ns, c.calls, c.total_ns)).collect();
        assert_eq!(
            words,
            [
                // 200 less 40 of the call in it, on rank 0.
                (CallKind::HostExclusive, "aten::linear", 160, 2, 160 + 110),
                (CallKind::HostInclusive, "aten::linear", 200, 2, 400),
                (CallKind::Loader, "mask", 350, 2, 700),
            ]
        );
        assert_eq!(found[0].location(), "rank 0, steps, step 4, in forward");
        assert_eq!(found[2].location(), "rank 0, loader 3, step 6");
        assert_eq!(longest_of_all(&found).map(|call| call.kind), Some(CallKind::Loader));
        assert_eq!(longest_of_all(&found[..2]).map(|call| call.ns), Some(160));
    }
}
