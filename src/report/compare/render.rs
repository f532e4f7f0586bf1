//! A comparison as text: markdown, a table for a terminal, CSV, JSON.

use expctl_text::Table;
use expctl_text::format::{self, MISSING};
use serde_json::json;

use super::comparison::Comparison;
use super::decomposition;
use crate::report::bottleneck::StageShare;
use crate::report::differences::confound_words;
use crate::report::learning::{LEARNING_COLUMNS, Learning};
use crate::report::line::Line;
use crate::report::variant_row::VariantRow;

/// Output format of a comparison.
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

/// Column of the batch size, left out if empty.
const BATCH: &str = "MiB/batch";

/// Column of the interval, left out if empty.
const INTERVAL: &str = "95 % (samples/s)";

/// Column of the epoch time, only if whole epochs were timed.
const EPOCH: &str = "s/epoch";

/// Column of the utilisation of emulated accelerators, only if a step is emulated.
const UTILISATION: &str = "AU";

/// Columns of the published table, time per sample, utilisation, epoch time, batch size, validation figures, and three on how far to trust the row.
const HEADER: [&str; 19] = [
    "Job ID",
    "Config",
    "Method",
    "Speed (it/s)",
    "samples/s",
    "ms/sample",
    UTILISATION,
    EPOCH,
    "Storage",
    "Batch Size",
    BATCH,
    "Workers",
    "Data Dir",
    LEARNING_COLUMNS[0],
    LEARNING_COLUMNS[1],
    LEARNING_COLUMNS[2],
    "Figures",
    "n",
    INTERVAL,
];

/// Columns of numbers.
const NUMBERS: [&str; 12] = [
    "Speed (it/s)",
    "samples/s",
    "ms/sample",
    UTILISATION,
    EPOCH,
    "Batch Size",
    BATCH,
    "Workers",
    LEARNING_COLUMNS[0],
    LEARNING_COLUMNS[1],
    LEARNING_COLUMNS[2],
    "n",
];

/// Columns that a narrow table has only where rows differ in them.
const SHARED: [&str; 8] = ["Job ID", "Config", "Storage", "Batch Size", BATCH, "Workers", "Data Dir", "Figures"];

