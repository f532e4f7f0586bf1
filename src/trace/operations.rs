//! Operations of the host and of devices, copies, pauses of devices, and collectives: sums by name.

use std::collections::BTreeMap;

use expctl_ledger::{Stage, trace_rows::COLLECTIVES};

use super::forest::{Forest, Slice};

/// Calls of one operation of the host, over all recorded steps and ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostOperation {
    /// Its name; [`NO_OPERATION`] for the time of a stage outside of operations.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// Time without the operations that it calls, ns.
    pub own: i64,
    /// Time with the operations that it calls, ns; calls within calls of the same name count once.
    pub total: i64,
    /// Its own time by the stage that encloses it; the name is empty outside of stages.
    pub stages: BTreeMap<String, i64>,
}

impl HostOperation {
    /// The stage that has most of its own time; empty for none.
    pub fn stage(&self) -> &str {
        self.stages.iter().max_by_key(|(_, own)| **own).map_or("", |(stage, _)| stage)
    }
}

/// Name of the time of a stage outside of operations.
pub const NO_OPERATION: &str = "(no operation)";

/// Name of the operation of the slice at `at`, and the stage around it. The range of a stage is [`NO_OPERATION`]: its own time is that
/// outside of operations. `None` for the range of a step, which the stages divide, and for ranges of the worker outside of steps.
pub fn operation_at(forest: &Forest, at: usize) -> Option<(&str, Option<Stage>)> {
    let slice = &forest.slices[at];
    let of_worker = slice.is_range()
        && (slice.step_of_range().is_some() || slice.stage_of_range().is_none() && forest.parent[at].is_none());
    if of_worker {
        return None;
    }
    if let Some(stage) = slice.stage_of_range() {
        return Some((NO_OPERATION, Some(stage)));
    }
    Some((slice.name.as_str(), forest.ancestors(at).find_map(|of| forest.slices[of].stage_of_range())))
}

/// Whether the slice at `at` is a call within a call of the same name.
pub fn is_recursive(forest: &Forest, at: usize) -> bool {
    forest.ancestors(at).any(|of| forest.slices[of].name == forest.slices[at].name)
}

/// Add the operations of `forest` to those of the host, by name.
pub fn add_operations(found: &mut BTreeMap<String, HostOperation>, forest: &Forest) {
    for (at, slice) in forest.slices.iter().enumerate() {
        let Some((name, stage)) = operation_at(forest, at) else { continue };
        let stage = stage.map_or("", |stage| stage.name());
        let operation = found
            .entry(name.to_owned())
            .or_insert_with(|| HostOperation { name: name.to_owned(), ..HostOperation::default() });
        operation.calls += 1;
        operation.own += forest.own[at];
        *operation.stages.entry(stage.to_owned()).or_default() += forest.own[at];
        if name == NO_OPERATION {
            operation.total += forest.own[at];
        } else if !is_recursive(forest, at) {
            operation.total += slice.duration();
        }
    }
}

/// Add the kernels, copies and fills of `slices` to those of devices: calls and time (ns) by name.
pub fn add_device_operations(found: &mut BTreeMap<String, (u64, i64)>, slices: &[Slice]) {
    for slice in slices.iter().filter(|slice| slice.is_device_work()) {
        let (calls, ns) = found.entry(slice.name.clone()).or_default();
        *calls += 1;
        *ns += slice.duration();
    }
}

/// Shortest pause of a device that counts, ns. Shorter ones lie between any two kernels.
const MIN_PAUSE_NS: i64 = 10_000;

/// Copies between host and device of one kind and about one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Number of them.
    pub copies: u64,
    /// Bytes, summed over them.
    pub bytes: u64,
    /// Time, summed over them, ns.
    pub total: i64,
}

/// Add the copies of `slices` to those found, by name and by the power of two that their bytes are below (`None` where an event does not
/// name its bytes).
pub fn add_copies(found: &mut BTreeMap<(String, Option<u64>), Copies>, slices: &[Slice]) {
    for slice in slices.iter().filter(|slice| slice.category == "gpu_memcpy") {
        let below = slice.bytes.map(|bytes| bytes.saturating_add(1).checked_next_power_of_two().unwrap_or(u64::MAX));
        let copies = found.entry((slice.name.clone(), below)).or_default();
        copies.copies += 1;
        copies.bytes += slice.bytes.unwrap_or_default();
        copies.total += slice.duration();
    }
}

