//! A comparison of two traces as text.

use expctl_stats::{MIN_RUNS_FOR_VERDICT, MIN_SECONDS_FOR_VERDICT, MIN_STEPS_FOR_INTERVAL};
use expctl_text::Table;
use expctl_text::format::{self, code, missing};

use super::comparison::{ComparedTime, TraceComparison, TraceSide, WHOLE_STEP};
use super::summary_text::{MAX_ROWS, longest_call, ms};

/// How many times the seconds that a verdict needs are recommended: step times differ from one window to the next.
const SAFETY_FACTOR: f64 = 1.2;

impl TraceComparison<'_> {
    /// As text with a headline that names both sides; `render` writes the tables.
    pub fn text(&self, render: &dyn Fn(&Table) -> String) -> String {
        let mut parts = vec![format!("# Traces of {} and {}", self.base.name(), self.side.name()), self.head()];
        parts.push(format!(
            "## Stages\n\nExposed: what a step waits for the stage; busy: what is worked on it, over all threads of a rank.\n\n{}",
            render(&self.stage_table())
        ));
        parts.push(self.operation_section("## Operations of the host by their own time", &self.operations, render));
        if !self.device_operations.is_empty() {
            parts.push(self.operation_section("## Operations of devices", &self.device_operations, render));
        }
        parts.join("\n\n") + "\n"
    }

    fn head(&self) -> String {
        let mut lines: Vec<String> = [self.base, self.side].into_iter().map(recorded).collect();
        lines.push(
            "times (measured): ms per step, mean over the recorded steps, each the mean over the ranks that recorded it; difference \
             (derived): the second side less the first; × faster (derived): the first side's time over the second's, so above 1 is faster; \
             a profiler ran along on both sides, and its cost is in all of them"
                .to_owned(),
        );
        lines.extend(self.on_steps());
        lines.into_iter().map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n")
    }

    /// Limits that the number of recorded steps sets, and how to record more.
    fn on_steps(&self) -> Vec<String> {
        let [base, side] = self.steps();
        let more = "`--set profile.active=10` records ten steps, where `trace.at_step` is not set";
        let mut said = Vec::new();
        if let Some(few) = self.too_few() {
            let n = few.steps.len();
            let without = if n < 2 { "no interval and no verdict" } else { "no verdict" };
            said.push(format!(
                "{} recorded of {}: {without} ({MIN_RUNS_FOR_VERDICT} steps are needed on both sides); {more}",
                format::count(n as u64, "step"),
                few.name(),
            ));
        } else if let Some(short) = self.too_short() {
            let seconds = short.recorded_s();
            let needed = MIN_SECONDS_FOR_VERDICT * SAFETY_FACTOR / (seconds / short.steps.len() as f64);
            said.push(format!(
                "{} recorded of {}, which is less than {}: no verdict; `--set profile.active={:.0}` records enough",
                format::seconds(seconds),
                short.name(),
                format::seconds(MIN_SECONDS_FOR_VERDICT),
                needed.ceil(),
            ));
        }
        if base.min(side) >= 2 {
            let few = if base.min(side) < MIN_STEPS_FOR_INTERVAL {
                format!(
                    "; whether steps that follow each other are alike cannot be seen in fewer than {MIN_STEPS_FOR_INTERVAL}, and the \
                     intervals may be too narrow where they are"
                )
            } else {
                String::new()
            };
            said.push(format!(
                "n = {base} and {side} steps; intervals (95 %) and verdicts are of these windows and say nothing of other runs{few}"
            ));
        }
        said
    }

    /// Names of the two sides in the head of a column.
    fn columns(&self) -> [String; 2] {
        let (base, side) = (self.base, self.side);
        let name = |of: &TraceSide| match (base.job == side.job, base.label == side.label) {
            (true, _) => of.label.clone(),
            (false, true) => of.job.to_string(),
            (false, false) => format!("{} {}", of.job, of.label),
        };
        [name(base), name(side)]
    }

    fn stage_table(&self) -> Table {
        let [base, side] = self.columns();
        let mut table = Table::new([
            "Stage".to_owned(),
            format!("exposed, {base}"),
            format!("exposed, {side}"),
            "difference".to_owned(),
            "× faster".to_owned(),
            "verdict".to_owned(),
            format!("busy, {base}"),
            format!("busy, {side}"),
        ])
        .right([1, 2, 3, 4, 6, 7]);
        for time in &self.stages {
            let busy = |at: usize| time.busy_ns.map_or_else(missing, |ns| ms(ns[at]));
            let [of_base, of_side, difference, ratio, verdict] = self.cells(time);
            let cells = [time.name.clone(), of_base, of_side, difference, ratio, verdict, busy(0), busy(1)];
            if time.name == WHOLE_STEP { table.bold_row(cells) } else { table.row(cells) }
        }
        table
    }

    fn operation_section(&self, heading: &str, times: &[ComparedTime], render: &dyn Fn(&Table) -> String) -> String {
        let [base, side] = self.columns();
        let mut table = Table::new([
            "Operation".to_owned(),
            "mostly in".to_owned(),
            format!("calls, {base}"),
            format!("calls, {side}"),
            format!("ms, {base}"),
            format!("ms, {side}"),
            "difference".to_owned(),
            "× faster".to_owned(),
            "verdict".to_owned(),
        ])
        .right([2, 3, 4, 5, 6, 7]);
        for time in times.iter().take(MAX_ROWS) {
            let calls = |at: usize| time.calls.map_or_else(missing, |calls| format::round(calls[at], 1));
            let [of_base, of_side, difference, ratio, verdict] = self.cells(time);
            let stage = time.stage.clone().unwrap_or_default();
            table.row([code(&time.name), stage, calls(0), calls(1), of_base, of_side, difference, ratio, verdict]);
        }
        let rest = times.get(MAX_ROWS..).unwrap_or_default();
        let sum = |of: fn(&ComparedTime) -> Option<f64>| ms(rest.iter().filter_map(of).sum());
        let more = match rest.len() {
            0 => String::new(),
            n => format!(
                " {} more take {} ms and {} ms per step.",
                format::count(n as u64, "operation"),
                sum(|time| time.base_ns),
                sum(|time| time.side_ns)
            ),
        };
        format!(
            "{heading}\n\nPer step; the operation that takes longer on either side first. – : it was not called there.{more}\n\n{}",
            render(&table)
        )
    }

    /// Times of both sides, difference, ratio and verdict.
    fn cells(&self, time: &ComparedTime) -> [String; 5] {
        let difference = time.compared.map(|found| found.difference);
        let difference = difference.map_or_else(missing, |found| match found.interval {
            Some(i) => format!("{} [{} to {}]", signed(found.value), signed(i.low), signed(i.high)),
            None => signed(found.value),
        });
        let ratio = time.compared.and_then(|found| found.ratio);
        let [base, side] = self.columns();
        let verdict = match (time.base_ns, time.side_ns, time.verdict) {
            (Some(_), None, _) => format!("only in {base}"),
            (None, Some(_), _) => format!("only in {side}"),
            (.., Some(verdict)) => verdict.words().to_owned(),
            _ => missing(),
        };
        [
            time.base_ns.map_or_else(missing, ms),
            time.side_ns.map_or_else(missing, ms),
            difference,
            ratio.as_ref().map_or_else(missing, format::times_as_fast),
            verdict,
        ]
    }
}

