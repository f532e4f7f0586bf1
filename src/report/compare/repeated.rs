use serde::Serialize;

use super::comparison::set_of;
use super::line::judge_together;
use super::{Class, Line, RatioWords, Row};
use crate::report::Table;
use crate::report::format::{self, MISSING};

/// A published row with the measured rows that repeat it: the same variant, in steps of the same kind on the same data set.
#[derive(Clone, Debug, Serialize)]
pub struct Repeated {
    /// What a step does in all of them.
    pub mode: String,
    /// The published row, as a sentence calls it.
    pub published: String,
    /// The measured rows, each against the published one.
    pub lines: Vec<Line>,
    /// The published row.
    #[serde(skip)]
    row: Row,
}

/// The published rows that measured ones repeat, each with these.
pub(super) fn repeated(rows: &[&Row]) -> Vec<Repeated> {
    let mut all = Vec::new();
    for published in rows.iter().copied().filter(|row| row.class == Class::Imported) {
        let repeats = |row: &Row| {
            row.repeats(&published.repeated_by, &published.variant)
                && row.mode == published.mode
                && row.profiler == published.profiler
                && set_of(row) == set_of(published)
        };
        let measured = rows.iter().copied().filter(|row| repeats(row));
        let mut lines: Vec<Line> = measured.map(|row| Line::new(row, false, Some(published))).collect();
        if lines.is_empty() {
            continue;
        }
        judge_together(&mut lines);
        let (mode, name) = (published.mode.clone(), published.name());
        all.push(Repeated { mode, published: name, lines, row: published.clone() });
    }
    all
}

/// How fast, of one row by one estimator.
struct Rates<'a> {
    estimator: &'a str,
    it_per_s: Option<f64>,
    samples_per_s: Option<f64>,
    ratio: Option<String>,
    class: &'a str,
    n: usize,
}

/// Each published row with the measured ones below it, and what the published estimator would have made of their steps.
pub(super) fn table(all: &[Repeated]) -> Table {
    let mut table = Table::new([
        "Steps",
        "Job ID",
        "Config",
        "Method",
        "Estimator",
        "it/s",
        "samples/s",
        "ms/step",
        "ms/sample",
        "× faster (samples/s)",
        "Figures",
        "n",
    ]);
    for one in all {
        let published = &one.row;
        let rates = Rates {
            estimator: published.matches_estimator.map_or("as published", |estimator| estimator.name()),
            it_per_s: published.median_it_per_s(),
            samples_per_s: published.median_samples_per_s(),
            ratio: None,
            class: published.class.name(),
            n: published.n,
        };
        table.bold_row(cells(&one.mode, published, &rates));
        for line in &one.lines {
            let across = if line.across() { " †" } else { "" };
            let row = &line.row;
            let rates = Rates {
                estimator: "measured steps",
                it_per_s: row.median_it_per_s(),
                samples_per_s: row.median_samples_per_s(),
                ratio: line.ratio_samples_per_s.map(|r| format!("{}{across}", format::times_as_fast(&r))),
                class: row.class.name(),
                n: row.n,
            };
            table.row(cells(&one.mode, row, &rates));
            for estimated in &row.estimated {
                // Only rates that were made in one way say something of each other.
                let alike = published.matches_estimator == Some(estimated.estimator);
                let base = published.median_samples_per_s().filter(|base| alike && *base > 0.0);
                let rates = Rates {
                    estimator: estimated.estimator.name(),
                    it_per_s: Some(estimated.it_per_s),
                    samples_per_s: Some(estimated.samples_per_s),
                    ratio: base.map(|base| format!("{}{across}", format::ratio(estimated.samples_per_s / base))),
                    class: "estimated",
                    n: estimated.n,
                };
                table.row(cells(&one.mode, row, &rates));
            }
        }
    }
    table
}

fn cells(steps: &str, row: &Row, rates: &Rates<'_>) -> [String; 12] {
    let missing = || MISSING.to_owned();
    let range = |range: Option<(f64, f64)>| range.map(|(low, high)| format::range(low, high));
    let per_step = rates.it_per_s.map(|rate| 1e3 / rate);
    let per_sample = rates.samples_per_s.and_then(|rate| row.ms_per_sample_at(rate));
    let ms = |ms: Option<f64>| ms.map_or_else(missing, |ms| format::milliseconds(ms * 1e6));
    [
        steps.to_owned(),
        row.job.clone(),
        row.config.clone(),
        row.method.clone(),
        rates.estimator.to_owned(),
        rates.it_per_s.map(format::rate).or_else(|| range(row.range)).unwrap_or_else(missing),
        rates.samples_per_s.map(format::rate).or_else(|| range(row.samples_range)).unwrap_or_else(missing),
        ms(per_step),
        ms(per_sample),
        rates.ratio.clone().unwrap_or_else(missing),
        rates.class.to_owned(),
        rates.n.to_string(),
    ]
}

/// What must be known of them, a sentence each.
pub(super) fn remarks(all: &[Repeated]) -> Vec<String> {
    if all.is_empty() {
        return Vec::new();
    }
    let mut said = vec![
        "published beside measured: a published row (bold), and the measured rows of the same variant in steps of the same kind; × faster (derived): \
         measured over published samples/s, above 1 is faster than published; ms/step (derived): from it/s; ms/sample (derived): ranks over \
         samples/s"
            .to_owned(),
    ];
    for (one, line) in all.iter().flat_map(|one| one.lines.iter().map(move |line| (one, line))) {
        let name = line.row.name();
        said.extend(RatioWords { line, name: &name, base: &one.published, tested: 0 }.sentence(true));
    }
    let mut estimators = Vec::new();
    for estimated in all.iter().flat_map(|one| &one.lines).flat_map(|line| &line.row.estimated) {
        if !estimators.contains(&estimated.estimator) {
            estimators.push(estimated.estimator);
            let (name, label) = (estimated.estimator.name(), estimated.estimator.label());
            said.push(format!(
                "`{name}` (estimated, from the measured steps): {label}; its ratio stands where the published rate was made in the same way, and has no verdict"
            ));
        }
    }
    said
}
