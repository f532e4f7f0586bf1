//! Predictions as text: a table for a terminal, markdown, CSV, JSON.

use expctl_stats::Interval;
use expctl_text::Table;
use expctl_text::format::{self, MISSING};

use super::prediction::{PredictedVariant, Prediction, Predictions};
use super::verified::{TrackRecord, Verified};
use crate::report::compare::Format;

const HEADER: [&str; 8] = [
    "Change",
    "--set",
    "samples/s (estimated)",
    "95 %",
    "Gain",
    "Next bottleneck",
    "Batches in memory",
    "Threads / processors",
];

/// Columns of numbers.
const NUMBERS: [usize; 5] = [2, 3, 4, 6, 7];

impl Predictions {
    /// All of it as text, without a final line feed. Tables have the `top` changes of each variant, all if it is 0.
    ///
    /// # Errors
    /// Values that have no JSON.
    pub fn render(&self, form: Format, top: usize) -> serde_json::Result<String> {
        match form {
            Format::Markdown => Ok(self.text(Table::markdown, top)),
            Format::Table => Ok(self.text(Table::terminal, top)),
            Format::Csv => Ok(self.csv()),
            Format::Json => serde_json::to_string_pretty(self),
        }
    }

    fn text(&self, render: impl Fn(&Table) -> String, top: usize) -> String {
        let several = self.variants.len() > 1;
        let parts = self.variants.iter().map(|variant| {
            let heading = if several { format!("## {}\n\n", variant.label) } else { String::new() };
            format!("{heading}{}", variant.text(&render, top))
        });
        let unknown = self.not_predicted.iter().map(|one| format!("`{}` is not predicted: {}.", one.label, one.reason));
        let verified = (!self.verified.is_empty())
            .then(|| format!("{}\n\n{}", verified_heading(&self.verified), render(&verified_table(&self.verified))));
        let record = self.track_record.map(|record| record.words());
        verified.into_iter().chain(parts).chain(unknown).chain(record).collect::<Vec<_>>().join("\n\n")
    }

    fn csv(&self) -> String {
        let mut table = Table::new([
            "variant",
            "change",
            "set",
            "class",
            "samples_per_s",
            "low",
            "high",
            "gain",
            "measured_samples_per_s",
            "calibration_error",
            "bottleneck",
            "bottleneck_share",
            "batch_memory_bytes",
            "threads",
            "processors",
            "assumption",
            "au",
        ]);
        let or_none = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        for variant in &self.variants {
            for one in variant.changes.iter().chain(&variant.emulated_steps) {
                table.row([
                    variant.label.clone(),
                    one.change.words(),
                    one.setting.clone().unwrap_or_default(),
                    self.class.to_owned(),
                    one.samples_per_s.to_string(),
                    or_none(one.interval.map(|interval| interval.low)),
                    or_none(one.interval.map(|interval| interval.high)),
                    one.gain.to_string(),
                    variant.measured_samples_per_s.to_string(),
                    variant.calibration.error.to_string(),
                    one.bottleneck.map(|stage| stage.share.stage.to_string()).unwrap_or_default(),
                    or_none(one.bottleneck.map(|stage| stage.share.share)),
                    or_none(one.batch_memory_bytes),
                    one.processors.threads.to_string(),
                    one.processors.processors.to_string(),
                    one.assumption.unwrap_or_default().to_owned(),
                    or_none(one.utilisation),
                ]);
            }
        }
        table.csv()
    }
}

impl PredictedVariant {
    /// The answer in sentences, the table, and what it takes for granted.
    fn text(&self, render: impl Fn(&Table) -> String, top: usize) -> String {
        let shown = if top == 0 { self.changes.len() } else { top.min(self.changes.len()) };
        let mut table = Table::new(HEADER).right(NUMBERS);
        self.changes[..shown].iter().for_each(|one| table.row(row(one)));
        let emulated = self
            .emulated
            .as_ref()
            .map(|said| format!("Measured with emulated steps: {said}. They take as long with any batch size.\n\n"));
        let mut text = format!("{}{}\n\n{}", emulated.unwrap_or_default(), self.answer(), render(&table));
        if shown < self.changes.len() {
            text.push_str(&format!("\n\n{} more changes with --top 0.", self.changes.len() - shown));
        }
        let mut assumed: Vec<&str> = Vec::new();
        for words in self.changes[..shown].iter().filter_map(|one| one.assumption) {
            if !assumed.contains(&words) {
                assumed.push(words);
            }
        }
        if !assumed.is_empty() {
            text.push_str(&format!("\n\nTaken for granted: {}.", assumed.join("; ")));
        }
        let beyond = self.changes[..shown].iter().filter(|one| one.beyond_sampled_storage.is_some());
        let beyond: Vec<String> = beyond.map(|one| one.change.words()).collect();
        if !beyond.is_empty() {
            text.push_str(&format!(
                "\n\nNeed more bytes a second from storage than was ever sampled: {}.",
                beyond.join("; ")
            ));
        }
        if let Some(one) = self.emulated_steps.first() {
            let steps = render(&emulated_table(&self.emulated_steps));
            let assumed = one.assumption.map(|words| format!("\n\nTaken for granted: {words}."));
            text.push_str(&format!("\n\nWith emulated steps:\n\n{steps}{}", assumed.unwrap_or_default()));
        }
        text
    }

