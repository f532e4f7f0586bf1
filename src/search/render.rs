//! The result of a search as text: a table for a terminal, markdown, CSV, JSON.

use expctl_stats::Ratio;
use expctl_text::Table;
use expctl_text::format::{self, MISSING};

use super::race::{Elimination, RaceEnd};
use super::result::{ResultRow, SearchResult};
use crate::report::compare::Format;

/// Points that are not run, named one by one at most.
const MAX_NAMED: usize = 8;

impl SearchResult {
    /// All of it as text, without a final line feed. `command` submits the config with its own settings.
    ///
    /// # Errors
    /// Values that have no JSON.
    pub fn render(&self, form: Format, command: &str) -> serde_json::Result<String> {
        match form {
            Format::Markdown => Ok(self.text(&self.table().markdown(), command)),
            Format::Table => Ok(self.text(&self.table().terminal(), command)),
            Format::Csv => Ok(self.csv()),
            Format::Json => serde_json::to_string_pretty(self),
        }
    }

    fn text(&self, table: &str, command: &str) -> String {
        let parts = [
            Some(format!("**{}**", self.answer())),
            Some(self.how_it_ended()),
            Some(table.to_owned()),
            self.not_run(),
            self.other_batch_sizes.then(|| {
                "Rates are samples a second: another batch size is another training, whose result may be another one."
                    .to_owned()
            }),
            Some(self.cost()),
            Some(self.usage(command)),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
    }

    /// The chosen point in a sentence.
    fn answer(&self) -> String {
        let Some(chosen) = self.chosen() else { return String::new() };
        let rate = chosen.samples_per_s.map_or_else(format::missing, format::rate);
        let gain = match (&self.gain, chosen.baseline) {
            (Some(gain), _) => format!(
                ", {} the rate of the config's own settings (n = {}, {})",
                format::ratio_with_interval(gain),
                self.gain_runs,
                self.class
            ),
            (None, true) => format!(" (n = {}, {})", chosen.runs, self.class),
            (None, false) => {
                format!(" (n = {}, {}); the config's own settings could not be measured", chosen.runs, self.class)
            }
        };
        let equal: Vec<&ResultRow> = self.rows.iter().filter(|row| row.equal && !row.chosen).collect();
        let name = match chosen.baseline {
            true => format!("The config's own settings ({})", name(chosen)),
            false => name(chosen),
        };
        if equal.is_empty() {
            // Whether that is more than chance stands with the runner-up.
            return format!("{name} ran fastest: {rate} samples/s{gain}.");
        }
        let others: Vec<String> = equal.into_iter().map(self::name).collect();
        format!(
            "{name} and {} are equal within {} %; the first needs the fewest loader threads and the least memory: {rate} samples/s{gain}.",
            others.join(", "),
            format::figure(self.min_gain_percent)
        )
    }

    /// The runner-up, and why the search ended.
    fn how_it_ended(&self) -> String {
        let runner_up = self.runner_up.and_then(|position| self.rows.get(position)).and_then(|row| {
            let ratio = row.ratio.as_ref()?;
            let apart = match ratio.interval {
                None => ": one run tells nothing of chance",
                Some(interval) if interval.low <= 1.0 && interval.high >= 1.0 => ": the two are not told apart",
                Some(_) => "",
            };
            let shown = format::ratio_with_interval(ratio);
            Some(format!("Runner-up: {}, {shown} of its rate (n = {}){apart}. ", name(row), row.pairs))
        });
        let reason = match self.end {
            RaceEnd::OneRemains => "one point remains".to_owned(),
            RaceEnd::Equal => {
                format!("no remaining point can be more than {} % faster", format::figure(self.min_gain_percent))
            }
            RaceEnd::Repeats => {
                format!("each remaining point has had {} at full length", format::count(self.max_repeats.into(), "run"))
            }
            RaceEnd::Budget => format!(
                "the budget of {} has no room for another round",
                self.budget_s.map_or_else(format::missing, format::seconds)
            ),
            RaceEnd::Share => {
                "another round would take it beyond three tenths of the time of the whole grid".to_owned()
            }
            RaceEnd::NothingMeasured => "no point could be measured".to_owned(),
        };
        format!("{}Ended because {reason}.", runner_up.unwrap_or_default())
    }

    fn table(&self) -> Table {
        let mut table =
            Table::new(["Settings", "Runs", "Steps", "samples/s", "it/s", "Ratio to the first", "95 %", "n", "Out"])
                .right([1, 2, 3, 4, 5, 7]);
        for row in &self.rows {
            let baseline = if row.baseline { " (baseline)" } else { "" };
            table.row([
                format!("{}{baseline}", name(row)),
                row.runs.to_string(),
                format::thousands(row.steps),
                row.samples_per_s.map_or_else(format::missing, format::rate),
                row.it_per_s.map_or_else(format::missing, format::rate),
                row.ratio.map_or_else(format::missing, |ratio| format::ratio(ratio.value)),
                row.ratio.and_then(|ratio| format::ratio_interval(&ratio)).unwrap_or_else(format::missing),
                if row.pairs > 0 { row.pairs.to_string() } else { format::missing() },
                row.eliminated.as_ref().map_or_else(format::missing, Elimination::words),
            ]);
        }
        table
    }

    /// Points that a rule of the config refuses.
    fn not_run(&self) -> Option<String> {
        if self.refused.is_empty() {
            return None;
        }
        let named = self.refused.iter().take(MAX_NAMED);
        let mut lines: Vec<String> =
            named.map(|row| format!("- {}: {}", format::code(&row.point.set.join(", ")), row.reason)).collect();
        let more = self.refused.len().saturating_sub(MAX_NAMED);
        if more > 0 {
            lines.push(format!("- and {more} more"));
        }
        Some(format!("Not run, because a rule refuses them:\n\n{}", lines.join("\n")))
    }

    fn cost(&self) -> String {
        let jobs: Vec<String> = self.jobs.iter().map(u64::to_string).collect();
        let jobs = format!("{} {}", if jobs.len() == 1 { "job" } else { "jobs" }, jobs.join(", "));
        format!(
            "Cost: {} of trials in {} ({jobs}), {} of the {} (estimated) of all {} with {} repeats each.",
            format::seconds(self.trial_s),
            format::count(self.jobs.len() as u64, "round"),
            format::share(self.trial_s, self.grid_s),
            format::seconds(self.grid_s),
            format::count(self.rows.len() as u64, "point"),
            self.grid_repeats,
        )
    }

    /// How to use the chosen settings.
    fn usage(&self, command: &str) -> String {
        if self.set.is_empty() {
            return "Nothing has to be set.".to_owned();
        }
        let arguments: Vec<String> = self.set.iter().map(|argument| format!(" --set {}", quoted(argument))).collect();
        format!("To use it:\n\n    {command}{}", arguments.concat())
    }

    fn csv(&self) -> String {
        let mut table = Table::new([
            "settings",
            "class",
            "baseline",
            "chosen",
            "equal",
            "runs",
            "steps",
            "samples_per_s",
            "it_per_s",
            "ratio",
            "low",
            "high",
            "pairs",
            "out",
        ]);
        let or_none = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        for row in &self.rows {
            let interval = row.ratio.and_then(|ratio: Ratio| ratio.interval);
            table.row([
                row.point.set.join(", "),
                self.class.to_owned(),
                row.baseline.to_string(),
                row.chosen.to_string(),
                row.equal.to_string(),
                row.runs.to_string(),
                row.steps.to_string(),
                or_none(row.samples_per_s),
                or_none(row.it_per_s),
                or_none(row.ratio.map(|ratio| ratio.value)),
                or_none(interval.map(|interval| interval.low)),
                or_none(interval.map(|interval| interval.high)),
                row.pairs.to_string(),
                row.eliminated.as_ref().map(Elimination::words).unwrap_or_default(),
            ]);
        }
        table.csv()
    }
}

impl Elimination {
    /// In words, as a cell.
    fn words(&self) -> String {
        match self {
            Self::Failed { round, reason } => format!("failed in round {round}: {reason}"),
            Self::Slower { round, ratio } => {
                let interval = format::ratio_interval(ratio).unwrap_or_else(|| MISSING.to_owned());
                format!("slower than the fastest after round {round} (corrected interval {interval})")
            }
            Self::Behind { round, position, went_on } => {
                format!("position {position} after round {round}; {went_on} went on")
            }
            Self::NoTime { round } => format!("no time for it in round {round}"),
        }
    }
}

/// The settings of a point as code.
fn name(row: &ResultRow) -> String {
    format::code(&row.point.set.join(", "))
}

/// An argument for a shell, in quotes where it needs them.
pub fn quoted(argument: &str) -> String {
    let is_plain = argument.chars().all(|c| c.is_ascii_alphanumeric() || "_-./=,:".contains(c));
    match shlex::try_quote(argument) {
        Ok(quoted) if !is_plain => quoted.into_owned(),
        _ => argument.to_owned(),
    }
}
