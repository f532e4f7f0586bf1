//! The remarks below a comparison: what a reader must know, one sentence each.

use expctl_stats::Verdict;
use expctl_text::format;

use super::comparison::{Comparison, Group};
use super::decomposition;
use crate::report::differences::{Difference, rows_differ_in};
use crate::report::emulation::AU_MEANING;
use crate::report::line::{Line, RatioWords, needed, percent_words};
use crate::report::variant_row::{RateClass, VariantRow};
use crate::report::warning::{RatioInterval, Warning, merged, sort_by_effect};

impl Comparison {
    /// All remarks, one sentence each.
    pub fn remarks(&self) -> Vec<String> {
        let mut all = Vec::new();
        let many = self.groups.len() > 1;
        for group in &self.groups {
            let of = if many { format!(" ({})", group.name()) } else { String::new() };
            if group.profiler {
                let alone = self.groups.iter().all(|group| group.profiler);
                profiler_remarks(group, &of, alone, &mut all);
                difference_remarks(group, &of, &mut all);
                continue;
            }
            baseline_remarks(group, &of, &mut all);
            ratio_remarks(group, &mut all);
            run_remarks(group, &of, &mut all);
            difference_remarks(group, &of, &mut all);
        }
        if self.lines().any(|line| line.ratio_samples_per_s.is_some()) {
            let text = "in brackets (derived): how many times as fast as the baseline (bold), so above 1 is faster and below 1 slower; of storage, how many times as large";
            all.push(text.to_owned());
        }
        all.extend(decomposition::remarks(&self.decompositions));
        all.extend(self.published.remarks());
        all.extend(self.rows().filter_map(pooled));
        if self.lines().any(|line| line.row.samples_per_s_rate.is_some_and(|rate| rate.interval.is_some())) {
            let text = "95 % (samples/s): confidence interval of the mean rate across runs (with one run: across its steps, so not valid for other runs)";
            all.push(text.to_owned());
        }
        if self.rows().any(|r| r.class == RateClass::Imported) {
            let text = "imported: published by others, not measured here; of it/s and samples/s the source gives one, the other follows by batch × ranks; ms/sample is ranks over samples/s";
            all.push(text.to_owned());
            all.extend(self.sources());
        }
        if self.rows().any(|r| r.class == RateClass::Measured) {
            let text = "measured: it/s of the slowest rank, samples/s summed over ranks, median over the n runs; ms/sample (derived): ranks over samples/s";
            all.push(text.to_owned());
        }
        if self.rows().any(|r| r.emulation.is_some()) {
            all.push(AU_MEANING.to_owned());
            let said = |row: &VariantRow| Some(format!("{}: {}", row.name(), row.emulation.as_ref()?.sentence()));
            all.extend(self.rows().filter_map(said));
        }
        if self.rows().any(|r| r.learning.is_some()) {
            let text = "Pearson, Spearman, MSE: on the validation set at the best epoch of each run, median over the runs; (1 of 3): only so many have the figure";
            all.push(text.to_owned());
        }
        all.extend(self.warnings().into_iter().map(|warning| warning.text));
        for row in self.rows() {
            all.extend(row.notes.iter().map(|note| format!("{}: {note}", row.name())));
        }
        all
    }

    /// Warnings of the rows, one for each cause, those that forbid or change a verdict first.
    pub fn warnings(&self) -> Vec<Warning> {
        let ratios: Vec<RatioInterval> =
            self.lines().filter_map(|line| RatioInterval::from_line(line, VariantRow::name)).collect();
        let found = self.rows().flat_map(|row| row.cautions.iter().map(|caution| (row.name(), caution.clone())));
        let mut all = merged(found, &ratios);
        sort_by_effect(&mut all);
        all
    }

    /// Each source once, after the jobs that it published.
    fn sources(&self) -> Vec<String> {
        let mut found: Vec<(_, Vec<&str>)> = Vec::new();
        for row in self.rows() {
            let Some(source) = &row.source else { continue };
            let job = row.job.as_str();
            match found.iter_mut().find(|(s, _)| *s == source) {
                Some((_, jobs)) if jobs.contains(&job) => {}
                Some((_, jobs)) => jobs.push(job),
                None => found.push((source, vec![job])),
            }
        }
        found
            .into_iter()
            .map(|(s, jobs)| format!("{}: {} ({}), {}", jobs.join(", "), s.title, s.date, s.from))
            .collect()
    }
}

fn baseline_remarks(group: &Group, of: &str, all: &mut Vec<String>) {
    let bases: Vec<&VariantRow> = group.lines.iter().filter(|l| l.baseline).map(|l| &l.row).collect();
    let Some(base) = bases.first() else {
        let Some((row, name)) = group.lines.iter().find_map(|l| Some((&l.row, l.row.job_baseline.as_ref()?))) else {
            return;
        };
        if !row.job_baseline_ran {
            all.push(format!("the baseline `{name}` of job {} was not run, so there are no ratios{of}", row.job));
        } else if group.lines.len() > 1 {
            all.push(format!("the baseline `{name}` of job {} is not among these rows: no ratios{of}", row.job));
        }
        return;
    };
    if let Some(name) = base.job_baseline.as_ref().filter(|name| **name != base.variant) {
        let why = if base.job_baseline_ran { "is not among these rows" } else { "was not run" };
        all.push(format!("the baseline `{name}` of job {} {why}: ratios{of} refer to `{}`", base.job, base.variant));
    }
    let alone: Vec<String> =
        group.lines.iter().filter(|l| !l.baseline && l.base.is_none()).map(|l| l.row.name()).collect();
    if !alone.is_empty() {
        all.push(format!("no ratio, because the baseline was not run at the same point: {}", format::listed(&alone)));
    }
}

