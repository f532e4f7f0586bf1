//! A summary as text.

use expctl_ledger::TraceMeta;
use expctl_text::Table;
use expctl_text::format::{self, code};

use super::longest_calls::{LongestCall, longest_of_all};
use super::operations::NO_OPERATION;
use super::summary::{Summary, WORTH_COMPARING};
use crate::ledger::totals_sentence;

/// Maximum number of rows of a table.
pub const MAX_ROWS: usize = 20;

impl Summary {
    /// As a note, with a headline that names the trial.
    pub fn markdown(&self, job: u64, trial: &str) -> String {
        self.text(job, trial, &Table::markdown)
    }

    /// As text with a headline that names the trial; `render` writes the tables.
    pub fn text(&self, job: u64, trial: &str, render: &dyn Fn(&Table) -> String) -> String {
        let mut parts = vec![format!("# Trace of job {job}, trial {trial}"), self.head()];
        parts.push(self.stages(render));
        parts.push(self.host(render));
        parts.extend(self.longest_calls(render));
        parts.extend(self.devices(render));
        parts.extend(self.group(render));
        parts.join("\n\n") + "\n"
    }

    fn head(&self) -> String {
        let mut ranks: Vec<u32> = self.parts.iter().map(|part| part.rank).collect();
        ranks.dedup();
        let mut windows: Vec<String> = Vec::new();
        for part in &self.parts {
            let (first, last) = (part.window.first, part.window.end.saturating_sub(1));
            let window = if first == last { format!("step {first}") } else { format!("steps {first} to {last}") };
            if !windows.contains(&window) {
                windows.push(window);
            }
        }
        let world = self.parts.first().map_or(0, |part| part.world_size);
        let mut lines = vec![
            format!("- {} of {world} recorded: {}", format::count(ranks.len() as u64, "rank"), windows.join(", ")),
            "- a profiler ran along: times here are longer than without one, and rates of these trials are in no ratio"
                .to_owned(),
        ];
        lines.push(format!("- clocks: {}", clocks(&self.parts)));
        if self.device_steps == 0 {
            lines.push("- no device: all operations are the host's".to_owned());
        }
        if self.beside > 0 {
            lines.push(format!(
                "- {} begin within another of their thread and end behind it; they are in no time of operations",
                format::count(self.beside as u64, "event")
            ));
        }
        lines.join("\n")
    }

    fn stages(&self, render: &dyn Fn(&Table) -> String) -> String {
        let mut text =
            "## Stages: trace and ledger\n\nMean over the recorded steps, ms. Trace: measured by nesting in the \
             range of each step; the split of exposed times is derived, by the rules of the ledger. Ledger: measured, \
             the same steps. Δ: derived, trace less ledger."
                .to_owned();
        let columns = ["Rank", "Stage", "busy, trace", "busy, ledger", "Δ", "exposed, trace", "exposed, ledger", "Δ"];
        let mut table = Table::new(columns).right(2..8);
        for (rank, agreements) in &self.agreements {
            for agreement in agreements {
                let [busy, exposed] = agreement.differences().map(difference);
                let name = agreement.stage.map_or("whole step".to_owned(), |stage| stage.to_string());
                let cells = [
                    rank.to_string(),
                    name,
                    ms(agreement.busy.0),
                    ms(agreement.busy.1),
                    busy,
                    ms(agreement.exposed.0),
                    ms(agreement.exposed.1),
                    exposed,
                ];
                if agreement.stage.is_none() { table.bold_row(cells) } else { table.row(cells) }
            }
        }
        text.push_str(&format!("\n\n{}", render(&table)));
        let least = format::percent(WORTH_COMPARING);
        text.push_str(&match self.largest_difference() {
            Some(largest) if largest.is_finite() => format!(
                "\n\nOf times that make {least} of a step or more, trace and ledger differ by {} at most.",
                format::percent(largest)
            ),
            Some(_) => {
                format!("\n\n**A time that makes {least} of a step or more is in the trace and not in the ledger.**")
            }
            None => "\n\nThe ledger has none of these steps.".to_owned(),
        });
        // The totals are of all steps of the attempt; the recorded ones are a few of them.
        text.extend(
            self.totals.as_ref().map(|totals| format!("\n\nMeasured, by the ledger: {}", totals_sentence(totals))),
        );
        text
    }