    /// What to change, what bounds it now, and how far the model is to be trusted.
    fn answer(&self) -> String {
        let best = match self.best_setting() {
            Some(best) => format!(
                "Of the loader's settings, {} {} bring most: {} samples/s ({}), estimated.",
                best.change.words(),
                if best.surely_helps() { "would" } else { "may" },
                format::rate(best.samples_per_s),
                gain(best)
            ),
            None => "No setting of the loader is predicted to bring anything.".to_owned(),
        };
        let bottleneck =
            self.bottleneck.map(|stage| format!(" Bottleneck now: {}.", stage.words())).unwrap_or_default();
        let ceiling = self.ceiling().map_or_else(String::new, |one| {
            format!(" If loading were free: {} samples/s ({}).", format::rate(one.samples_per_s), gain(one))
        });
        format!(
            "Measured: {} samples/s, {} it/s ({}; {}, {}, batches of {}).{bottleneck} {best}{ceiling}\n\nThe model gives {} \
             samples/s for these settings themselves: {} % off.",
            format::rate(self.measured_samples_per_s),
            format::rate(self.measured_it_per_s),
            format::count(self.runs as u64, "run"),
            format::count(self.ranks as u64, "rank"),
            format::count(self.loader_threads as u64, "loader thread"),
            self.batch_size,
            format::rate(self.calibration.samples_per_s),
            format::round(self.calibration.error * 100.0, 1),
        )
    }
}

/// Predictions beside what was measured of them, as text without a final line feed.
///
/// # Errors
/// Values that have no JSON.
pub fn verified_text(all: &[Verified], form: Format) -> serde_json::Result<String> {
    let heading = verified_heading(all);
    match form {
        Format::Markdown => Ok(format!("{heading}\n\n{}", verified_table(all).markdown())),
        Format::Table => Ok(format!("{heading}\n\n{}", verified_table(all).terminal())),
        Format::Csv => Ok(verified_table(all).csv()),
        Format::Json => serde_json::to_string_pretty(all),
    }
}

/// The rates with steps of an emulated accelerator, and how busy it would be.
fn emulated_table(all: &[Prediction]) -> Table {
    let mut table =
        Table::new(["Change", "--set", "AU (estimated)", "samples/s (estimated)", "95 %", "Gain", "Next bottleneck"])
            .right([2, 3, 4, 5]);
    for one in all {
        table.row([
            one.change.words(),
            one.setting.clone().unwrap_or_default(),
            one.utilisation.map_or_else(|| MISSING.to_owned(), format::percent),
            format::rate(one.samples_per_s),
            ends(one.interval, format::rate),
            format::ratio(one.gain),
            one.bottleneck.map_or_else(|| MISSING.to_owned(), |stage| stage.words()),
        ]);
    }
    table
}

fn verified_heading(all: &[Verified]) -> String {
    format!("Predicted from job {}, and measured:", all.first().map_or(0, |one| one.predicted_from))
}

fn verified_table(all: &[Verified]) -> Table {
    let mut table = Table::new([
        "Variant",
        "--set",
        "Predicted gain (estimated)",
        "95 %",
        "Measured gain",
        "95 %",
        "Runs",
        "Measured over predicted",
        "In the interval",
    ])
    .right(2..8);
    for one in all {
        let two = |value: f64| format::round(value, 2);
        table.row([
            one.label.clone(),
            one.setting.clone(),
            format::ratio(one.predicted),
            ends(one.predicted_interval, two),
            one.measured.map_or_else(|| MISSING.to_owned(), |measured| format::ratio(measured.value)),
            ends(one.measured.and_then(|measured| measured.interval), two),
            one.runs.to_string(),
            one.error().map_or_else(|| MISSING.to_owned(), |error| format!("{} %", format::round(error * 100.0, 1))),
            one.is_within().map_or(MISSING, |is| if is { "yes" } else { "no" }).to_owned(),
        ]);
    }
    table
}

impl TrackRecord {
    /// `Verified so far: 12 predictions, …`.
    pub fn words(&self) -> String {
        let percent = |share: f64| format::round(share * 100.0, 1);
        format!(
            "Verified so far in this ledger: {}, off by {} % in the median and by {} % at the 90th percentile; {} of {} intervals hold \
             what was measured.",
            format::count(self.predictions as u64, "prediction"),
            percent(self.median_error),
            percent(self.p90_error),
            self.within,
            self.with_interval,
        )
    }
}

fn row(one: &Prediction) -> [String; 8] {
    let crowded = if one.processors_suffice { "" } else { ": too few" };
    [
        one.change.words(),
        one.setting.clone().unwrap_or_default(),
        format::rate(one.samples_per_s),
        ends(one.interval, format::rate),
        format::ratio(one.gain),
        one.bottleneck.map_or_else(|| MISSING.to_owned(), |stage| stage.words()),
        one.batch_memory_bytes.map_or_else(|| MISSING.to_owned(), format::bytes),
        format!("{} / {}{crowded}", format::figure(one.processors.threads), format::figure(one.processors.processors)),
    ]
}

/// `1.25× [1.10–1.40]`.
fn gain(one: &Prediction) -> String {
    match one.gain_interval {
        None => format::ratio(one.gain),
        interval => format!("{} [{}]", format::ratio(one.gain), ends(interval, |value| format::round(value, 2))),
    }
}

fn ends(interval: Option<Interval>, shown: impl Fn(f64) -> String) -> String {
    interval.map_or_else(|| MISSING.to_owned(), |ends| format!("{}–{}", shown(ends.low), shown(ends.high)))
}
