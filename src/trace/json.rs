//! A summary as JSON: times in ns, sums over all ranks and recorded steps unless a name says otherwise.

use serde_json::{Value as Json, json};

use super::ledger_steps::Agreement;
use super::{Found, Summary};

impl Summary {
    /// What the traces of the trial `found` of a job show.
    pub fn json(&self, job: u64, found: &Found) -> Json {
        let windows = self.parts.iter().map(|part| {
            json!({ "rank": part.rank, "host": part.host, "cycle": part.window.cycle, "first": part.window.first, "end": part.window.end,
                "clock_offset_ns": part.clock.offset_ns, "clock_offset_uncertainty_ns": part.clock.offset_uncertainty_ns })
        });
        let stages =
            self.agreements.iter().flat_map(|(rank, all)| all.iter().map(move |agreement| stage(*rank, agreement)));
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

/// A stage of a rank, or its whole step, ns per step in the trace and in the ledger.
fn stage(rank: u32, agreement: &Agreement) -> Json {
    let both = |(trace, ledger): (f64, f64)| json!({ "trace": trace, "ledger": ledger });
    json!({
        "rank": rank,
        "stage": agreement.stage,
        "busy_ns_per_step": both(agreement.busy),
        "exposed_ns_per_step": both(agreement.exposed),
    })
}