    fn host(&self, render: &dyn Fn(&Table) -> String) -> String {
        let columns =
            ["Operation", "mostly in", "calls per step", "own, ms per step", "of a step", "with calls, ms per step"];
        let mut table = Table::new(columns).right(2..6);
        for operation in self.operations.iter().take(MAX_ROWS) {
            table.row([
                code(&operation.name),
                operation.stage().to_owned(),
                self.per_step(operation.calls as f64, 1.0),
                self.per_step(operation.own as f64, 1e6),
                self.share(operation.own),
                self.per_step(operation.total as f64, 1e6),
            ]);
        }
        let all: i64 = self.operations.iter().map(|operation| operation.own).sum();
        let shown: i64 = self.operations.iter().take(MAX_ROWS).map(|operation| operation.own).sum();
        let rest = self.operations.len().saturating_sub(MAX_ROWS);
        let none = match self.operations.iter().take(MAX_ROWS).any(|operation| operation.name == NO_OPERATION) {
            true => format!(
                " `{NO_OPERATION}`: time of a stage outside of libtorch's operations, such as our own code and waiting."
            ),
            false => String::new(),
        };
        let more = match rest {
            0 => String::new(),
            _ => {
                format!(" {} more take {} of a step.", format::count(rest as u64, "operation"), self.share(all - shown))
            }
        };
        format!(
            "## Operations of the host by their own time\n\nMeasured; means over {} of all ranks together. Own: without \
             the operations that it calls.{none}{more}\n\n{}",
            format::count(self.steps, "step"),
            render(&table)
        )
    }

    /// The longest single call of each kind beside the sum of all calls of its name.
    fn longest_calls(&self, render: &dyn Fn(&Table) -> String) -> Option<String> {
        let call = longest_of_all(&self.longest)?;
        let columns = ["Of", "Operation", "longest, ms", "where", "calls", "all calls, ms"];
        let mut table = Table::new(columns).right([2, 4, 5]);
        for call in &self.longest {
            table.row([
                call.kind.words().to_owned(),
                code(&call.name),
                ms(call.ns as f64),
                call.location(),
                call.calls.to_string(),
                ms(call.total_ns as f64),
            ]);
        }
        Some(format!(
            "## Longest single calls\n\nMeasured; sums are over all ranks and recorded steps, of loader threads over all batches that the \
             trace holds. Longest single operation: {}.\n\n{}",
            longest_call(call),
            render(&table)
        ))
    }

    fn devices(&self, render: &dyn Fn(&Table) -> String) -> Vec<String> {
        if self.device_steps == 0 {
            return Vec::new();
        }
        let mut operations = Table::new(["Operation", "calls per step", "ms per step", "of a step"]).right(1..4);
        for (name, (calls, ns)) in self.device_operations.iter().take(MAX_ROWS) {
            let cells =
                [code(name), self.per_step(*calls as f64, 1.0), self.per_step(*ns as f64, 1e6), self.share(*ns)];
            operations.row(cells);
        }
        let mut copies =
            Table::new(["Copy", "smaller than", "copies per step", "MiB per step", "ms per step"]).right(1..5);
        for ((name, below), found) in &self.copies {
            copies.row([
                name.clone(),
                below.map_or_else(|| format::MISSING.to_owned(), |below| format::bytes(below as f64)),
                self.per_step(found.copies as f64, 1.0),
                self.per_step(found.bytes as f64, f64::from(1 << 20)),
                self.per_step(found.total as f64, 1e6),
            ]);
        }
        let idle_ns: i64 = self.idle.iter().map(|(_, idle)| idle.total).sum();
        let mut idle =
            Table::new(["The host was in", "at", "pauses per step", "ms per step", "of the pauses"]).right(2..5);
        for ((stage, operation), found) in self.idle.iter().take(MAX_ROWS) {
            let stage = if stage.is_empty() { "no stage" } else { stage };
            let operation = if operation.is_empty() { "no operation".to_owned() } else { code(operation) };
            idle.row([
                stage.to_owned(),
                operation,
                self.per_step(found.gaps as f64, 1.0),
                self.per_step(found.total as f64, 1e6),
                format::percent(found.total as f64 / idle_ns.max(1) as f64),
            ]);
        }
        vec![
            format!("## Operations of devices\n\nMeasured.\n\n{}", render(&operations)),
            format!("## Copies by size\n\nMeasured.\n\n{}", render(&copies)),
            format!(
                "## Pauses of devices\n\nDerived: pauses of 10 µs or more within steps, together {} of them, by what the \
                 thread of the steps did meanwhile.\n\n{}",
                format::percent(idle_ns as f64 / self.device_steps.max(1) as f64),
                render(&idle)
            ),
        ]
    }