/// Pauses of a device while the thread of the steps was in one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DevicePauses {
    /// Pauses that began in it.
    pub gaps: u64,
    /// Time, ns.
    pub total: i64,
}

/// Stage and operation that the thread of the steps was in while a device paused; empty for none.
pub type HostPosition = (String, String);

/// Add the pauses of the device of a rank within steps to those found; returns the length of its steps, ns. Work of several streams at once
/// counts once.
pub fn add_device_pauses(found: &mut BTreeMap<HostPosition, DevicePauses>, slices: &[Slice], steps: &Forest) -> i64 {
    let mut busy: Vec<(i64, i64)> =
        slices.iter().filter(|slice| slice.is_device_work()).map(|slice| (slice.start, slice.end)).collect();
    busy.sort_unstable();
    let mut whole = 0;
    for step in steps.slices.iter().filter(|slice| slice.step_of_range().is_some()) {
        whole += step.duration();
        let mut free = step.start;
        let ends = std::iter::once((step.end, step.end));
        for (start, end) in
            busy.iter().copied().filter(|(start, end)| *end > step.start && *start < step.end).chain(ends)
        {
            if start - free >= MIN_PAUSE_NS {
                split_pause(found, steps, free, start);
            }
            free = free.max(end);
        }
    }
    whole
}

/// Split a pause over the operations that the thread was in meanwhile.
fn split_pause(found: &mut BTreeMap<HostPosition, DevicePauses>, steps: &Forest, from: i64, to: i64) {
    let mut moment = from;
    let mut begins = true;
    while moment < to {
        let (position, until) = host_position(steps, moment);
        let until = until.min(to).max(moment + 1);
        let pauses = found.entry(position).or_default();
        pauses.gaps += u64::from(begins);
        pauses.total += until - moment;
        begins = false;
        moment = until;
    }
}

/// Stage and outermost operation of the thread at a moment, and the moment until which it stays in them.
fn host_position(steps: &Forest, moment: i64) -> (HostPosition, i64) {
    let Some(at) = steps.at(moment) else {
        let next = steps.slices.iter().map(|slice| slice.start).find(|start| *start > moment);
        return ((String::new(), String::new()), next.unwrap_or(i64::MAX));
    };
    let path: Vec<usize> = std::iter::once(at).chain(steps.ancestors(at)).collect();
    let stage = path.iter().position(|of| steps.slices[*of].stage_of_range().is_some());
    let stage_name = stage.map(|i| steps.slices[path[i]].name.clone()).unwrap_or_default();
    // The child of the stage; where there is no stage, the child of the step.
    let around = stage.unwrap_or(path.len() - 1);
    let inside = around.checked_sub(1).map(|i| path[i]);
    match inside {
        Some(inside) => ((stage_name, steps.slices[inside].name.clone()), steps.slices[inside].end),
        None => {
            let around = path[around];
            let next = steps.children(around).map(|(_, slice)| slice.start).find(|start| *start > moment);
            ((stage_name, String::new()), next.unwrap_or(steps.slices[around].end))
        }
    }
}

/// Calls of one collective of the process group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collective {
    /// Number of calls, over all ranks.
    pub calls: u64,
    /// Time from hand-over to completion, summed over the calls, ns.
    pub total: i64,
    /// Time of the longest call, ns.
    pub longest: i64,
}

/// Add the collectives of `slices` to those found, by name.
pub fn add_collectives(found: &mut BTreeMap<String, Collective>, slices: &[Slice]) {
    for slice in slices.iter().filter(|slice| slice.tid >= COLLECTIVES) {
        let collective = found.entry(slice.name.clone()).or_default();
        collective.calls += 1;
        collective.total += slice.duration();
        collective.longest = collective.longest.max(slice.duration());
    }
}

