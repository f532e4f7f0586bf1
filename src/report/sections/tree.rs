use std::fmt::Write;

use expctl_record::Stage;

use super::isolation::{exposed, parts};
use crate::report::figures::Breakdown;
use crate::report::format::{self, MISSING};

/// A part of the step with its stages, as far as they happened.
struct Part {
    name: String,
    ns: f64,
    busy: f64,
    /// The stage that it is, where it is one.
    stage: Option<Stage>,
    stages: Vec<(Stage, f64, f64)>,
}

/// One line of the tree.
struct Line {
    branch: &'static str,
    name: String,
    /// Exposed time, µs.
    us: i64,
    /// Its share of the step, tenths of a percent.
    tenths: i64,
    busy: f64,
    stage: Option<Stage>,
}

/// The mean step as a tree of exposed times, with what was worked on each part (busy) beside them.
///
/// Times and shares are rounded so that the parts add up to the step, and the stages to their part, to the last digit.
pub(super) fn tree(head: &str, breakdown: &Breakdown) -> String {
    let lines = lines(breakdown);
    let most = lines.iter().filter(|line| line.stage.is_some_and(|stage| stage != Stage::Other) && line.us > 0);
    let bottleneck = most.max_by_key(|line| line.us).and_then(|line| line.stage);
    let width = |line: &Line| line.branch.chars().count() + line.name.chars().count();
    let width = lines.iter().map(width).chain([head.chars().count()]).max().unwrap_or(0) + 2;
    let column = |ms: &str, share: &str| format!("{ms:>12} ms/step  {:>9}", format!("({share})"));
    let mut out = format!("{head:<width$}{}", column(&format::milliseconds_in_column(breakdown.wall), "100.0 %"));
    for line in &lines {
        let name = format!("{}{}", line.branch, line.name);
        let share = if breakdown.wall > 0.0 { format::tenths(line.tenths) } else { MISSING.to_owned() };
        let _ = write!(out, "\n{name:<width$}{}", column(&format::microseconds(line.us), &share));
        if line.busy > 0.0 {
            let _ = write!(out, "  busy {:>10}", format::milliseconds_in_column(line.busy));
        }
        if line.stage.is_some() && line.stage == bottleneck {
            out.push_str("  ← most exposed time");
        }
    }
    out
}

fn lines(breakdown: &Breakdown) -> Vec<Line> {
    let found = found(breakdown);
    let (us, tenths) =
        (|ns: f64| ns / 1e3, |ns: f64| if breakdown.wall > 0.0 { ns / breakdown.wall * 1e3 } else { 0.0 });
    let of_parts = |unit: &dyn Fn(f64) -> f64| {
        let mut all: Vec<f64> = found.iter().map(|part| unit(part.ns)).collect();
        all.push(unit(breakdown.unattributed));
        format::apportioned(&all, unit(breakdown.wall).round() as i64)
    };
    let (part_us, part_tenths) = (of_parts(&us), of_parts(&tenths));
    let mut lines = Vec::new();
    for (at, part) in found.into_iter().enumerate() {
        let (whole_us, whole_tenths) = (part_us[at], part_tenths[at]);
        let Part { name, busy, stage, stages, .. } = part;
        lines.push(Line { branch: "├─ ", name, us: whole_us, tenths: whole_tenths, busy, stage });
        let of_stages = |unit: &dyn Fn(f64) -> f64, whole: i64| {
            format::apportioned(&stages.iter().map(|(_, ns, _)| unit(*ns)).collect::<Vec<_>>(), whole)
        };
        let (of_us, of_tenths) = (of_stages(&us, whole_us), of_stages(&tenths, whole_tenths));
        for (i, (stage, _, busy)) in stages.iter().enumerate() {
            let branch = if i + 1 == stages.len() { "│  └─ " } else { "│  ├─ " };
            let (name, stage) = (stage.name().to_owned(), Some(*stage));
            lines.push(Line { branch, name, us: of_us[i], tenths: of_tenths[i], busy: *busy, stage });
        }
    }
    let (us, tenths) = (part_us.last().copied().unwrap_or(0), part_tenths.last().copied().unwrap_or(0));
    lines.push(Line { branch: "└─ ", name: "unattributed".to_owned(), us, tenths, busy: 0.0, stage: None });
    lines
}

/// The parts that happened. One of which a single stage happened is that stage.
fn found(breakdown: &Breakdown) -> Vec<Part> {
    let busy = |stage: Stage| breakdown.busy.iter().find(|(of, _)| *of == stage).and_then(|(_, ns)| *ns).unwrap_or(0.0);
    let mut all = Vec::new();
    for (part, stages) in parts().into_iter().chain([("other", vec![Stage::Other])]) {
        let Some(ns) = exposed(breakdown, &stages) else { continue };
        let of = breakdown.exposed.iter().filter(|(stage, _)| stages.contains(stage));
        let happened: Vec<(Stage, f64, f64)> = of.filter_map(|(s, ns)| Some((*s, (*ns)?, busy(*s)))).collect();
        let work = happened.iter().map(|(_, _, busy)| busy).sum();
        let (name, stage, stages) = match happened[..] {
            [(stage, ..)] if stage.name() == part => (part.to_owned(), Some(stage), Vec::new()),
            [(stage, ..)] => (format!("{part} ({stage})"), Some(stage), Vec::new()),
            _ => (part.to_owned(), None, happened),
        };
        all.push(Part { name, ns, busy: work, stage, stages });
    }
    all
}

#[cfg(test)]
mod tests {
    use expctl_record::StepRecord;

    use super::*;

    #[test]
    fn children_add_up_to_their_parents_to_the_last_digit() {
        // Thirds of thirds: rounded by itself, each line would lose or gain.
        let mut step = StepRecord { wall_ns: 10_000_001, measured: true, ..StepRecord::default() };
        for (i, stage) in [Stage::Read, Stage::Decode, Stage::Mask, Stage::Forward, Stage::Clip].into_iter().enumerate()
        {
            step.exposed[stage] = 1_111_111 + i as u64 * 333;
        }
        step.exposed[Stage::Optimizer] = 777_777;
        let all = lines(&Breakdown::of([&step].into_iter()).unwrap());
        let top: Vec<&Line> = all.iter().filter(|line| !line.branch.starts_with('│')).collect();
        assert_eq!(top.iter().map(|line| line.tenths).sum::<i64>(), 1000);
        assert_eq!(top.iter().map(|line| line.us).sum::<i64>(), 10_000);
        for name in ["data pipeline", "optimizer"] {
            let at = all.iter().position(|line| line.name == name).unwrap();
            let under: Vec<&Line> = all[at + 1..].iter().take_while(|line| line.branch.starts_with('│')).collect();
            assert!(under.len() >= 2, "{name}");
            assert_eq!(under.iter().map(|line| line.tenths).sum::<i64>(), all[at].tenths, "{name}");
            assert_eq!(under.iter().map(|line| line.us).sum::<i64>(), all[at].us, "{name}");
        }
    }

    #[test]
    fn more_claimed_than_there_was_is_shown_below_zero() {
        let mut step = StepRecord { wall_ns: 1_000_000, measured: true, ..StepRecord::default() };
        step.exposed[Stage::Forward] = 1_100_000;
        let shown = tree("v", &Breakdown::of([&step].into_iter()).unwrap());
        assert!(shown.contains("├─ forward              1.100 ms/step  (110.0 %)  ← most exposed time"), "{shown}");
        assert!(shown.contains("└─ unattributed        -0.100 ms/step  (-10.0 %)"), "{shown}");
    }
}