    fn group(&self, render: &dyn Fn(&Table) -> String) -> Option<String> {
        let columns = ["Collective", "calls per step", "mean, ms", "longest, ms"];
        let mut table = Table::new(columns).right(1..4);
        for (name, found) in &self.collectives {
            table.row([
                code(name),
                self.per_step(found.calls as f64, 1.0),
                ms(found.total as f64 / found.calls.max(1) as f64),
                ms(found.longest as f64),
            ]);
        }
        let text = "## Collectives\n\nMeasured from hand-over to completion, beside what the step does meanwhile.";
        (!self.collectives.is_empty()).then(|| format!("{text}\n\n{}", render(&table)))
    }

    fn per_step(&self, value: f64, unit: f64) -> String {
        format::round(value / unit / self.steps.max(1) as f64, 3)
    }

    fn share(&self, ns: i64) -> String {
        format::percent(ns as f64 / self.wall.max(1) as f64)
    }
}

/// Milliseconds for a column of a table.
pub fn ms(ns: f64) -> String {
    format::milliseconds_in_column(ns)
}

fn difference(share: Option<f64>) -> String {
    share.map_or_else(
        || format::MISSING.to_owned(),
        |share| format!("{}{}", if share >= 0.0 { "+" } else { "" }, format::percent(share)),
    )
}

fn clocks(parts: &[TraceMeta]) -> String {
    let others: Vec<String> = parts
        .iter()
        .filter(|part| part.clock.offset_uncertainty_ns > 0)
        .map(|part| {
            let us = |ns: i64| format::round(ns as f64 / 1e3, 1);
            let clock = &part.clock;
            format!("rank {} by {} µs ± {} µs", part.rank, us(clock.offset_ns), us(clock.offset_uncertainty_ns))
        })
        .collect();
    let mut said = match others.is_empty() {
        true => "all ranks ran on one machine and share its clock".to_owned(),
        false => format!("shifted to that of rank 0 (measured): {}", others.join(", ")),
    };
    // Setting a clock shifts the rows of loader threads against those of operations.
    if let Some(part) = parts.iter().find(|part| part.clock.drift_ns.abs() > 50_000) {
        let ms = format::round(part.clock.drift_ns as f64 / 1e6, 3);
        said.push_str(&format!(
            "; that of rank {} was set by {ms} ms meanwhile: its loader rows are off by that",
            part.rank
        ));
    }
    said
}

/// `aten::mm`, 12.3 ms (rank 0, steps, step 8, in forward).
pub fn longest_call(call: &LongestCall) -> String {
    format!("{}, {} ms ({})", code(&call.name), format::milliseconds(call.ns as f64), call.location())
}

#[cfg(test)]
mod tests {
    use super::super::summary::LedgerAgreement;
    use super::*;

    #[test]
    fn differences_have_a_sign() {
        assert_eq!([Some(0.0123), Some(-0.05), None].map(difference), ["+1.2 %", "-5.0 %", format::MISSING]);
        let agreement = LedgerAgreement { stage: None, busy: (1.0, 1.0), exposed: (1.0, 1.0) };
        let summary = Summary { agreements: vec![(0, vec![agreement])], ..Summary::default() };
        let text = summary.markdown(7, "a-r1-0");
        assert!(text.contains("differ by 0.0 % at most") && !text.contains("## Collectives"), "{text}");
    }
}
