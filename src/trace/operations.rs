use std::collections::BTreeMap;

use expctl_record::Stage;

use super::nesting::Forest;
use super::slice::Slice;
use super::stages::{stage_of, step_of};

/// What the calls of one operation took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    /// What it is called; of the time of a stage that no operation takes, `(no operation)`.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// Time that no operation called by it takes, ns.
    pub own: i64,
    /// Time with what it calls, ns; calls within calls of the same name count once.
    pub total: i64,
    /// Its own time, by the stage that encloses it; of what lies in no stage the name is empty.
    pub stages: BTreeMap<String, i64>,
}

impl Operation {
    /// The stage that most of its own time lies in; empty for none.
    pub fn stage(&self) -> &str {
        self.stages.iter().max_by_key(|(_, own)| **own).map_or("", |(stage, _)| stage)
    }
}

/// Time of a stage that no operation takes.
pub const NO_OPERATION: &str = "(no operation)";

/// What the slice at `at` is called among the operations, and the stage around it: of the range of a stage [`NO_OPERATION`], whose own
/// time no operation takes. None of the range of a step, which its stages are measured by, and of ranges of the worker outside of steps.
pub(super) fn operation_at(forest: &Forest, at: usize) -> Option<(&str, Option<Stage>)> {
    let slice = &forest.slices[at];
    let of_worker =
        slice.is_range() && (step_of(slice).is_some() || stage_of(slice).is_none() && forest.parent[at].is_none());
    if of_worker {
        return None;
    }
    if let Some(stage) = stage_of(slice) {
        return Some((NO_OPERATION, Some(stage)));
    }
    Some((slice.name.as_str(), forest.ancestors(at).find_map(|of| stage_of(&forest.slices[of]))))
}

/// Whether the slice at `at` is a call within a call of the same name.
pub(super) fn is_recursive(forest: &Forest, at: usize) -> bool {
    forest.ancestors(at).any(|of| forest.slices[of].name == forest.slices[at].name)
}

/// Operations of the host, by name, with those of `forest` added.
pub fn add_operations(found: &mut BTreeMap<String, Operation>, forest: &Forest) {
    for (at, slice) in forest.slices.iter().enumerate() {
        let Some((name, stage)) = operation_at(forest, at) else { continue };
        let stage = stage.map_or("", |stage| stage.name());
        let operation =
            found.entry(name.to_owned()).or_insert_with(|| Operation { name: name.to_owned(), ..Operation::default() });
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

/// Kernels, copies and fills of devices by name, with those of `slices` added: calls and time.
pub fn add_device_operations(found: &mut BTreeMap<String, (u64, i64)>, slices: &[Slice]) {
    for slice in slices.iter().filter(|slice| is_device_work(slice)) {
        let (calls, ns) = found.entry(slice.name.clone()).or_default();
        *calls += 1;
        *ns += slice.duration();
    }
}

/// Whether a device worked then.
pub fn is_device_work(slice: &Slice) -> bool {
    matches!(slice.category.as_str(), "kernel" | "gpu_memcpy" | "gpu_memset")
}

#[cfg(test)]
mod tests {
    use super::super::nesting::nest;
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
}
