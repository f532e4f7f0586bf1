//! Published figures beside the measured ones that repeat them: rates, and breakdowns.

use expctl_ledger::{Ledger, PublishedBreakdown, PublishedSource};
use expctl_text::Table;
use expctl_text::format::{self, MISSING};
use serde::Serialize;

use super::comparison::data_set_of;
use super::published_breakdown::{self, BreakdownBeside};
use crate::report::line::{Line, RatioWords, judge_together};
use crate::report::variant_row::{RateClass, VariantRow, published_row};

/// Published figures beside the measured ones that repeat them.
#[derive(Clone, Debug, Serialize)]
pub struct Published {
    /// Rates: each published row with the measured rows that repeat it.
    pub rates: Vec<RepeatedRow>,
    /// Breakdowns, each with the same components of a measured row.
    pub breakdowns: Vec<BreakdownBeside>,
    /// Job and source of all that was published.
    #[serde(skip)]
    sources: Vec<(String, PublishedSource)>,
}

impl Published {
    /// Match measured rows with imported ones, and with published breakdowns.
    pub fn from_rows(rows: &[&VariantRow], breakdowns: &[PublishedBreakdown]) -> Self {
        let mut sources: Vec<(String, PublishedSource)> = Vec::new();
        let imported = rows.iter().filter(|row| row.class == RateClass::Imported);
        let of_rows = imported.filter_map(|row| Some((row.job.clone(), row.source.clone()?)));
        let of_breakdowns = breakdowns.iter().map(|one| (one.job_name(), one.source.clone()));
        for source in of_rows.chain(of_breakdowns) {
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        Self { rates: repeated_rows(rows), breakdowns: published_breakdown::beside(breakdowns, rows), sources }
    }

    /// The published rows and breakdowns that name a variant among the rows of a job as the one that repeats them.
    pub fn beside_job(ledger: &Ledger, measured: &[&VariantRow]) -> Self {
        let named = |names: &[String]| measured.iter().any(|row| row.is_named(names));
        let rows = ledger.published_rows().iter().filter(|row| named(&row.repeated_by));
        let imported: Vec<VariantRow> = rows.map(published_row).collect();
        let breakdowns = ledger.published_breakdowns().iter().filter(|one| named(&one.repeated_by));
        let breakdowns: Vec<PublishedBreakdown> = breakdowns.cloned().collect();
        let all: Vec<&VariantRow> = measured.iter().copied().chain(&imported).collect();
        Self::from_rows(&all, &breakdowns)
    }

    /// Whether a measured row stands beside a breakdown.
    pub(super) fn has_measured_breakdown(&self) -> bool {
        self.breakdowns.iter().any(|one| one.measured.is_some())
    }

    /// Its tables, each under a title.
    pub(super) fn tables(&self) -> Vec<(String, Table)> {
        let rates = (!self.rates.is_empty()).then(|| rates_table(&self.rates));
        let mut all: Vec<(String, Table)> =
            rates.into_iter().map(|table| ("Published beside measured:".to_owned(), table)).collect();
        all.extend(published_breakdown::tables(&self.breakdowns));
        all.extend(published_breakdown::summaries(&self.breakdowns));
        all
    }

    /// Remarks, one sentence each.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut all = rate_remarks(&self.rates);
        all.extend(published_breakdown::remarks(&self.breakdowns));
        all
    }

