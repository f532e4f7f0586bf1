use std::fmt::Write;

use expctl_record::Stage;

use super::isolation::{exposed, parts};
use crate::report::figures::Breakdown;
use crate::report::format;

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
    /// Exposed time.
    ns: f64,
    busy: f64,
    stage: Option<Stage>,
}

/// The mean step as a tree of exposed times, with what was worked on each part (busy) beside them.
///
/// Each time and share is rounded by itself, as in every other section, so the same figure has the same digits there.
pub(super) fn tree(head: &str, breakdown: &Breakdown) -> String {
    let lines = lines(breakdown);
    let bottleneck = breakdown.most_exposed().map(|(stage, _)| stage);
    let width = |line: &Line| line.branch.chars().count() + line.name.chars().count();
    let width = lines.iter().map(width).chain([head.chars().count()]).max().unwrap_or(0) + 2;
    let column = |ms: &str, share: &str| format!("{ms:>12} ms/step  {:>9}", format!("({share})"));
    let mut out = format!("{head:<width$}{}", column(&format::milliseconds_in_column(breakdown.wall), "100.0 %"));
    for line in &lines {
        let name = format!("{}{}", line.branch, line.name);
        let share = format::share(line.ns, breakdown.wall);
        let _ = write!(out, "\n{name:<width$}{}", column(&format::milliseconds_in_column(line.ns), &share));
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
    let mut lines = Vec::new();
    for Part { name, ns, busy, stage, stages } in found(breakdown) {
        lines.push(Line { branch: "├─ ", name, ns, busy, stage });
        for (i, (stage, ns, busy)) in stages.iter().enumerate() {
            let branch = if i + 1 == stages.len() { "│  └─ " } else { "│  ├─ " };
            lines.push(Line { branch, name: stage.name().to_owned(), ns: *ns, busy: *busy, stage: Some(*stage) });
        }
    }
    let ns = breakdown.unattributed;
    lines.push(Line { branch: "└─ ", name: "unattributed".to_owned(), ns, busy: 0.0, stage: None });
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

    /// Exposed times of a step of 10 ms, µs.
    fn shown(exposed: &[(Stage, u64)]) -> String {
        let mut step = StepRecord { wall_ns: 10_000_000, measured: true, ..StepRecord::default() };
        exposed.iter().for_each(|(stage, us)| step.exposed[*stage] = us * 1000);
        tree("v", &Breakdown::of([&step].into_iter()).unwrap())
    }

    #[test]
    fn a_stage_is_rounded_by_itself() {
        // Thirds of a part: by largest remainder one of them would be 33.4 %.
        let text = shown(&[(Stage::Read, 3_333), (Stage::Decode, 3_333), (Stage::Mask, 3_334)]);
        for line in ["├─ data pipeline", "│  ├─ read", "│  ├─ decode", "│  └─ mask"].into_iter().zip([
            "10.000 ms/step  (100.0 %)",
            "3.333 ms/step   (33.3 %)",
            "3.333 ms/step   (33.3 %)",
            "3.334 ms/step   (33.3 %)",
        ]) {
            let (name, figures) = line;
            assert!(text.lines().any(|l| l.starts_with(name) && l.contains(figures)), "{name}: {text}");
        }
    }

    #[test]
    fn the_arrow_is_at_the_stage_with_the_most_exposed_time_even_if_that_is_other() {
        let arrow = |text: &str| text.lines().find(|l| l.contains("← most exposed time")).unwrap().to_owned();
        let other = shown(&[(Stage::Decode, 1_990), (Stage::Forward, 1_000), (Stage::Other, 6_060)]);
        assert!(arrow(&other).starts_with("├─ other") && other.matches('←').count() == 1, "{other}");
        let decode = shown(&[(Stage::Decode, 6_060), (Stage::Read, 1_000), (Stage::Other, 1_990)]);
        assert!(arrow(&decode).starts_with("│  └─ decode"), "{decode}");
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
