//! Differences between modes: variants that ran in several modes, taken apart.

use std::collections::{BTreeMap, BTreeSet};

use expctl_stats::{Interval, Ratio, difference, mean, paired_difference};
use expctl_text::Table;
use expctl_text::format::{self, MISSING};
use serde::Serialize;

use super::comparison::Group;
use crate::report::breakdown::ISOLATION_MODES;
use crate::report::differences::Confound;
use crate::report::line::{Line, pairs};
use crate::report::variant_row::{RateClass, VariantRow};

/// Mode of published "data only" runs, which include a step on a loss of zero.
const ZERO_LOSS: &str = "zero_loss";

/// The time that one mode takes more than another, ms.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepPart {
    /// Its name: `data pipeline`, `data pipeline (zero loss)`, `forward`, `forward and backward`.
    pub part: String,
    /// The mode without it; `None` for the data pipeline, which is no difference.
    pub less: Option<String>,
    /// The mode with it.
    pub more: String,
    /// Mean step of the one mode less that of the other, ms.
    pub ms_per_step: f64,
    /// Its 95 % interval: of pairs if the modes took turns, else Welch's; `None` below two runs in both.
    pub interval: Option<Interval>,
    /// The same per sample of a rank's batch, ms.
    pub ms_per_sample: f64,
    /// Number of runs in the two modes, or in the one of the data pipeline.
    pub n: Vec<usize>,
    /// Ratio to the baseline: its ms per step over these. `None` for the baseline, and if one of them is not above 0.
    pub ratio_per_step: Option<f64>,
    /// Ratio to the baseline, by ms per sample.
    pub ratio_per_sample: Option<f64>,
    /// Class settings in which the two variants differ in these modes; empty if the ratio is within one class.
    pub crosses: Vec<Confound>,
}

/// How much of loading is hidden behind the rest of the step, ms per step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overlap {
    /// The longest mode that ran.
    pub mode: String,
    /// Exposed time of loading in the mode data.
    pub alone: f64,
    /// Exposed time of loading in `mode`.
    pub waited: f64,
}

/// The parts of a step of a variant by differences of modes. Derived: with loader threads a difference of two modes is not the cost of
/// the part, because loading overlaps computing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decomposed {
    /// Job.
    pub job: String,
    /// Variant, with its swept settings but for the mode.
    pub variant: String,
    /// Name in the source or config.
    pub method: String,
    /// Its swept settings but for the mode.
    #[serde(skip)]
    point: BTreeMap<String, String>,
    /// Whether ratios refer to it.
    pub baseline: bool,
    /// Origin of the rates.
    pub class: RateClass,
    /// Samples of a rank's batch.
    pub batch_size: u64,
    /// Its parts, in the order of a step.
    pub parts: Vec<StepPart>,
    /// Overlap of loading; `None` if exposed times are not known.
    pub overlap: Option<Overlap>,
}

/// The variants that ran in the mode data (or zero_loss instead) and in another one.
pub(super) fn decompositions(groups: &[Group]) -> Vec<Decomposed> {
    let mut found: Vec<(VariantKey<'_>, Vec<&Line>)> = Vec::new();
    let mut index_by_key: BTreeMap<VariantKey<'_>, usize> = BTreeMap::new();
    for line in groups.iter().filter(|group| !group.profiler).flat_map(|group| &group.lines) {
        let key = VariantKey::from_row(&line.row);
        let index = *index_by_key.entry(key.clone()).or_insert_with(|| {
            found.push((key, Vec::new()));
            found.len() - 1
        });
        found[index].1.push(line);
    }
    let mut all: Vec<Decomposed> = found.iter().filter_map(|(key, lines)| decomposed(key, lines)).collect();
    for (at, base) in baseline_indices(&all).into_iter().enumerate() {
        let base = base.filter(|base| *base != at);
        let Some(base) = base.map(|base| all[base].parts.clone()) else { continue };
        for part in &mut all[at].parts {
            let Some(of_base) = base.iter().find(|other| other.part == part.part) else { continue };
            let ratio = |base: f64, part: f64| (base > 0.0 && part > 0.0).then(|| base / part);
            part.ratio_per_step = ratio(of_base.ms_per_step, part.ms_per_step);
            part.ratio_per_sample = ratio(of_base.ms_per_sample, part.ms_per_sample);
        }
    }
    all
}

/// Index of the first baseline of the same job and point, for each of `all`.
fn baseline_indices(all: &[Decomposed]) -> Vec<Option<usize>> {
    let mut index_by_point: BTreeMap<(&str, &BTreeMap<String, String>), usize> = BTreeMap::new();
    for (index, one) in all.iter().enumerate().filter(|(_, one)| one.baseline) {
        index_by_point.entry((one.job.as_str(), &one.point)).or_insert(index);
    }
    all.iter().map(|one| index_by_point.get(&(one.job.as_str(), &one.point)).copied()).collect()
}

/// Identity of a variant at a point of its sweep, without the mode.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct VariantKey<'a> {
    job: &'a str,
    variant: &'a str,
    method: &'a str,
    method_has_point: bool,
    point: BTreeMap<&'a str, &'a str>,
}

