use super::modes::{ByMode, MODES};
use crate::ledger::setting_text;
use crate::report::Table;
use crate::report::compare::Line;
use crate::report::format::{self, MISSING};
use crate::report::sections::Results;
use crate::stats::Verdict;

/// How fast each variant is in each mode, against the baseline in the same mode; with it what may be said.
///
/// Ratios and verdicts are those of `results`, so that a note says one thing of a ratio: paired where trials took turns, and judged
/// among all ratios of the job.
pub(super) fn rates(results: &Results<'_>, variants: &[ByMode<'_>]) -> (Table, Vec<String>) {
    let mut table =
        Table::new(["Mode", "Variant", "it/s", "samples/s", "× faster (it/s)", "× faster (samples/s)", "n"])
            .right([2, 3, 6]);
    let mut verdicts = Vec::new();
    let missing = || MISSING.to_owned();
    for (mode, _) in MODES {
        for variant in variants {
            let Some(run) = variant.runs(mode).first() else { continue };
            let point = run.trial.point.iter().map(|(key, value)| (key.clone(), setting_text(value))).collect();
            let here = |line: &&Line| line.row.variant == variant.variant && line.row.point == point;
            let Some(line) = results.lines().find(here) else { continue };
            let row = &line.row;
            let across = if line.across() { " †" } else { "" };
            let [by_it, by_sample] = [line.ratio_it_per_s, line.ratio_samples_per_s].map(|ratio| match ratio {
                _ if line.baseline => "baseline".to_owned(),
                Some(ratio) => format!("{}{across}", format::times_as_fast(&ratio)),
                None => missing(),
            });
            let cells = [
                mode.name().to_owned(),
                variant.label.clone(),
                row.median_it_per_s().map_or_else(missing, format::rate),
                row.median_samples_per_s().map_or_else(missing, format::rate),
                by_it,
                by_sample,
                row.n.to_string(),
            ];
            if line.baseline {
                table.bold_row(cells)
            } else {
                table.row(cells)
            }
            verdicts.extend(said(line).map(|said| format!("{}, {}: {said}", mode.name(), variant.label)));
        }
    }
    (table, verdicts)
}

/// What may be said of a ratio, behind the name of its row; none without a verdict in words.
fn said(line: &Line) -> Option<String> {
    let open = [Verdict::TooFewRuns, Verdict::TooShort];
    let verdict = line.verdict.filter(|verdict| !open.contains(verdict))?;
    let (base, ratio, (n, base_n)) = (line.base.as_ref()?, line.ratio_samples_per_s?, line.runs?);
    let runs = if line.paired { format!("{n} pairs, by repeat") } else { format!("n = {n} and {base_n}") };
    let lone = if line.lone { "; alone it would have had a verdict, among so many ratios it has none" } else { "" };
    let ratio = format::times_as_fast(&ratio);
    Some(format!("{} {}, {ratio} in samples/s ({runs}){lone}", verdict.against(), base.variant))
}
