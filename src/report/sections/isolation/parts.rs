use expctl_record::{Mode, Stage};

use super::modes::{ByMode, MODES, data_stages};
use crate::report::Table;
use crate::report::figures::{Breakdown, completed_steps};
use crate::report::format::{self, MISSING};
use crate::stats::{Difference, mean};

/// Share of the wait in the mode data by which that of another mode must differ before loading is said to overlap.
const HIDDEN: f64 = 0.1;
/// The smallest shift of a difference that is said, ns.
const SHOWN: f64 = 1000.0;

/// A part of the step with the stages that it has.
pub(in crate::report::sections) fn parts() -> Vec<(&'static str, Vec<Stage>)> {
    vec![
        ("data pipeline", data_stages()),
        ("forward", vec![Stage::Forward]),
        ("backward", vec![Stage::Backward]),
        ("allreduce", vec![Stage::Allreduce]),
        ("optimizer", vec![Stage::Clip, Stage::Optimizer]),
    ]
}

/// What the step waited for these stages, ns; none if none of them happened.
pub(in crate::report::sections) fn exposed(breakdown: &Breakdown, stages: &[Stage]) -> Option<f64> {
    breakdown.exposed_in(stages)
}

/// What of the step is in none of the [`parts`], ns: the stage *other*, and what no stage claims.
pub(super) fn rest(breakdown: &Breakdown) -> f64 {
    breakdown.unattributed + exposed(breakdown, &[Stage::Other]).unwrap_or(0.0)
}

/// A part by difference of modes.
enum Derived {
    /// The step of the mode data, which is no difference.
    Measured(f64),
    /// What a mode takes more than the one before it that was run.
    Difference(Difference),
}

/// The parts as the stages have them, and as the differences of the modes have them, side by side.
pub(super) fn table(variant: &ByMode<'_>) -> Table {
    let mut table =
        Table::new(["Part", "Stages: ms/step", "ms/sample", "%", "Class", "Modes: ms/step", "ms/sample", "%", "Class"])
            .right([1, 2, 3, 5, 6, 7]);
    let whole = variant.whole();
    let (Some(breakdown), Some(total)) = (variant.breakdown(), mean(&variant.times(whole))) else { return table };
    let missing = || MISSING.to_owned();
    let per_sample = |ns: f64| breakdown.per_sample(ns).map_or_else(missing, format::milliseconds_in_column);

    let stages: Vec<(&str, Option<f64>)> =
        parts().into_iter().map(|(part, stages)| (part, exposed(&breakdown, &stages))).collect();
    let other = rest(&breakdown);
    let share = |ns: f64| format::share(ns, breakdown.wall);
    let derived = derived(variant);
    for (part, ns) in &stages {
        let by_mode = derived.iter().find(|(name, _)| name == part).map(|(_, value)| value);
        if ns.is_none() && by_mode.is_none() {
            continue;
        }
        let mut row = vec![(*part).to_owned()];
        row.extend(match ns {
            Some(ns) => [format::milliseconds_in_column(*ns), per_sample(*ns), share(*ns), "measured".to_owned()],
            None => [missing(), missing(), missing(), missing()],
        });
        row.extend(match by_mode {
            Some(value) => cells(value, total, &breakdown),
            None => [missing(), missing(), missing(), missing()],
        });
        table.row(row);
    }
    let mut row = vec!["other, unattributed".to_owned()];
    row.extend([format::milliseconds_in_column(other), per_sample(other), share(other), "derived".to_owned()]);
    row.extend([missing(), missing(), missing(), missing()]);
    table.row(row);
    let both =
        |ns: f64| [format::milliseconds_in_column(ns), per_sample(ns), "100.0 %".to_owned(), "measured".to_owned()];
    table.bold_row(["total".to_owned()].into_iter().chain(both(breakdown.wall)).chain(both(total)));
    table
}

fn cells(value: &Derived, total: f64, whole: &Breakdown) -> [String; 4] {
    let (ns, interval, class) = match value {
        Derived::Measured(ns) => (*ns, None, "measured"),
        Derived::Difference(difference) => (difference.value, difference.interval, "derived"),
    };
    let time = format::milliseconds_in_column;
    let shown = match interval {
        Some(interval) => format!("{} [{} to {}]", time(ns), time(interval.low), time(interval.high)),
        None => time(ns),
    };
    // A batch has as many samples in each mode.
    let per_sample = whole.per_sample(ns).map_or_else(|| MISSING.to_owned(), time);
    [shown, per_sample, format::percent(ns / total), class.to_owned()]
}

