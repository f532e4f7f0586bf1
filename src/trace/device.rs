use std::collections::BTreeMap;

use super::nesting::Forest;
use super::operations::is_device_work;
use super::slice::Slice;
use super::stages::{stage_of, step_of};

/// Shorter pauses are those between two kernels that follow each other.
const SHORTEST_GAP: i64 = 10_000;

/// Copies of one kind and about one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Number of them.
    pub copies: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Time of all, ns.
    pub total: i64,
}

/// Copies between host and devices by kind and by the power of two of bytes that they are below (none where they do not
/// say), with those of `slices` added.
pub fn add_copies(found: &mut BTreeMap<(String, Option<u64>), Copies>, slices: &[Slice]) {
    for slice in slices.iter().filter(|slice| slice.category == "gpu_memcpy") {
        let below = slice.bytes.map(|bytes| bytes.saturating_add(1).checked_next_power_of_two().unwrap_or(u64::MAX));
        let copies = found.entry((slice.name.clone(), below)).or_default();
        copies.copies += 1;
        copies.bytes += slice.bytes.unwrap_or_default();
        copies.total += slice.duration();
    }
}

/// Pauses of a device while the thread of the steps was at one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// Pauses that began there.
    pub gaps: u64,
    /// Time, ns.
    pub total: i64,
}

/// Where the thread of the steps was while a device did nothing within a step: the stage, and the operation there.
pub type Place = (String, String);

/// Pauses of the devices of a rank, with those of `slices` added; returns for how long steps ran, ns. A rank has one device;
/// what several streams of it do at once counts once.
pub fn add_idle(found: &mut BTreeMap<Place, Idle>, slices: &[Slice], steps: &Forest) -> i64 {
    let mut busy: Vec<(i64, i64)> =
        slices.iter().filter(|slice| is_device_work(slice)).map(|slice| (slice.start, slice.end)).collect();
    busy.sort_unstable();
    let mut whole = 0;
    for step in steps.slices.iter().filter(|slice| step_of(slice).is_some()) {
        whole += step.duration();
        let mut free = step.start;
        let ends = std::iter::once((step.end, step.end));
        for (start, end) in
            busy.iter().copied().filter(|(start, end)| *end > step.start && *start < step.end).chain(ends)
        {
            if start - free >= SHORTEST_GAP {
                split(found, steps, free, start);
            }
            free = free.max(end);
        }
    }
    whole
}

/// Split a pause over the places that the thread was at meanwhile.
fn split(found: &mut BTreeMap<Place, Idle>, steps: &Forest, from: i64, to: i64) {
    let mut moment = from;
    let mut begins = true;
    while moment < to {
        let (place, until) = place(steps, moment);
        let until = until.min(to).max(moment + 1);
        let idle = found.entry(place).or_default();
        idle.gaps += u64::from(begins);
        idle.total += until - moment;
        begins = false;
        moment = until;
    }
}

/// Where the thread was at a moment, and until when it was nowhere else: the outermost operation within the stage.
fn place(steps: &Forest, moment: i64) -> (Place, i64) {
    let Some(at) = steps.at(moment) else {
        let next = steps.slices.iter().map(|slice| slice.start).find(|start| *start > moment);
        return ((String::new(), String::new()), next.unwrap_or(i64::MAX));
    };
    let path: Vec<usize> = std::iter::once(at).chain(steps.ancestors(at)).collect();
    let stage = path.iter().position(|of| stage_of(&steps.slices[*of]).is_some());
    let stage_name = stage.map(|i| steps.slices[path[i]].name.clone()).unwrap_or_default();
    // Just inside the stage; where there is none, just inside the step.
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

#[cfg(test)]
mod tests {
    use super::super::nesting::nest;
    use super::*;

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
        assert_eq!(add_idle(&mut found, &device, &steps), 200_000);
        let idle = |stage: &str, operation: &str| found[&(stage.to_owned(), operation.to_owned())];
        assert_eq!(idle("", "load"), Idle { gaps: 1, total: 50_000 });
        assert_eq!(idle("forward", ""), Idle { gaps: 0, total: 10_000 });
        assert_eq!(idle("forward", "aten::linear"), Idle { gaps: 0, total: 20_000 });
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
