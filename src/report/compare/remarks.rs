use super::comparison::group_name;
use super::{Class, Comparison, Difference, Group, Line, Row};
use crate::report::cautions::grouped;
use crate::report::format;
use crate::stats::{MIN_RUNS_FOR_VERDICT, Verdict};

/// Settings across which a ratio is no effect of the method.
const CROSSED: [(&str, &str); 11] = [
    ("launch.ranks", "world size"),
    ("data.samples", "number of samples"),
    ("data.set", "data set"),
    ("data.scale", "scale of the graph"),
    ("data.networks", "set of network edges"),
    ("select.samples", "choice of samples"),
    ("select.subset", "size of the subset"),
    ("select.split", "split"),
    ("pipeline.edge_types", "set of edge types"),
    ("pipeline.metabolism", "graph (metabolism)"),
    ("device", "device"),
];

impl Comparison {
    /// What a reader must know, one sentence each.
    pub fn remarks(&self) -> Vec<String> {
        let mut all = Vec::new();
        let many = self.groups.len() > 1;
        for group in &self.groups {
            let of = if many { format!(" ({})", group_name(group)) } else { String::new() };
            if group.profiler {
                all.push(format!(
                    "set apart{of}: a profiler ran along, so these rows are not ranked against the others"
                ));
                continue;
            }
            on_baselines(group, &of, &mut all);
            on_ratios(group, &mut all);
            on_runs(group, &of, &mut all);
            on_differences(group, &of, &mut all);
        }
        if self.rows().any(|r| r.class == Class::Imported) {
            let text = "imported: published by others, not measured here; samples/s derived as it/s × batch × ranks";
            all.push(text.to_owned());
            all.extend(self.sources());
        }
        if self.rows().any(|r| r.class == Class::Measured) {
            let text = "measured: it/s of the slowest rank, samples/s summed over ranks, median over the n runs";
            all.push(text.to_owned());
        }
        if self.rows().any(|r| r.learning.is_some()) {
            let text = "Pearson, Spearman, MSE: on the validation set at the best epoch of each run, median over the runs; (1 of 3): only so many have the figure";
            all.push(text.to_owned());
        }
        all.extend(grouped(self.rows().map(|row| (row.name(), row.cautions.clone()))));
        for row in self.rows() {
            all.extend(row.notes.iter().map(|note| format!("{}: {note}", row.name())));
        }
        all
    }

    /// Each source once, behind the jobs that it published.
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

fn on_baselines(group: &Group, of: &str, all: &mut Vec<String>) {
    let bases: Vec<&Row> = group.lines.iter().filter(|l| l.baseline).map(|l| &l.row).collect();
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
        all.push(format!("no ratio, because the baseline was not run at the same point: {}", alone.join(", ")));
    }
}

fn on_ratios(group: &Group, all: &mut Vec<String>) {
    for line in &group.lines {
        let (Some(base), Some(it), Some(samples), Some(word)) =
            (group.base_of(line), line.ratio_it_per_s, line.ratio_samples_per_s, line.verdict)
        else {
            continue;
        };
        let name = line.row.name();
        if line.row.global_batch() != base.global_batch() {
            let (per_it, per_sample) = (format::ratio_with_interval(&it), format::ratio_with_interval(&samples));
            all.push(format!(
                "{name}: {per_it} per iteration, {per_sample} per sample (batch {} × {} against {} × {}); samples/s is what compares",
                line.row.batch_size, line.row.ranks, base.batch_size, base.ranks
            ));
        }
        if word != Verdict::TooFewRuns {
            let ratio = format::ratio_with_interval(&samples);
            let runs = format!("n = {} and {}", line.row.n, base.n);
            all.push(format!("{name}: {} {}, {ratio} in samples/s ({runs})", word.against(), base.name()));
        }
    }
}

fn on_runs(group: &Group, of: &str, all: &mut Vec<String>) {
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
        all.push(format!(
            "too few runs for a verdict in some rows{of}: {MIN_RUNS_FOR_VERDICT} are needed on both sides"
        ));
    }
}

fn on_differences(group: &Group, of: &str, all: &mut Vec<String>) {
    if group.lines.len() < 2 {
        return;
    }
    if !group.differences.is_empty() {
        let words: Vec<String> = group.differences.iter().map(Difference::words).collect();
        all.push(format!("not the same in all rows{of} besides the method: {}", words.join(", ")));
    }
    if !group.unknown.is_empty() {
        all.push(format!("not known for all rows{of}, so they may differ: {}", group.unknown.join(", ")));
    }
    // Of each row and the one that its ratio refers to: rows at other points of a sweep may well differ.
    let sides = || group.lines.iter().filter_map(|l| Some((&l.row.settings, &group.base_of(l)?.settings)));
    let crossed = |key: &str| {
        sides().any(|(row, base)| row.get(key).zip(base.get(key)).is_some_and(|(of_row, of_base)| of_row != of_base))
    };
    let flags: Vec<&str> = CROSSED.iter().filter(|(key, _)| crossed(key)).map(|(_, words)| *words).collect();
    if !flags.is_empty() {
        all.push(format!("ratios{of} cross a different {}: they are no effect of the method alone", flags.join(", ")));
    }
}