/// Steps, seconds and trials that were recorded of a side.
fn recorded(side: &TraceSide) -> String {
    let mut said = format!(
        "{} ({}): {} recorded, {}, of {} {}",
        side.name(),
        side.method,
        format::count(side.steps.len() as u64, "step"),
        format::seconds(side.recorded_s()),
        if side.trials.len() == 1 { "trial" } else { "trials" },
        side.trials.join(", "),
    );
    if let Some(call) = &side.longest {
        said.push_str(&format!("; longest single operation {}", longest_call(call)));
    }
    said
}

fn signed(ns: f64) -> String {
    format!("{}{}", if ns >= 0.0 { "+" } else { "" }, ms(ns))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use expctl_ledger::Stage;

    use super::super::step_times::{CallTime, StepFigures};
    use super::*;

    fn side(job: u64, label: &str, walls: &[f64], operation: &str) -> TraceSide {
        let step = |ms: &f64| {
            let mut figures = StepFigures { ranks: 1, wall: ms * 1e6, ..StepFigures::default() };
            figures.exposed[Stage::Forward] = ms * 1e6;
            figures.busy[Stage::Forward] = ms * 1e6;
            figures.operations = BTreeMap::from([(operation.to_owned(), CallTime { calls: 3.0, ns: ms * 1e6 })]);
            figures
        };
        let (label, method) = (label.to_owned(), "Lazy".to_owned());
        let trials = vec![format!("{label}-r1-0a1b2c")];
        TraceSide { job, label, method, trials, steps: walls.iter().map(step).collect(), ..TraceSide::default() }
    }

    fn rendered(base: &TraceSide, side: &TraceSide) -> String {
        TraceComparison::new(base, side).text(&Table::markdown)
    }

    #[test]
    fn a_comparison_says_what_it_rests_on() {
        let (base, other) = (
            side(20, "lazy", &[400.0, 410.0, 390.0], "aten::mm"),
            side(21, "lazy", &[800.0, 820.0, 780.0], "aten::mm"),
        );
        let text = rendered(&base, &other);
        for said in [
            "# Traces of job 20 lazy and job 21 lazy",
            "- job 21 lazy (Lazy): 3 steps recorded, 2.4 s, of trial lazy-r1-0a1b2c",
            "- n = 3 and 3 steps; intervals (95 %) and verdicts are of these windows",
            "cannot be seen in fewer than 50",
            "| Stage | exposed, 20 | exposed, 21 | difference | × faster | verdict | busy, 20 | busy, 21 |",
            "| **whole step** | **400.000** | **800.000** | **+400.000 [",
            "(2.00× slower)** | **slower** |",
            "| `aten::mm` |  | 3.0 | 3.0 | 400.000 | 800.000 | +400.000 [",
        ] {
            assert!(text.contains(said), "{said}\n{text}");
        }
        assert!(!text.contains("no verdict"), "{text}");
    }

    #[test]
    fn few_steps_say_how_to_record_more() {
        let (one, three) =
            (side(20, "lazy", &[1400.0], "aten::mm"), side(20, "dango", &[400.0, 410.0, 390.0], "aten::add"));
        let text = rendered(&one, &three);
        for said in [
            "- 1 step recorded of job 20 lazy: no interval and no verdict (3 steps are needed on both sides); `--set profile.active=10` records",
            "| forward | 1400.000 | 400.000 | -1000.000 | 3.50× | too few steps | 1400.000 | 400.000 |",
            "| `aten::mm` |  | 3.0 | 0.0 | 1400.000 | – | -1400.000 | – | only in lazy |",
            "| only in dango |",
        ] {
            assert!(text.contains(said), "{said}\n{text}");
        }
        assert!(!text.contains("n = "), "{text}");
        let short = side(20, "ids", &[20.0, 21.0, 19.0], "aten::mm");
        let text = rendered(&three, &short);
        let said = "- 60 ms recorded of job 20 ids, which is less than 1 s: no verdict; `--set profile.active=60` records enough";
        assert!(text.contains(said) && text.contains("recorded too briefly"), "{text}");
    }
}
