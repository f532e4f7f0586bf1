//! The mean step of each variant: a tree of exposed times, and a table of exposed and busy times by stage.

use std::fmt::Write;

use expctl_ledger::{MeasuredJob, RunTotals, Stage};
use expctl_text::Table;
use expctl_text::format::{self, MISSING};

use super::TitledTable;
use crate::ledger::totals_sentence;
use crate::report::breakdown::{Breakdown, Closure, step_parts};
use crate::report::emulation::Emulation;
use crate::report::rates::completed_steps;

/// Explanation of the columns for steps on a GPU.
const ON_DEVICE: &str = "Device (measured): time between two events of the GPU around a stage's work, by the GPU's clock and in the order \
    of its stream. The host hands work over and goes on: busy of a stage of the step is the host's time for that, exposed the GPU's.";

/// The mean step of each variant with a completed run.
pub fn breakdowns(job: &MeasuredJob) -> Vec<TitledTable> {
    job.by_label()
        .into_iter()
        .filter_map(|(label, runs)| {
            let breakdown = Breakdown::from_steps(completed_steps(&runs))?;
            let n = runs.iter().filter(|run| run.completed()).count();
            let tree = step_tree(&format!("{label}, n = {n}"), &breakdown);
            let table = format!(
                "```\n{tree}\n```\n\n<details>\n<summary>Exposed and busy times by stage</summary>\n\n{}\n\n</details>",
                table(&breakdown).markdown()
            );
            let mut said = sentences(&breakdown);
            let emulation = Emulation::from_runs(&runs);
            let used = emulation.as_ref().and_then(|emulation| emulation.utilisation.as_ref());
            said.extend(emulation.as_ref().map(|emulation| format!("*forward*: {}.", emulation.sentence())));
            said.extend(used.map(|used| format!("Accelerator utilisation (derived): {}.", used.words())));
            said.extend(RunTotals::from_runs(&runs).map(|totals| totals_sentence(&totals)));
            Some(TitledTable { label, table, sentence: said.join(" ") })
        })
        .collect()
}

fn table(breakdown: &Breakdown) -> Table {
    let mut names = vec!["Stage", "Exposed (ms/step)", "Exposed (%)", "Busy (ms/step)"];
    names.extend(breakdown.device.as_ref().map(|_| "Device (ms/step)"));
    names.push("Busy (ms/sample)");
    let columns = names.len();
    let mut table = Table::new(names).right(1..columns);
    let share = |ns: f64| format::share(ns, breakdown.wall);
    let time = |ns: Option<f64>| ns.map_or_else(|| MISSING.to_owned(), format::milliseconds_in_column);
    let per_sample = |ns: Option<f64>| time(ns.and_then(|ns| breakdown.per_sample(ns)));
    let mut device = breakdown.device.iter().flatten().map(|(_, ns)| time(*ns));
    for ((stage, exposed), (_, busy)) in breakdown.exposed.iter().zip(&breakdown.busy) {
        let on_device = device.next();
        // The tree has no line for it either.
        if exposed.is_none() && busy.is_none() && on_device.as_deref().is_none_or(|time| time == MISSING) {
            continue;
        }
        let of_step = exposed.map_or_else(|| MISSING.to_owned(), share);
        let cells = [stage.name().to_owned(), time(*exposed), of_step, time(*busy)];
        table.row(cells.into_iter().chain(on_device).chain([per_sample(*busy)]));
    }
    let open = breakdown.unattributed;
    let cells = ["unattributed".to_owned(), format::milliseconds_in_column(open), share(open), MISSING.to_owned()];
    let device = breakdown.device.as_ref().map(|_| MISSING.to_owned());
    table.row(cells.into_iter().chain(device).chain([MISSING.to_owned()]));
    let sum = |times: &[(Stage, Option<f64>)]| -> f64 { times.iter().filter_map(|(_, ns)| *ns).sum() };
    let cells = [
        "step".to_owned(),
        format::milliseconds_in_column(breakdown.wall),
        "100.0 %".to_owned(),
        format::milliseconds_in_column(sum(&breakdown.busy)),
    ];
    let device = breakdown.device.as_deref().map(|times| format::milliseconds_in_column(sum(times)));
    table.bold_row(cells.into_iter().chain(device).chain([per_sample(Some(sum(&breakdown.busy)))]));
    table
}