impl Comparison {
    /// The comparison as text, without a final line feed.
    ///
    /// # Errors
    /// Values that have no JSON.
    pub fn render(&self, form: Format) -> serde_json::Result<String> {
        match form {
            Format::Markdown => Ok(self.text(Table::markdown, false)),
            Format::Table => Ok(self.text(Table::terminal, true)),
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
                serde_json::to_string_pretty(&all)
            }
        }
    }

    /// Tables and remarks. A `narrow` table has only columns in which rows differ; what is the same in all stands in a line above it.
    fn text(&self, render: impl Fn(&Table) -> String, narrow: bool) -> String {
        let mut parts = Vec::new();
        for group in &self.groups {
            // Published rows have no batch size in bytes.
            let batches = group.lines.iter().any(|line| line.row.batch_bytes.is_some());
            // Most jobs have no validation.
            let learned = group.lines.iter().any(|line| line.row.learning.is_some());
            let epochs = group.lines.iter().any(|line| line.row.has_epochs());
            let emulates = group.lines.iter().any(|line| line.row.emulation.is_some());
            let intervals =
                group.lines.iter().any(|line| line.row.samples_per_s_rate.is_some_and(|rate| rate.interval.is_some()));
            let shown = |column: &usize| match HEADER[*column] {
                BATCH => batches,
                INTERVAL => intervals,
                EPOCH => epochs,
                UTILISATION => emulates,
                name if LEARNING_COLUMNS.contains(&name) => learned,
                _ => true,
            };
            let has_ratios =
                group.lines.iter().any(|line| line.ratio_it_per_s.is_some() || line.ratio_samples_per_s.is_some());
            let mixed_batches = group.mixed_batches();
            let mut rows: Vec<(bool, Vec<String>)> = Vec::new();
            for line in &group.lines {
                rows.push((line.baseline && has_ratios, cells(line, mixed_batches)));
                for (i, part) in line.row.parts.iter().enumerate() {
                    let branch = if i + 1 == line.row.parts.len() { "└─" } else { "├─" };
                    let mut cells = cells_of_part(part);
                    cells[0] = format!("{branch} {}", cells[0]);
                    rows.push((false, cells));
                }
            }
            let is_same = |column: usize| rows.windows(2).all(|pair| pair[0].1[column] == pair[1].1[column]);
            let above = |column: &usize| narrow && SHARED.contains(&HEADER[*column]) && is_same(*column);
            let columns: Vec<usize> = (0..HEADER.len()).filter(shown).collect();
            let in_table = |column: &usize| !(above(column) || narrow && [EPOCH, INTERVAL].contains(&HEADER[*column]));
            let kept: Vec<usize> = columns.iter().copied().filter(in_table).collect();
            let right = kept.iter().enumerate().filter(|(_, column)| NUMBERS.contains(&HEADER[**column]));
            let right: Vec<usize> = right.map(|(at, _)| at).collect();
            let pick = |all: &[String]| kept.iter().map(|i| all[*i].clone()).collect::<Vec<_>>();
            let mut table = Table::new(kept.iter().map(|column| HEADER[*column])).right(right);
            for (bold, cells) in &rows {
                if *bold { table.bold_row(pick(cells)) } else { table.row(pick(cells)) }
            }
            let same: Vec<String> = columns
                .iter()
                .filter(|column| above(column))
                .filter_map(|column| Some(format!("{}: {}", HEADER[*column], rows.first()?.1[*column])))
                .collect();
            if self.groups.len() > 1 {
                parts.push(format!("Steps: {}", group.name()));
            }
            if !same.is_empty() {
                parts.push(format!("All rows: {}", same.join(" · ")));
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

/// Cells of a job of a pooled row, without ratios.
fn cells_of_part(part: &VariantRow) -> Vec<String> {
    let line = Line::new(part, false, None);
    cells(&line, false)
}

/// The cells of a line; `mixed_batches`: the ratios of it/s and samples/s differ in some line of its table.
fn cells(line: &Line, mixed_batches: bool) -> Vec<String> {
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
    let per_sample = line.ratio_samples_per_s.filter(|_| mixed_batches);
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
        row.utilisation().unwrap_or_else(missing),
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

impl Comparison {
    /// One line per row, raw values.
    fn csv(&self) -> String {
        let learned = self.rows().any(|row| row.learning.is_some());
        let epochs = self.rows().any(VariantRow::has_epochs);
        let emulates = self.rows().any(|row| row.emulation.is_some());
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
            "data_set",
            "group",
            "samples_per_s_ci_low",
            "samples_per_s_ci_high",
            "ci_scope",
            "percent",
            "paired",
            "p",
            "p_holm",
            "p_permutation",
            "detectable_ratio",
            "crosses",
            "confounds",
            "ms_per_sample",
        ];
        let more = ["pearson", "spearman", "mse"].into_iter().filter(|_| learned);
        let of_epochs = ["s_per_epoch", "s_per_epoch_ci_low", "s_per_epoch_ci_high", "s_per_epoch_class", "epochs"];
        let more = more.chain(of_epochs.into_iter().filter(|_| epochs));
        let of_emulation = ["emulated_step_ms", "au", "au_lowest_rank", "au_highest_rank"];
        let more = more.chain(of_emulation.into_iter().filter(|_| emulates));
        let mut table = Table::new(header.into_iter().chain(more));
        let number = |v: Option<f64>| v.map(|v| v.to_string()).unwrap_or_default();
        for (group, line) in self.groups.iter().flat_map(|g| g.lines.iter().map(move |l| (g, l))) {
            let row = &line.row;
            let waits = row.bottleneck.and_then(|b| b.waits_for);
            let works = row.bottleneck.and_then(|b| b.works_on);
            let stage = |part: Option<StageShare>| part.map(|p| p.stage.to_string()).unwrap_or_default();
            let rate = row.samples_per_s_rate.and_then(|rate| Some((rate.interval?, rate.scope)));
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
                number(row.ends_it_per_s().map(|r| r.0)),
                number(row.ends_it_per_s().map(|r| r.1)),
                number(row.median_samples_per_s()),
                number(row.ends_samples_per_s().map(|r| r.0)),
                number(row.ends_samples_per_s().map(|r| r.1)),
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
                row.settings.get("data.set").cloned().unwrap_or_default(),
                group.name(),
                number(rate.map(|(i, _)| i.low)),
                number(rate.map(|(i, _)| i.high)),
                rate.map(|(_, scope)| scope.words().to_owned()).unwrap_or_default(),
                number(line.percent),
                line.runs.map(|_| line.paired.to_string()).unwrap_or_default(),
                number(line.ratio_samples_per_s.and_then(|r| r.p)),
                number(line.p_holm),
                number(line.permutation.map(|test| test.p)),
                number(line.detectable),
                confound_words(&line.crosses),
                confound_words(&line.confounds),
                // A range has its ends in samples/s.
                number(row.ms_per_sample().filter(|(low, high)| low == high).map(|(ms, _)| ms)),
            ];
            if learned {
                let columns = row.learning.as_ref().map(Learning::columns);
                cells.extend((0..LEARNING_COLUMNS.len()).map(|i| number(columns.and_then(|all| all[i].1))));
            }
            if epochs {
                let interval = row.epoch_time.and_then(|time| time.time_s.interval);
                cells.push(number(row.epoch_time.map(|time| time.time_s.value)));
                cells.extend([number(interval.map(|i| i.low)), number(interval.map(|i| i.high))]);
                cells.push(row.epoch_time.map(|time| time.class().to_owned()).unwrap_or_default());
                cells.push(row.epoch_time.map(|time| time.epochs.to_string()).unwrap_or_default());
            }
            if emulates {
                let used = row.emulation.as_ref().and_then(|emulation| emulation.utilisation.as_ref());
                cells.push(number(row.emulation.as_ref().map(|emulation| emulation.mean_step_ms)));
                cells.push(number(used.map(|used| used.all_ranks)));
                cells.extend([number(used.map(|used| used.lowest_rank)), number(used.map(|used| used.highest_rank))]);
            }
            table.row(cells);
        }
        table.csv()
    }
}