/// What each mode takes more than the one before it that was run, under the part that it adds.
fn derived(variant: &ByMode<'_>) -> Vec<(&'static str, Derived)> {
    let mut all = Vec::new();
    let mut before: Option<Mode> = None;
    let mut skipped = false;
    for (mode, part) in MODES {
        let Some(mean) = mean(&variant.times(mode)) else {
            skipped = true;
            continue;
        };
        match before {
            None => all.push((part, Derived::Measured(mean))),
            // Over a mode that was not run, the difference is of two parts.
            Some(_) if skipped => {}
            Some(before) => {
                all.extend(variant.difference(mode, before).map(|difference| (part, Derived::Difference(difference))));
            }
        }
        skipped = false;
        before = Some(mode);
    }
    all
}

/// What a step waits for loading in each mode that was run, and what that makes of the differences.
///
/// The cost of a part is its difference, and what the mode waits less than the one before it. That may be less than
/// nothing: loading and computing share the processors, so more of the step can make the wait longer.
fn overlap(variant: &ByMode<'_>) -> Option<String> {
    if variant.workers() == 0 {
        return Some("No loader threads: nothing overlaps, so both ways speak of the same work.".to_owned());
    }
    // Not the whole step of the mode data: what no stage claims is not loading.
    let waited = |mode: Mode| {
        let breakdown = Breakdown::of(completed_steps(variant.runs(mode)))?;
        Some(exposed(&breakdown, &data_stages()).unwrap_or(0.0))
    };
    let alone = waited(Mode::Data)?;
    let ms = format::milliseconds;
    let mut waits = Vec::new();
    let mut shifts: Vec<(&str, f64)> = Vec::new();
    let mut before: Option<f64> = None;
    for (mode, part) in MODES {
        let Some(now) = waited(mode) else {
            // Over a mode that was not run there is no difference to speak of.
            before = None;
            continue;
        };
        waits.push(format!("{} ms in {}", ms(now), mode.name()));
        shifts.extend(before.map(|before| (part, before - now)));
        before = Some(now);
    }
    let hides = shifts.iter().any(|(_, shift)| shift.abs() > alone * HIDDEN);
    let head = if hides { "Loading overlaps computing" } else { "Little overlaps" };
    let mut text = format!("{head}: a step waits for loading {} (exposed).", waits.join(", "));
    let said: Vec<String> = shifts
        .iter()
        .filter(|(_, shift)| shift.abs() >= SHOWN)
        .map(|(part, shift)| format!("{part} {} ms {}", ms(shift.abs()), if *shift > 0.0 { "more" } else { "less" }))
        .collect();
    if let Some(now) = waited(variant.whole()).filter(|now| alone - now >= SHOWN) {
        let whole = variant.whole().name();
        text.push_str(&format!(
            " Of the {} ms that data alone costs, {whole} waits {} ms: {} ms are hidden behind the rest of the step (derived).",
            ms(alone),
            ms(now),
            ms(alone - now)
        ));
    }
    if !said.is_empty() {
        text.push_str(&format!(
            " So the differences of the modes are not what the parts cost. Against its difference, a part costs: {}.",
            said.join(", ")
        ));
    }
    Some(text)
}

/// What the two ways say of each other, and what they cannot say.
pub(super) fn sentences(variant: &ByMode<'_>) -> Vec<String> {
    let mut all = Vec::new();
    let whole = variant.whole();
    let runs: Vec<String> = MODES
        .iter()
        .filter(|(mode, _)| !variant.runs(*mode).is_empty())
        .map(|(mode, _)| format!("{} {}", mode.name(), variant.runs(*mode).len()))
        .collect();
    all.push(format!("Stages: of the steps in mode {}. Runs: {}.", whole.name(), runs.join(", ")));
    all.extend(overlap(variant));
    let breakdown = Breakdown::of(completed_steps(variant.runs(Mode::ForwardBackward)));
    if let Some(ns) = breakdown.and_then(|b| exposed(&b, &[Stage::Allreduce])).filter(|ns| *ns > 0.0) {
        all.push(format!(
            "Gradients are exchanged wherever there is a backward pass: by difference, allreduce ({} ms, exposed) is in backward.",
            format::milliseconds(ns)
        ));
    }
    let open: Vec<&str> = derived(variant)
        .into_iter()
        .filter_map(|(part, value)| match value {
            Derived::Difference(Difference { interval: Some(i), .. }) if i.low <= 0.0 && i.high >= 0.0 => Some(part),
            _ => None,
        })
        .collect();
    if !open.is_empty() {
        all.push(format!("By difference not to be told from 0: {}.", open.join(", ")));
    }
    if MODES.iter().any(|(mode, _)| variant.runs(*mode).len() == 1) {
        all.push("n = 1 in a mode: its differences have no interval.".to_owned());
    }
    all
}