impl<'a> VariantKey<'a> {
    fn from_row(row: &'a VariantRow) -> Self {
        let point = row.point.iter().filter(|(key, _)| *key != "train.mode");
        let point: BTreeMap<&str, &str> = point.map(|(key, value)| (key.as_str(), value.as_str())).collect();
        // A swept mode is part of the method.
        let mode_is_swept = row.point.contains_key("train.mode");
        let method = if mode_is_swept { row.variant.as_str() } else { row.method.as_str() };
        let method_has_point = !mode_is_swept;
        Self { job: &row.job, variant: &row.variant, method, method_has_point, point }
    }
}

fn decomposed(key: &VariantKey<'_>, lines: &[&Line]) -> Option<Decomposed> {
    let in_mode =
        |mode: &str| lines.iter().copied().find(|line| line.row.mode == mode && !line.row.it_per_s.is_empty());
    let (data_mode, data_part) = ISOLATION_MODES[0];
    let data = in_mode(data_mode.name()).or_else(|| in_mode(ZERO_LOSS))?;
    let is_data = data.row.mode == data_mode.name();
    // The slowest rank's mean step, a value for each run.
    let times = |line: &Line| line.row.it_per_s.iter().map(|rate| 1e3 / rate).collect::<Vec<f64>>();
    let per_sample = |ms: f64| ms / data.row.batch_size as f64;
    let alone = mean(&times(data))?;
    let mut parts = vec![StepPart {
        part: if is_data { data_part.to_owned() } else { format!("{data_part} (zero loss)") },
        less: None,
        more: data.row.mode.clone(),
        ms_per_step: alone,
        interval: None,
        ms_per_sample: per_sample(alone),
        n: vec![data.row.n],
        ratio_per_step: None,
        ratio_per_sample: None,
        crosses: crosses(&[data]),
    }];
    let (mut before, mut names) = (data, Vec::new());
    for (mode, name) in &ISOLATION_MODES[1..] {
        names.push(*name);
        // Steps with other batches cannot be subtracted.
        let same = |line: &&Line| line.row.batch_size == data.row.batch_size && line.row.ranks == data.row.ranks;
        let Some(line) = in_mode(mode.name()).filter(same) else { continue };
        let turns: Vec<(f64, f64)> = pairs(&line.row, &before.row, |row| &row.it_per_s);
        let turns: Vec<(f64, f64)> = turns.into_iter().map(|(more, less)| (1e3 / more, 1e3 / less)).collect();
        let more = match turns.len() {
            0 | 1 => difference(&times(line), &times(before)),
            _ => paired_difference(&turns),
        };
        let Some(more) = more else { continue };
        parts.push(StepPart {
            part: names.join(" and "),
            less: Some(before.row.mode.clone()),
            more: line.row.mode.clone(),
            ms_per_step: more.value,
            interval: more.interval,
            ms_per_sample: per_sample(more.value),
            n: vec![line.row.n, before.row.n],
            ratio_per_step: None,
            ratio_per_sample: None,
            crosses: crosses(&[before, line]),
        });
        (before, names) = (line, Vec::new());
    }
    if parts.len() < 2 {
        return None;
    }
    // A step on a loss of zero hides some of loading, too.
    let waits = data.row.waits_for_data_ns.filter(|_| is_data).zip(before.row.waits_for_data_ns);
    let settings: Vec<String> = key.point.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let point = if settings.is_empty() { String::new() } else { format!(" ({})", settings.join(", ")) };
    Some(Decomposed {
        job: key.job.to_owned(),
        variant: format!("{}{point}", key.variant),
        method: if key.method_has_point { key.method.to_owned() } else { format!("{}{point}", key.method) },
        point: key.point.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        // Ratios are within a job, so the base of a class counts.
        baseline: data.baseline,
        class: data.row.class,
        batch_size: data.row.batch_size,
        parts,
        overlap: waits.map(|(alone, waited)| Overlap {
            mode: before.row.mode.clone(),
            alone: alone / 1e6,
            waited: waited / 1e6,
        }),
    })
}

