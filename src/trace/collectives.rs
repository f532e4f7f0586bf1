use std::collections::BTreeMap;

use expctl_record::trace_rows::COLLECTIVES;

use super::slice::Slice;

/// Calls of one collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collective {
    /// Number of calls, over all ranks.
    pub calls: u64,
    /// From hand-over to completion, ns.
    pub total: i64,
    /// The longest.
    pub longest: i64,
}

/// Collectives of the process group by name, with those of `slices` added.
pub fn add_collectives(found: &mut BTreeMap<String, Collective>, slices: &[Slice]) {
    for slice in slices.iter().filter(|slice| slice.tid >= COLLECTIVES) {
        let collective = found.entry(slice.name.clone()).or_default();
        collective.calls += 1;
        collective.total += slice.duration();
        collective.longest = collective.longest.max(slice.duration());
    }
}