#[cfg(test)]
mod tests {
    use super::super::forest::nest;
    use super::*;

    #[test]
    fn operations_belong_to_the_stage_around_them() {
        let slice = |category: &str, name: &str, start, end| Slice {
            name: name.to_owned(),
            category: category.to_owned(),
            pid: 1,
            tid: 1,
            start,
            end,
            step: None,
            bytes: None,
        };
        let forest = nest(vec![
            slice("user_annotation", "step 1", 0, 100),
            slice("user_annotation", "forward", 0, 60),
            slice("cpu_op", "aten::linear", 10, 40),
            slice("cpu_op", "aten::mm", 20, 35),
            slice("cpu_op", "aten::mm", 22, 30),
            slice("user_annotation", "backward", 60, 95),
            // Its name says forward, and it is none.
            slice("cpu_op", "forward_mm", 60, 70),
            slice("cpu_op", "aten::mm", 70, 72),
        ]);
        let mut found = BTreeMap::new();
        add_operations(&mut found, &forest);
        let of = |name: &str| found[name].clone();
        assert_eq!((of("aten::mm").calls, of("aten::mm").own, of("aten::mm").total), (3, 17, 17));
        assert_eq!((of("aten::mm").stage(), of("forward_mm").stage()), ("forward", "backward"));
        assert_eq!((of("aten::linear").own, of("aten::linear").total), (15, 30));
        assert_eq!((of(NO_OPERATION).own, of(NO_OPERATION).stages["backward"]), (30 + 23, 23));
        assert!(!found.contains_key("step 1"));
        // Nothing of a stage is lost or counted twice.
        assert_eq!(found.values().map(|o| o.own).sum::<i64>(), 95);
    }

    fn slice(category: &str, name: &str, (start, end): (i64, i64), bytes: Option<u64>) -> Slice {
        let (name, category) = (name.to_owned(), category.to_owned());
        Slice { name, category, pid: 0, tid: 7, start: start * 1000, end: end * 1000, step: None, bytes }
    }

    #[test]
    fn a_pause_belongs_to_what_the_host_did_meanwhile() {
        let steps = nest(vec![
            slice("user_annotation", "step 1", (0, 200), None),
            slice("user_annotation", "load", (0, 50), None),
            slice("user_annotation", "forward", (50, 150), None),
            slice("cpu_op", "aten::linear", (60, 100), None),
            slice("cpu_op", "aten::mm", (70, 90), None),
        ]);
        let device = [
            slice("kernel", "gemm", (80, 130), None),
            // Two streams at once, and a pause that is too short to count.
            slice("kernel", "add", (100, 140), None),
            slice("gpu_memset", "Memset", (145, 190), None),
        ];
        let mut found = BTreeMap::new();
        assert_eq!(add_device_pauses(&mut found, &device, &steps), 200_000);
        let idle = |stage: &str, operation: &str| found[&(stage.to_owned(), operation.to_owned())];
        assert_eq!(idle("", "load"), DevicePauses { gaps: 1, total: 50_000 });
        assert_eq!(idle("forward", ""), DevicePauses { gaps: 0, total: 10_000 });
        assert_eq!(idle("forward", "aten::linear"), DevicePauses { gaps: 0, total: 20_000 });
        assert_eq!(found.values().map(|idle| idle.total).sum::<i64>(), 80_000 + 10_000);
    }

    #[test]
    fn copies_are_counted_by_size() {
        let copy = |name: &str, bytes| slice("gpu_memcpy", name, (0, 1), bytes);
        let mut found = BTreeMap::new();
        let to = "Memcpy HtoD (Pinned -> Device)";
        add_copies(
            &mut found,
            &[copy(to, Some(3000)), copy(to, Some(4095)), copy(to, Some(4096)), copy("Memcpy DtoH", None)],
        );
        let sizes: Vec<_> = found.iter().map(|((_, below), c)| (*below, c.copies, c.bytes)).collect();
        assert_eq!(sizes, [(None, 1, 0), (Some(4096), 2, 7095), (Some(8192), 1, 4096)]);
    }
}