    /// Tables, sentences and sources for a note, without what is the same in every note: docs/reference/published-results.md has that. `None`
    /// if no measured row repeats anything.
    pub fn markdown(&self) -> Option<String> {
        if self.rates.is_empty() && !self.has_measured_breakdown() {
            return None;
        }
        let rates = (!self.rates.is_empty()).then(|| rates_table(&self.rates));
        let tables = rates.into_iter().chain(published_breakdown::note_tables(&self.breakdowns));
        let mut parts: Vec<String> = tables.map(|table| table.markdown()).collect();
        for (title, table) in published_breakdown::summaries(&self.breakdowns) {
            parts.extend([title, table.markdown()]);
        }
        let source = |(job, source): &(String, PublishedSource)| {
            format!("{job} (imported): {} ({}), {}", source.title, source.date, source.from)
        };
        let remarks =
            rate_sentences(&self.rates).into_iter().chain(published_breakdown::note_remarks(&self.breakdowns));
        let lines = remarks.chain(self.sources.iter().map(source));
        parts.push(lines.map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n"));
        Some(parts.join("\n\n"))
    }
}

/// A published row with the measured rows that repeat it: the same variant, mode and data set.
#[derive(Clone, Debug, Serialize)]
pub struct RepeatedRow {
    /// Their mode.
    pub mode: String,
    /// Name of the published row.
    pub published: String,
    /// The measured rows, each against the published one.
    pub lines: Vec<Line>,
    /// The published row.
    #[serde(skip)]
    row: VariantRow,
}

/// The published rows that measured ones repeat.
fn repeated_rows(rows: &[&VariantRow]) -> Vec<RepeatedRow> {
    let mut all = Vec::new();
    for published in rows.iter().copied().filter(|row| row.class == RateClass::Imported) {
        let repeats = |row: &VariantRow| {
            row.repeats(&published.repeated_by, &published.variant)
                && row.mode == published.mode
                && row.profiler == published.profiler
                && data_set_of(row) == data_set_of(published)
        };
        let measured = rows.iter().copied().filter(|row| repeats(row));
        let mut lines: Vec<Line> = measured.map(|row| Line::new(row, false, Some(published))).collect();
        if lines.is_empty() {
            continue;
        }
        judge_together(&mut lines);
        let (mode, name) = (published.mode.clone(), published.name());
        all.push(RepeatedRow { mode, published: name, lines, row: published.clone() });
    }
    all
}

/// The rate of a row by one estimator.
struct RepeatedRate<'a> {
    estimator: &'a str,
    it_per_s: Option<f64>,
    samples_per_s: Option<f64>,
    ratio: Option<String>,
    class: &'a str,
    n: usize,
}

/// Each published row with the measured ones below it, and their rates by the published estimator.
fn rates_table(all: &[RepeatedRow]) -> Table {
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
        let rates = RepeatedRate {
            estimator: published.matches_estimator.map_or("as published", |estimator| estimator.name()),
            it_per_s: published.median_it_per_s(),
            samples_per_s: published.median_samples_per_s(),
            ratio: None,
            class: published.class.name(),
            n: published.n,
        };
        table.bold_row(rate_cells(&one.mode, published, &rates));
        for line in &one.lines {
            let across = if line.across() { " †" } else { "" };
            let row = &line.row;
            let rates = RepeatedRate {
                estimator: "measured steps",
                it_per_s: row.median_it_per_s(),
                samples_per_s: row.median_samples_per_s(),
                ratio: line.ratio_samples_per_s.map(|r| format!("{}{across}", format::times_as_fast(&r))),
                class: row.class.name(),
                n: row.n,
            };
            table.row(rate_cells(&one.mode, row, &rates));
            for estimated in &row.estimated {
                // Only rates by the same estimator are compared.
                let alike = published.matches_estimator == Some(estimated.estimator);
                let base = published.median_samples_per_s().filter(|base| alike && *base > 0.0);
                let rates = RepeatedRate {
                    estimator: estimated.estimator.name(),
                    it_per_s: Some(estimated.it_per_s),
                    samples_per_s: Some(estimated.samples_per_s),
                    ratio: base.map(|base| format!("{}{across}", format::ratio(estimated.samples_per_s / base))),
                    class: "estimated",
                    n: estimated.n,
                };
                table.row(rate_cells(&one.mode, row, &rates));
            }
        }
    }
    table
}

fn rate_cells(steps: &str, row: &VariantRow, rates: &RepeatedRate<'_>) -> [String; 12] {
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

/// Remarks, one sentence each: what the table has, and [`rate_sentences`].
fn rate_remarks(all: &[RepeatedRow]) -> Vec<String> {
    if all.is_empty() {
        return Vec::new();
    }
    let mut said = vec![
        "published beside measured: a published row (bold), and the measured rows of the same variant in steps of the same kind; × faster (derived): \
         measured over published samples/s, above 1 is faster than published; ms/step (derived): from it/s; ms/sample (derived): ranks over \
         samples/s"
            .to_owned(),
    ];
    said.extend(rate_sentences(all));
    said
}

/// The ratio of each measured row to the published one, and how estimated rates are made.
fn rate_sentences(all: &[RepeatedRow]) -> Vec<String> {
    let mut said = Vec::new();
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
