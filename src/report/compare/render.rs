use serde_json::json;

use super::learning::Learning;
use super::{Comparison, Group, Line, Row, decomposition, learning};
use crate::exit::Failure;
use crate::report::Table;
use crate::report::format::{self, MISSING};

/// Form of a comparison on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Pipe table for a note
    Markdown,
    /// Boxed table for a terminal
    Table,
    /// One line per row, raw values
    Csv,
    /// Everything, raw values
    Json,
}

/// The column that is left out where it would be empty.
const BATCH: &str = "MiB/batch";

/// The column of what another run would come to.
const INTERVAL: &str = "95 % (samples/s)";

/// The column of what an epoch takes, which stands where whole epochs were timed.
const EPOCH: &str = "s/epoch";

/// Columns of the published table, the time for a sample, what an epoch takes, the size of a batch, and three that say how far to trust
/// the row.
const HEADER: [&str; 18] = [
    "Job ID",
    "Config",
    "Method",
    "Speed (it/s)",
    "samples/s",
    "ms/sample",
    EPOCH,
    "Storage",
    "Batch Size",
    BATCH,
    "Workers",
    "Data Dir",
    learning::COLUMNS[0],
    learning::COLUMNS[1],
    learning::COLUMNS[2],
    "Figures",
    "n",
    INTERVAL,
];

impl Comparison {
    /// The comparison as text, without a line end at its end.
    pub fn render(&self, form: Format) -> Result<String, Failure> {
        match form {
            Format::Markdown => Ok(self.text(Table::markdown)),
            Format::Table => Ok(self.text(Table::terminal)),
            Format::Csv => Ok(self.csv()),
            Format::Json => {
                let all = json!({
                    "schema": 1,
                    "groups": self.groups,
                    "decompositions": self.decompositions,
                    "published": self.published,
                    "remarks": self.remarks(),
                    "warnings": self.warnings(),
                });
                serde_json::to_string_pretty(&all).map_err(Failure::internal)
            }
        }
    }

    fn text(&self, render: impl Fn(&Table) -> String) -> String {
        let mut parts = Vec::new();
        for group in &self.groups {
            // No source of the published table says what a batch weighs.
            let batches = group.lines.iter().any(|line| line.row.batch_bytes.is_some());
            // Most jobs train nothing.
            let learned = group.lines.iter().any(|line| line.row.learning.is_some());
            let epochs = group.lines.iter().any(|line| line.row.has_epochs());
            let intervals =
                group.lines.iter().any(|line| line.row.samples_per_s_rate.is_some_and(|rate| rate.interval.is_some()));
            let shown = |column: &usize| match HEADER[*column] {
                BATCH => batches,
                INTERVAL => intervals,
                EPOCH => epochs,
                name if learning::COLUMNS.contains(&name) => learned,
                _ => true,
            };
            let pick = |all: Vec<String>| (0..HEADER.len()).filter(shown).map(|i| all[i].clone()).collect::<Vec<_>>();
            let mut table = Table::new(pick(HEADER.map(str::to_owned).to_vec()));
            for line in &group.lines {
                let cells = pick(cells(line, Some(group)));
                if line.baseline {
                    table.bold_row(cells)
                } else {
                    table.row(cells)
                }
                for (i, part) in line.row.parts.iter().enumerate() {
                    let branch = if i + 1 == line.row.parts.len() { "└─" } else { "├─" };
                    let mut cells = cells_of_part(part);
                    cells[0] = format!("{branch} {}", cells[0]);
                    table.row(pick(cells));
                }
            }
            if self.groups.len() > 1 {
                parts.push(format!("Steps: {}", group.name()));
            }
            parts.push(render(&table));
        }
        if !self.decompositions.is_empty() {
            parts.push("Difference of variants:".to_owned());
            parts.push(render(&decomposition::table(&self.decompositions)));
        }
        for (title, table) in self.published.tables() {
            parts.push(title);
            parts.push(render(&table));
        }
        parts.push(self.remarks().iter().map(|r| format!("- {r}")).collect::<Vec<_>>().join("\n"));
        parts.join("\n\n")
    }
}

/// A job of a pooled row: its figures, without ratios.
fn cells_of_part(part: &Row) -> Vec<String> {
    let line = Line::new(part, false, None);
    cells(&line, None)
}

fn cells(line: &Line, group: Option<&Group>) -> Vec<String> {
    let row = &line.row;
    let missing = || MISSING.to_owned();
    let across = if line.across() { " †" } else { "" };
    let mixed = if line.mixed_batch() { " ‡" } else { "" };
    let with = |value: String, ratio: Option<String>, marks: &[&str]| match ratio {
        Some(ratio) => format!("{value} ({ratio}{})", marks.concat()),
        None => value,
    };
    let range = |(low, high): (f64, f64)| format::range(low, high);
    let speed = row.median_it_per_s().map(format::rate).or(row.range.map(range));
    let samples = row.median_samples_per_s().map(format::rate).or(row.samples_range.map(range));
    // With equal batches both ratios are the same, and once is enough.
    let learned = row.learning.as_ref().map_or_else(|| [missing(), missing(), missing()], Learning::shown);
    let per_sample = line.ratio_samples_per_s.filter(|_| group.is_some_and(Group::mixed_batches));
    vec![
        row.job.clone(),
        row.config.clone(),
        row.method.clone(),
        with(
            speed.unwrap_or_else(missing),
            line.ratio_it_per_s.as_ref().map(format::ratio_with_interval),
            &[across, mixed],
        ),
        with(samples.unwrap_or_else(missing), per_sample.as_ref().map(format::ratio_with_interval), &[across]),
        row.ms_per_sample().map_or_else(missing, |(low, high)| format::milliseconds_range(low * 1e6, high * 1e6)),
        row.epoch_time.map_or_else(missing, |time| time.cell()),
        row.storage_bytes.map_or_else(missing, |s| format::bytes_with_ratio(s, line.ratio_storage)),
        row.batch_size.to_string(),
        row.batch_bytes.map_or_else(missing, format::mebibytes),
        row.workers.map_or_else(missing, |w| w.to_string()),
        row.data_dir.clone().unwrap_or_else(missing),
        learned[0].clone(),
        learned[1].clone(),
        learned[2].clone(),
        row.class.name().to_owned(),
        row.n.to_string(),
        row.samples_per_s_rate.and_then(|rate| format::rate_interval(&rate)).unwrap_or_else(missing),
    ]
}