fn ratio_remarks(group: &Group, all: &mut Vec<String>) {
    let tested = group.lines.iter().filter(|line| line.p_holm.is_some()).count();
    for line in &group.lines {
        let (Some(base), Some(it), Some(samples)) = (&line.base, line.ratio_it_per_s, line.ratio_samples_per_s) else {
            continue;
        };
        let (name, base_name) = (line.row.name(), base.name());
        if line.mixed_batch() {
            let (per_it, per_sample) = (format::ratio_with_interval(&it), format::ratio_with_interval(&samples));
            all.push(format!(
                "‡ {name}: {per_it} per iteration, {per_sample} per sample (batch {} × {} against {} × {}); samples/s is what compares",
                line.row.batch_size, line.row.ranks, base.batch_size, base.ranks
            ));
        }
        let words = RatioWords { line, name: &name, base: &base_name, tested };
        all.extend(words.sentence(true));
    }
}

fn run_remarks(group: &Group, of: &str, all: &mut Vec<String>) {
    if group.lines.len() < 2 {
        return;
    }
    let every = |test: fn(usize) -> bool| group.lines.iter().all(|l| test(l.row.n));
    let short = |l: &Line| l.verdict == Some(Verdict::TooFewRuns);
    if every(|n| n == 0) {
        all.push(format!("n = 0 in every row{of}: no run completed, so there are no figures"));
    } else if every(|n| n == 1) {
        all.push(format!("n = 1 in every row{of}: no verdict, the ratios have no interval"));
    } else if group.lines.iter().any(short) {
        all.push(format!("too few runs for a verdict in some rows{of}: {}", needed()));
    }
}

/// Settings that differ in a group without ratios.
fn difference_remarks(group: &Group, of: &str, all: &mut Vec<String>) {
    if group.lines.len() < 2 || group.lines.iter().any(|line| line.ratio_samples_per_s.is_some()) {
        return;
    }
    if !group.differences.is_empty() {
        let words: Vec<String> = group.differences.iter().map(Difference::words).collect();
        let rows: Vec<&VariantRow> = group.lines.iter().map(|line| &line.row).collect();
        all.push(format!("rows{of} {}: {}", rows_differ_in(&rows), words.join(", ")));
    }
    if !group.unknown.is_empty() {
        all.push(format!("not known for all rows{of}, so they may differ: {}", group.unknown.join(", ")));
    }
}

/// Remarks on profiled rows; `alone`: no row of the comparison ran without a profiler.
fn profiler_remarks(group: &Group, of: &str, alone: bool, all: &mut Vec<String>) {
    let why = if alone {
        "its cost is in these times, so these rows have no ratios"
    } else {
        "so these rows are not ranked against the others"
    };
    all.push(format!("set apart{of}: a profiler ran along, {why}"));
    all.extend(group.lines.iter().map(profiler_cost));
    let measured: Vec<&VariantRow> = group
        .lines
        .iter()
        .map(|line| &line.row)
        .filter(|row| row.class == RateClass::Measured && row.parts.is_empty())
        .collect();
    let mut jobs: Vec<&str> = measured.iter().map(|row| row.job.as_str()).collect();
    jobs.dedup();
    if measured.len() > 1 {
        all.push(format!(
            "`expctl trace {}` compares what the profiler recorded{of}: stages and operations",
            jobs.join(" ")
        ));
    }
}

/// Upper bound for the cost of a profiler: other settings that differ count too.
fn profiler_cost(line: &Line) -> String {
    let name = line.row.name();
    let Some(((low, high), against)) = line.with_profiler.zip(line.against.as_ref()) else {
        return format!(
            "profiler on in {name}: what it costs is not known, no row of the same variant ran without one"
        );
    };
    let shown = |ratio: f64| match percent_words((ratio - 1.0) * 100.0) {
        Some(percent) => format!("{} ({percent})", format::ratio(ratio)),
        None => format::ratio(ratio),
    };
    let rate = match (line.profiler_ratio.filter(|ratio| ratio.interval.is_some()), line.profiler_runs) {
        (Some(ratio), Some((n, base_n))) => {
            let percent =
                percent_words((ratio.value - 1.0) * 100.0).map(|said| format!("{said}; ")).unwrap_or_default();
            format!("{} ({percent}n = {n} and {base_n})", format::ratio_with_interval(&ratio))
        }
        _ if low == high => shown(low),
        _ => format!("{} to {}", shown(low), shown(high)),
    };
    let words = RatioWords { line, name: &name, base: against, tested: 0 };
    let mut said =
        vec![format!("profiler on in {name}: {rate} of {against} without one, in samples/s; no ratio of the method")];
    said.extend(words.differing());
    said.join("; ")
}

/// The rates of the single jobs of a pooled row.
fn pooled(row: &VariantRow) -> Option<String> {
    if row.parts.is_empty() {
        return None;
    }
    let one = |part: &VariantRow| {
        let rate = part.median_it_per_s().map_or_else(|| format::MISSING.to_owned(), format::rate);
        format!("{rate} in job {} (n = {})", part.job, part.n)
    };
    let parts: Vec<String> = row.parts.iter().map(one).collect();
    let ends = row.ends_it_per_s().map(|(low, high)| format!(", {} over all {} runs", format::range(low, high), row.n));
    Some(format!("{}: median it/s {}{}", row.name(), parts.join(", "), ends.unwrap_or_default()))
}