fn sentences(breakdown: &Breakdown) -> Vec<String> {
    let mut said = vec![format!("Mean of {}.", format::count(breakdown.steps, "step"))];
    said.extend(breakdown.device.is_some().then(|| ON_DEVICE.to_owned()));
    said.extend(loader_sentence(breakdown));
    said.extend(loading_sentence(breakdown));
    said.extend(closure(breakdown));
    said
}

/// Busy and exposed time of the loader.
fn loader_sentence(breakdown: &Breakdown) -> Option<String> {
    let of = |times: &[(Stage, Option<f64>)]| -> f64 {
        times.iter().filter(|(stage, _)| Stage::LOADER.contains(stage)).filter_map(|(_, ns)| *ns).sum()
    };
    let (busy, waited) = (of(&breakdown.busy), of(&breakdown.exposed));
    (busy > 0.0).then(|| {
        format!(
            "The loader's stages: {} ms of work a step, summed over threads; the step waited {} ms for them.",
            format::milliseconds(busy),
            format::milliseconds(waited)
        )
    })
}

/// Loading in a step that also computes.
fn loading_sentence(breakdown: &Breakdown) -> Option<String> {
    let share = loading_share(breakdown)?;
    let last = if breakdown.exposed_in(&[Stage::Pin]).is_some() { Stage::Pin } else { Stage::Collate };
    Some(format!("Loading (sample to {last}) is {} of a step.", format::percent(share)))
}

/// Exposed loading as a share of a step that also computes; `None` for a step without a model.
pub(super) fn loading_share(breakdown: &Breakdown) -> Option<f64> {
    let computes = [Stage::Forward, Stage::Backward].into_iter().any(|stage| breakdown.exposed_in(&[stage]).is_some());
    let waited = breakdown.exposed_in(&Stage::LOADER).unwrap_or(0.0);
    (breakdown.wall > 0.0 && computes).then(|| waited / breakdown.wall)
}

/// The closure check, with advice if it fails.
fn closure(breakdown: &Breakdown) -> Option<String> {
    match breakdown.closure() {
        Closure::Closed => None,
        Closure::Open(share) => Some(format!(
            "{} of the step time is not covered by any stage. Shares of stages hold all the same; what is missing is work \
             between the timers, or a process that was not scheduled: look at the load of the node, and at more ranks or threads than CPUs.",
            format::percent(share)
        )),
        Closure::Overlap(sum) => Some(format!(
            "Stages overlap or were counted twice: they add up to {} of the step, so unattributed is below zero and no share holds.",
            format::percent(sum)
        )),
    }
}

/// A part of the step with its stages that happened.
struct TreePart {
    name: String,
    ns: f64,
    busy: f64,
    /// Its stage, if it has only one.
    stage: Option<Stage>,
    stages: Vec<(Stage, f64, f64)>,
}

/// One line of the tree.
struct TreeLine {
    branch: &'static str,
    name: String,
    /// Exposed time.
    ns: f64,
    busy: f64,
    stage: Option<Stage>,
}

