use serde_json::json;

use super::comparison::group_name;
use super::learning::Learning;
use super::{Comparison, Group, Line, learning};
use crate::exit::Failure;
use crate::report::format::{self, MISSING};
use crate::report::{StageShare, Table};

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

/// Columns of the published table, the size of a batch, and two that say how far to trust the row.
const HEADER: [&str; 15] = [
    "Job ID",
    "Config",
    "Method",
    "Speed (it/s)",
    "samples/s",
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
];

impl Comparison {
    /// The comparison as text, without a line end at its end.
    pub fn render(&self, form: Format) -> Result<String, Failure> {
        match form {
            Format::Markdown => Ok(self.text(Table::markdown)),
            Format::Table => Ok(self.text(Table::terminal)),
            Format::Csv => Ok(self.csv()),
            Format::Json => {
                let all = json!({ "schema": 1, "groups": self.groups, "remarks": self.remarks() });
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
            let shown = |column: &usize| match HEADER[*column] {
                BATCH => batches,
                name if learning::COLUMNS.contains(&name) => learned,
                _ => true,
            };
            let pick = |all: Vec<String>| (0..HEADER.len()).filter(shown).map(|i| all[i].clone()).collect::<Vec<_>>();
            let mut table = Table::new(pick(HEADER.map(str::to_owned).to_vec()));
            for line in &group.lines {
                let cells = pick(cells(line, group));
                if line.baseline { table.bold_row(cells) } else { table.row(cells) }
            }
            if self.groups.len() > 1 {
                parts.push(format!("Steps: {}", group_name(group)));
            }
            parts.push(render(&table));
        }
        parts.push(self.remarks().iter().map(|r| format!("- {r}")).collect::<Vec<_>>().join("\n"));
        parts.join("\n\n")
    }

    fn csv(&self) -> String {
        let learned = self.rows().any(|row| row.learning.is_some());
        let header = [
            "job",
            "config",
            "variant",
            "method",
            "mode",
            "profiler",
            "baseline",
            "class",
            "n",
            "it_per_s",
            "it_per_s_low",
            "it_per_s_high",
            "samples_per_s",
            "samples_per_s_low",
            "samples_per_s_high",
            "ratio_it_per_s",
            "ratio_samples_per_s",
            "ratio_samples_low",
            "ratio_samples_high",
            "verdict",
            "storage_bytes",
            "batch_size",
            "ranks",
            "workers",
            "data_dir",
            "incomplete",
            "waits_for",
            "waits_share",
            "works_on",
            "works_share",
            "batch_bytes",
        ];
        let more = ["pearson", "spearman", "mse"].into_iter().filter(|_| learned);
        let mut table = Table::new(header.into_iter().chain(more));
        let number = |v: Option<f64>| v.map(|v| v.to_string()).unwrap_or_default();
        for (group, line) in self.groups.iter().flat_map(|g| g.lines.iter().map(move |l| (g, l))) {
            let row = &line.row;
            let waits = row.bottleneck.and_then(|b| b.waits_for);
            let works = row.bottleneck.and_then(|b| b.works_on);
            let stage = |part: Option<StageShare>| part.map(|p| p.stage.to_string()).unwrap_or_default();
            let interval = line.ratio_samples_per_s.and_then(|r| r.interval);
            let mut cells = vec![
                row.job.clone(),
                row.config.clone(),
                row.label.clone(),
                row.method.clone(),
                group.mode.clone(),
                row.profiler.to_string(),
                line.baseline.to_string(),
                row.class.name().to_owned(),
                row.n.to_string(),
                number(row.median_it_per_s()),
                number(row.range.map(|r| r.0)),
                number(row.range.map(|r| r.1)),
                number(row.median_samples_per_s()),
                number(row.samples_range.map(|r| r.0)),
                number(row.samples_range.map(|r| r.1)),
                number(line.ratio_it_per_s.map(|r| r.value)),
                number(line.ratio_samples_per_s.map(|r| r.value)),
                number(interval.map(|i| i.low)),
                number(interval.map(|i| i.high)),
                line.verdict.map(|v| v.words().to_owned()).unwrap_or_default(),
                number(row.storage_bytes),
                row.batch_size.to_string(),
                row.ranks.to_string(),
                row.workers.map(|w| w.to_string()).unwrap_or_default(),
                row.data_dir.clone().unwrap_or_default(),
                row.incomplete.to_string(),
                stage(waits),
                number(waits.map(|p| p.share)),
                stage(works),
                number(works.map(|p| p.share)),
                number(row.batch_bytes),
            ];
            if learned {
                let columns = row.learning.as_ref().map(Learning::columns);
                cells.extend((0..learning::COLUMNS.len()).map(|i| number(columns.and_then(|all| all[i].1))));
            }
            table.row(cells);
        }
        table.csv()
    }
}

fn cells(line: &Line, group: &Group) -> Vec<String> {
    let row = &line.row;
    let missing = || MISSING.to_owned();
    let with = |value: String, ratio: Option<String>| match ratio {
        Some(ratio) => format!("{value} ({ratio})"),
        None => value,
    };
    let range = |(low, high): (f64, f64)| format::range(low, high);
    let speed = row.median_it_per_s().map(format::rate).or(row.range.map(range));
    let samples = row.median_samples_per_s().map(format::rate).or(row.samples_range.map(range));
    // With equal batches both ratios are the same, and once is enough.
    let learned = row.learning.as_ref().map_or_else(|| [missing(), missing(), missing()], Learning::shown);
    let per_sample = line.ratio_samples_per_s.filter(|_| group.mixed_batches());
    vec![
        row.job.clone(),
        row.config.clone(),
        row.method.clone(),
        with(speed.unwrap_or_else(missing), line.ratio_it_per_s.as_ref().map(format::ratio_with_interval)),
        with(samples.unwrap_or_else(missing), per_sample.as_ref().map(format::ratio_with_interval)),
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
    ]
}
