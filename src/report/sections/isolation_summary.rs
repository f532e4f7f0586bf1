//! All variants at one point of a sweep beside each other, by parts of the step of one mode.

use expctl_ledger::{Run, Stage};
use expctl_settings::Mode;
use expctl_stats::ratio;
use expctl_text::Table;
use expctl_text::format::{self, MISSING};

use super::isolation::VariantByMode;
use crate::report::breakdown::{Breakdown, ISOLATION_MODES, data_stages};
use crate::report::rates::completed_steps;

/// A table of all variants at one point of a sweep.
pub(super) struct Summary {
    /// Mode and point.
    pub of: String,
    /// The parts of the step as rows.
    pub table: Table,
}

/// Subject of a row.
enum SummaryPart {
    Stages(Vec<Stage>),
    Unattributed,
    Step,
}

struct SummaryLine {
    name: String,
    part: SummaryPart,
}

/// A variant's steps in the mode that is shown.
struct VariantColumn<'a> {
    variant: &'a VariantByMode<'a>,
    breakdown: Breakdown,
    /// Breakdown of each run.
    runs: Vec<Breakdown>,
}

/// A table for each point of the sweep, of the longest mode that all its variants completed. All times are exposed times measured in that
/// mode.
pub(super) fn summaries(baseline: Option<&str>, variants: &[VariantByMode<'_>]) -> Vec<Summary> {
    let mut points: Vec<&[(String, String)]> = Vec::new();
    for variant in variants {
        if !points.contains(&variant.point.as_slice()) {
            points.push(&variant.point);
        }
    }
    let at = |point: &[(String, String)]| {
        let there: Vec<&VariantByMode<'_>> = variants.iter().filter(|variant| variant.point == point).collect();
        summary(baseline, point, &there)
    };
    points.into_iter().filter_map(at).collect()
}

fn summary(baseline: Option<&str>, point: &[(String, String)], variants: &[&VariantByMode<'_>]) -> Option<Summary> {
    let all_ran = |mode: &Mode| variants.iter().all(|variant| !variant.runs(*mode).is_empty());
    let mode = ISOLATION_MODES.iter().rev().map(|(mode, _)| *mode).find(all_ran)?;
    let columns: Vec<VariantColumn<'_>> = variants.iter().filter_map(|variant| column(variant, mode)).collect();
    let named = baseline.or_else(|| Some(columns.first()?.variant.variant.as_str()));
    let base = columns.iter().find(|column| Some(column.variant.variant.as_str()) == named);
    let lines: Vec<SummaryLine> = lines(&columns);
    let shares = base.map(|base| shares(&lines, &base.breakdown));

    let mut header = vec!["Component".to_owned()];
    let mut right = Vec::new();
    for column in &columns {
        let name = &column.variant.variant;
        right.extend([header.len(), header.len() + 1]);
        header.extend([format!("{name}: ms/step"), format!("{name}: ms/sample")]);
        if let Some(base) = base.filter(|base| !is_same(base, column)) {
            header.push(format!("{name} vs {}: × faster (ms/sample)", base.variant.variant));
        }
    }
    if let Some(base) = base {
        right.push(header.len());
        header.push(format!("% of {}", base.variant.variant));
    }
    let mut table = Table::new(header).right(right);
    for (i, line) in lines.iter().enumerate() {
        let mut row = vec![line.name.clone()];
        for column in &columns {
            let ns = time(&column.breakdown, &line.part);
            let shown = |ns: Option<f64>| ns.map_or_else(|| MISSING.to_owned(), format::milliseconds_in_column);
            row.extend([shown(ns), shown(ns.and_then(|ns| column.breakdown.per_sample(ns)))]);
            if let Some(base) = base.filter(|base| !is_same(base, column)) {
                // Times: the baseline's over the column's is how many times as fast.
                let found = ratio(&per_sample(base, &line.part), &per_sample(column, &line.part));
                row.push(found.map_or_else(|| MISSING.to_owned(), |found| format::times_as_fast(&found)));
            }
        }
        row.extend(shares.as_ref().map(|shares| shares[i].clone()));
        if matches!(line.part, SummaryPart::Step) { table.bold_row(row) } else { table.row(row) }
    }
    let runs: Vec<String> = columns.iter().map(|c| format!("{} n = {}", c.variant.variant, c.runs.len())).collect();
    let swept: Vec<String> = point.iter().map(|(key, value)| format!("{key} = {value}, ")).collect();
    Some(Summary { of: format!("mode {}, {}{}", mode.name(), swept.concat(), runs.join(", ")), table })
}

fn is_same(one: &VariantColumn<'_>, other: &VariantColumn<'_>) -> bool {
    one.variant.variant == other.variant.variant
}

fn column<'a>(variant: &'a VariantByMode<'a>, mode: Mode) -> Option<VariantColumn<'a>> {
    let of = |runs: &[&Run]| Breakdown::from_steps(completed_steps(runs)).filter(|of| of.samples > 0.0);
    let runs = variant.runs(mode);
    Some(VariantColumn { variant, breakdown: of(runs)?, runs: runs.iter().filter_map(|run| of(&[*run])).collect() })
}

/// The rows that some variant has a time for: the parts of the step, two of them with their stages.
fn lines(columns: &[VariantColumn<'_>]) -> Vec<SummaryLine> {
    let happened = |stages: &[Stage]| columns.iter().any(|column| column.breakdown.exposed_in(stages).is_some());
    let parts = [
        ("data pipeline", data_stages(), true),
        ("model compute", vec![Stage::Forward, Stage::Backward], true),
        ("allreduce", vec![Stage::Allreduce], false),
        ("optimizer", vec![Stage::Clip, Stage::Optimizer], false),
    ];
    let mut all = Vec::new();
    for (name, stages, opened) in parts.into_iter().filter(|(_, stages, _)| happened(stages)) {
        let within: Vec<Stage> = stages.iter().copied().filter(|stage| opened && happened(&[*stage])).collect();
        all.push(SummaryLine { name: name.to_owned(), part: SummaryPart::Stages(stages) });
        for (i, stage) in within.iter().enumerate() {
            let branch = if i + 1 == within.len() { "└─" } else { "├─" };
            let name = format!("{branch} {}", stage.name());
            all.push(SummaryLine { name, part: SummaryPart::Stages(vec![*stage]) });
        }
    }
    all.push(SummaryLine { name: "other, unattributed".to_owned(), part: SummaryPart::Unattributed });
    all.push(SummaryLine { name: "total".to_owned(), part: SummaryPart::Step });
    all
}

fn time(breakdown: &Breakdown, part: &SummaryPart) -> Option<f64> {
    match part {
        SummaryPart::Stages(stages) => breakdown.exposed_in(stages),
        SummaryPart::Unattributed => Some(breakdown.rest()),
        SummaryPart::Step => Some(breakdown.wall),
    }
}

/// Time of a part for a sample, ns, a value for each run that has the part.
fn per_sample(column: &VariantColumn<'_>, part: &SummaryPart) -> Vec<f64> {
    column.runs.iter().filter_map(|run| run.per_sample(time(run, part)?)).collect()
}

/// The share of each row in the baseline's step.
fn shares(lines: &[SummaryLine], base: &Breakdown) -> Vec<String> {
    let share = |line: &SummaryLine| {
        time(base, &line.part).map_or_else(|| MISSING.to_owned(), |ns| format::share(ns, base.wall))
    };
    lines.iter().map(share).collect()
}