/// The mean step as a tree of exposed times, with busy times beside them.
///
/// Each time and share is rounded by itself, as in every other section, so the same figure has the same digits there.
pub(super) fn step_tree(head: &str, breakdown: &Breakdown) -> String {
    let lines = tree_lines(breakdown);
    let bottleneck = breakdown.most_exposed().map(|(stage, _)| stage);
    let width = |line: &TreeLine| line.branch.chars().count() + line.name.chars().count();
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

fn tree_lines(breakdown: &Breakdown) -> Vec<TreeLine> {
    let mut lines = Vec::new();
    for TreePart { name, ns, busy, stage, stages } in tree_parts(breakdown) {
        lines.push(TreeLine { branch: "├─ ", name, ns, busy, stage });
        for (i, (stage, ns, busy)) in stages.iter().enumerate() {
            let branch = if i + 1 == stages.len() { "│  └─ " } else { "│  ├─ " };
            lines.push(TreeLine { branch, name: stage.name().to_owned(), ns: *ns, busy: *busy, stage: Some(*stage) });
        }
    }
    let ns = breakdown.unattributed;
    lines.push(TreeLine { branch: "└─ ", name: "unattributed".to_owned(), ns, busy: 0.0, stage: None });
    lines
}

/// The parts that happened. A part with a single stage is shown as that stage.
fn tree_parts(breakdown: &Breakdown) -> Vec<TreePart> {
    let busy = |stage: Stage| breakdown.busy.iter().find(|(of, _)| *of == stage).and_then(|(_, ns)| *ns).unwrap_or(0.0);
    let mut all = Vec::new();
    for (part, stages) in step_parts().into_iter().chain([("other", vec![Stage::Other])]) {
        let Some(ns) = breakdown.exposed_in(&stages) else { continue };
        let of = breakdown.exposed.iter().filter(|(stage, _)| stages.contains(stage));
        let happened: Vec<(Stage, f64, f64)> = of.filter_map(|(s, ns)| Some((*s, (*ns)?, busy(*s)))).collect();
        let work = happened.iter().map(|(_, _, busy)| busy).sum();
        let (name, stage, stages) = match happened[..] {
            [(stage, ..)] if stage.name() == part => (part.to_owned(), Some(stage), Vec::new()),
            [(stage, ..)] => (format!("{part} ({stage})"), Some(stage), Vec::new()),
            _ => (part.to_owned(), None, happened),
        };
        all.push(TreePart { name, ns, busy: work, stage, stages });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_ledger::StepRecord;

    fn said(exposed: &[(Stage, u64)]) -> Option<String> {
        let mut step = StepRecord { wall_ns: 1000, measured: true, ..StepRecord::default() };
        exposed.iter().for_each(|(stage, ns)| step.exposed[*stage] = *ns);
        loading_sentence(&Breakdown::from_steps([&step].into_iter()).unwrap())
    }

    #[test]
    fn loading_is_a_share_of_steps_with_a_model() {
        let data =
            [(Stage::Sample, 10), (Stage::Read, 90), (Stage::Decode, 40), (Stage::Collate, 60), (Stage::Other, 5)];
        assert_eq!(said(&data), None);
        let with = |more: &[(Stage, u64)]| said(&[&data[..], more].concat());
        assert_eq!(with(&[(Stage::Forward, 300)]).unwrap(), "Loading (sample to collate) is 20.0 % of a step.");
        let pinned = with(&[(Stage::Backward, 300), (Stage::Pin, 50)]).unwrap();
        assert_eq!(pinned, "Loading (sample to pin) is 25.0 % of a step.");
    }

    /// Exposed times of a step of 10 ms, µs.
    fn shown(exposed: &[(Stage, u64)]) -> String {
        let mut step = StepRecord { wall_ns: 10_000_000, measured: true, ..StepRecord::default() };
        exposed.iter().for_each(|(stage, us)| step.exposed[*stage] = us * 1000);
        step_tree("v", &Breakdown::from_steps([&step].into_iter()).unwrap())
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
        let shown = step_tree("v", &Breakdown::from_steps([&step].into_iter()).unwrap());
        assert!(shown.contains("├─ forward              1.100 ms/step  (110.0 %)  ← most exposed time"), "{shown}");
        assert!(shown.contains("└─ unattributed        -0.100 ms/step  (-10.0 %)"), "{shown}");
    }
}