/// Class settings that the ratios of some lines cross, each once.
fn crosses(lines: &[&Line]) -> Vec<Confound> {
    let mut all: Vec<Confound> = Vec::new();
    for confound in lines.iter().flat_map(|line| &line.crosses) {
        if !all.contains(confound) {
            all.push(confound.clone());
        }
    }
    all
}

/// Variants beside each other, a row for each part.
pub(super) fn table(all: &[Decomposed]) -> Table {
    let header = [
        "Job ID",
        "Method",
        "Part",
        "ms/step",
        "ms/sample",
        "× faster (ms/step)",
        "× faster (ms/sample)",
        "Figures",
        "n",
    ];
    let mut table = Table::new(header);
    let mut batch_sizes: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for one in all {
        batch_sizes.entry(&one.job).or_default().insert(one.batch_size);
    }
    for one in all {
        let batches = batch_sizes.get(one.job.as_str()).is_some_and(|sizes| sizes.len() > 1);
        for part in &one.parts {
            let ms = |ms: f64| format::milliseconds(ms * 1e6);
            let shown = match part.interval {
                Some(i) => format!("{} [{} to {}]", ms(part.ms_per_step), ms(i.low), ms(i.high)),
                None => ms(part.ms_per_step),
            };
            let across = if part.crosses.is_empty() { "" } else { " †" };
            let ratio = |ratio: Option<f64>| match ratio {
                Some(value) => {
                    format!("{}{across}", format::times_as_fast(&Ratio { value, interval: None, p: None }))
                }
                None => MISSING.to_owned(),
            };
            // Steps with other batches do other work.
            let mark = if batches && part.ratio_per_step.is_some() { " ‡" } else { "" };
            let class = if part.less.is_some() { "derived" } else { one.class.name() };
            let n: Vec<String> = part.n.iter().map(usize::to_string).collect();
            let cells = [
                one.job.clone(),
                one.method.clone(),
                part.part.clone(),
                shown,
                ms(part.ms_per_sample),
                format!("{}{mark}", ratio(part.ratio_per_step)),
                ratio(part.ratio_per_sample),
                class.to_owned(),
                n.join(" and "),
            ];
            if one.baseline { table.bold_row(cells) } else { table.row(cells) }
        }
    }
    table
}

/// Remarks, one sentence each.
pub(super) fn remarks(all: &[Decomposed]) -> Vec<String> {
    if all.is_empty() {
        return Vec::new();
    }
    let mut remarks = vec![
        "difference of variants (derived): the mean step of one mode less that of the one with less in it; × faster: the baseline's time over the row's, so above 1 is faster".to_owned(),
    ];
    if all.iter().any(|one| one.parts[0].more == ZERO_LOSS) {
        remarks.push(
            "zero loss: these steps ran no model, but went back from a loss of zero and stepped the optimizer; so the data pipeline takes less \
             than they do, and what stands below it is more than its difference"
                .to_owned(),
        );
    }
    let ms = |ms: f64| format::milliseconds(ms * 1e6);
    for one in all {
        let name = format!("{} {}", one.job, one.method);
        remarks.push(match &one.overlap {
            Some(Overlap { mode, alone, waited }) if waited <= alone => format!(
                "{name}: data alone costs {} ms a step; a step of {mode} waits {} ms for it, so {} ms are hidden behind the rest of the step",
                ms(*alone),
                ms(*waited),
                ms(alone - waited)
            ),
            Some(Overlap { mode, alone, waited }) => format!(
                "{name}: data alone costs {} ms a step; a step of {mode} waits {} ms for it, {} ms more: loading and computing share processors",
                ms(*alone),
                ms(*waited),
                ms(waited - alone)
            ),
            None => continue,
        });
    }
    let open: Vec<String> =
        all.iter().filter(|one| one.overlap.is_none()).map(|one| format!("{} {}", one.job, one.method)).collect();
    if !open.is_empty() {
        remarks.push(format!(
            "{}: how much of loading is hidden behind computing is not known, so a difference need not be what its part costs",
            open.join(", ")
        ));
    }
    remarks
}
