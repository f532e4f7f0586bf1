//! A row of a report: one variant of a job at one point of its sweep, with its rates and all that explains them.

use std::collections::BTreeMap;
use std::sync::Arc;

use expctl_ledger::{MeasuredJob, PublishedRow, PublishedSource, RateReading, Rates, Run, RunTotals};
use expctl_settings::{Estimator, ISOLATION_SUFFIX, NO_DATA_SET, Processor, Slurm};
use expctl_stats::{Estimate, MIN_SECONDS_FOR_VERDICT, RateOverRuns, median, rate_over_runs};
use serde::{Serialize, Serializer};

use super::attempts::attempt_sentences;
use super::bottleneck::{Bottleneck, MasksBy, Oversubscription};
use super::breakdown::Breakdown;
use super::caution::{Caution, cautions, sentences};
use super::emulation::Emulation;
use super::epoch_time::EpochTime;
use super::learning::Learning;
use super::rates::{EstimatedRate, batch_bytes, completed_steps, measured_s};
use super::side_by_side::{AloneRuns, Interference, Pack, packs};
use crate::ledger::{run_settings, setting_text};

/// Origin of the figures of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateClass {
    /// Measured here.
    Measured,
    /// Published by others.
    Imported,
}

impl RateClass {
    /// Its word in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Imported => "imported",
        }
    }
}

/// One row of a comparison: a variant of a job, at one point of a sweep.
#[derive(Clone, Debug, Serialize)]
pub struct VariantRow {
    /// Job number, or several published together.
    pub job: String,
    /// Name of the config.
    pub config: String,
    /// Variant, with its swept settings; empty for the only row of a published job.
    pub label: String,
    /// Name in the source or config, with its swept settings.
    pub method: String,
    /// Origin of the figures.
    pub class: RateClass,
    /// The processor that made its batches; `None` for imported rows.
    #[serde(skip)]
    pub processor: Option<Processor>,
    /// Mode: what a step does.
    pub mode: String,
    /// True if a profiler ran along.
    pub profiler: bool,
    /// The variant; empty for the only row of a published job.
    pub variant: String,
    /// Its swept settings, by key.
    pub point: BTreeMap<String, String>,
    /// The baseline that the config of its job names.
    pub job_baseline: Option<String>,
    /// False if that variant is not in the job.
    pub job_baseline_ran: bool,
    /// Number of values behind the figures: of runs, or of packs of runs side by side.
    pub n: usize,
    /// Iterations per second, one value per run; of runs side by side one per pack.
    pub it_per_s: Vec<f64>,
    /// Samples per second over all ranks, one value per run or pack.
    pub samples_per_s: Vec<f64>,
    /// Repeat of each of these values, of a pack that of its first run; empty for imported rows.
    pub repeats: Vec<u32>,
    /// True if the trials of the job took turns in one allocation.
    pub interleaved: bool,
    /// it/s with its interval, over the runs or within a single run; `None` for imported rows.
    pub it_per_s_rate: Option<RateOverRuns>,
    /// Samples/s with its interval.
    pub samples_per_s_rate: Option<RateOverRuns>,
    /// Lowest and highest it/s, if the source gives only these.
    pub range: Option<(f64, f64)>,
    /// Samples per second that belong to `range`.
    pub samples_range: Option<(f64, f64)>,
    /// Validation figures at the best epoch; `None` without epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning: Option<Learning>,
    /// Time of an epoch; `None` for imported rows, and if the length of an epoch is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_time: Option<EpochTime>,
    /// Size of the store on disk, bytes; of an imported row, the published size of its data set.
    pub storage_bytes: Option<f64>,
    /// Size of a rank's collated batch, bytes; mean over the measured steps.
    pub batch_bytes: Option<f64>,
    /// Exposed time of loading and of the copy to the device in the mean step, ns; `None` for imported rows.
    pub waits_for_data_ns: Option<f64>,
    /// Its emulated steps, and how well they use the accelerator; `None` if they are not emulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulation: Option<Emulation>,
    /// What running side by side costs its trials; `None` if they ran alone, and if the job has no trial of it that did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interference: Option<Interference>,
    /// Bottleneck of a step; `None` for imported rows and without completed runs.
    pub bottleneck: Option<Bottleneck>,
    /// Total time of a rank in its steps; `None` for imported rows and without completed runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<RunTotals>,
    /// Samples per rank and iteration.
    pub batch_size: u64,
    /// Processes.
    pub ranks: u64,
    /// Loader threads of a rank; of imported rows its loader processes.
    pub workers: Option<u64>,
    /// Folder of the data set; `own files` for files of the user.
    pub data_dir: Option<String>,
    /// All settings that may explain a difference; shared, because a row is copied beside those that it is compared with.
    #[serde(serialize_with = "plain_settings")]
    pub settings: Arc<BTreeMap<String, String>>,
    /// Known defects and gaps.
    pub notes: Vec<String>,
    /// Measured time of each run, s: summed wall time of its measured steps; empty for imported rows.
    pub measured_s: Vec<f64>,
    /// Cautions on the figures.
    #[serde(serialize_with = "sentences")]
    pub cautions: Vec<Caution>,
    /// How the rate was computed.
    pub estimator: String,
    /// For an imported row: the estimator that computes a rate in the same way from measured steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches_estimator: Option<Estimator>,
    /// Rates by the published estimators of the config; empty for imported rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub estimated: Vec<EstimatedRate>,
    /// For an imported row: variants here that repeat it, as `config.variant`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repeated_by: Vec<String>,
    /// The mean step by stage; `None` for imported rows and without completed runs.
    #[serde(skip)]
    pub breakdown: Option<Breakdown>,
    /// Source of an imported row.
    pub source: Option<PublishedSource>,
    /// Trials that did not complete.
    pub incomplete: usize,
    /// The rows of the single jobs, if this one pools several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<VariantRow>,
}

impl VariantRow {
    /// Samples per iteration over all ranks.
    pub fn global_batch(&self) -> u64 {
        self.batch_size * self.ranks
    }

    /// Trials of its job that ran side by side, as its settings have it; `None` for imported rows.
    pub fn side_by_side(&self) -> Option<&str> {
        self.settings.get(Slurm::PACK.name()).map(String::as_str)
    }

    /// What [`Self::n`] counts: what ran side by side is one value.
    pub fn counted(&self) -> &'static str {
        if self.side_by_side().is_some_and(|pack| pack != "1") { "pack" } else { "run" }
    }

    /// Accelerator utilisation of emulated steps, in words; `None` for other steps, and without a completed run.
    pub fn utilisation(&self) -> Option<String> {
        Some(self.emulation.as_ref()?.utilisation.as_ref()?.words())
    }

    /// Whether whole epochs were timed.
    pub fn has_epochs(&self) -> bool {
        self.epoch_time.is_some_and(|time| time.measured())
    }

    /// Whether both rows were measured with the same processor: then the settings in which they differ are the subject of the comparison.
    pub fn same_processor(&self, other: &Self) -> bool {
        self.processor.is_some() && self.processor == other.processor
    }

    /// Whether it is a measured row of a variant in `names`, each a `config.variant`. A job that isolates another counts as that one.
    pub fn is_named(&self, names: &[String]) -> bool {
        let config = self.config.strip_suffix(ISOLATION_SUFFIX).unwrap_or(&self.config);
        let mut named = names.iter().filter_map(|name| name.rsplit_once('.'));
        self.class == RateClass::Measured
            && named.any(|(of, variant)| variant == self.variant && (of == config || of == self.config))
    }

    /// Whether it is a measured row that repeats a published one: by name, or by the same variant.
    pub fn repeats(&self, names: &[String], variant: &str) -> bool {
        let alike = self.class == RateClass::Measured && !variant.is_empty() && self.variant == variant;
        alike || self.is_named(names)
    }

    /// Median it/s over the runs.
    pub fn median_it_per_s(&self) -> Option<f64> {
        median(&self.it_per_s)
    }

    /// Median samples/s over the runs.
    pub fn median_samples_per_s(&self) -> Option<f64> {
        median(&self.samples_per_s)
    }

    /// Lowest and highest it/s over the runs, or as published; `None` for a single value.
    pub fn ends_it_per_s(&self) -> Option<(f64, f64)> {
        self.range.or_else(|| ends(&self.it_per_s))
    }

    /// Lowest and highest samples/s.
    pub fn ends_samples_per_s(&self) -> Option<(f64, f64)> {
        self.samples_range.or_else(|| ends(&self.samples_per_s))
    }

    /// Time of a rank per sample, ms: ranks over samples/s, at the median or at both ends of a published range, the smaller first. `None`
    /// without a rate.
    pub fn ms_per_sample(&self) -> Option<(f64, f64)> {
        let (low, high) = self.median_samples_per_s().map(|rate| (rate, rate)).or(self.samples_range)?;
        self.ms_per_sample_at(high).zip(self.ms_per_sample_at(low))
    }

    /// Time of a rank per sample at a given rate, ms; `None` for a rate of 0.
    pub fn ms_per_sample_at(&self, samples_per_s: f64) -> Option<f64> {
        (samples_per_s > 0.0).then(|| 1e3 * self.ranks as f64 / samples_per_s)
    }

    /// Measured time of its shortest run, s, if that is too short for a verdict.
    pub fn too_short(&self) -> Option<f64> {
        self.measured_s.iter().copied().reduce(f64::min).filter(|seconds| *seconds < MIN_SECONDS_FOR_VERDICT)
    }

    /// Ratio of the storage to that of `base`; `None` if one of them is not known.
    pub fn storage_ratio(&self, base: &Self) -> Option<f64> {
        Some(self.storage_bytes? / base.storage_bytes.filter(|bytes| *bytes > 0.0)?)
    }

    /// How the row is called in a sentence: `525 086a DANGO`.
    pub fn name(&self) -> String {
        format!("{} {} {}", self.job, self.config, self.method)
    }
}

/// Serialize shared settings as if they were not shared.
fn plain_settings<S: Serializer>(settings: &BTreeMap<String, String>, to: S) -> Result<S::Ok, S::Error> {
    settings.serialize(to)
}

/// Lowest and highest of several values.
fn ends(values: &[f64]) -> Option<(f64, f64)> {
    let fold = |of: fn(f64, f64) -> f64| values.iter().copied().reduce(of);
    fold(f64::min).zip(fold(f64::max)).filter(|_| values.len() > 1)
}

/// The rows of a measured job.
pub fn measured_rows(job: &MeasuredJob) -> Vec<VariantRow> {
    let alone = AloneRuns::of_job(job);
    let row = |(label, runs): &(String, Vec<&Run>)| {
        let mut row = measured_row(job, label.clone(), runs);
        match Interference::from_runs(&alone, runs) {
            Some(Ok(found)) => row.interference = Some(found),
            Some(Err(why)) => row.notes.push(why),
            None => {}
        }
        row
    };
    // A job may have thousands of variants and points.
    parallel_map::map(&job.by_label(), row)
}

fn reading_point(reading: &RateReading) -> (String, String) {
    ("reading".to_owned(), reading.name().to_owned())
}

/// The row of a published result.
pub fn published_row(row: &PublishedRow) -> VariantRow {
    let (low, high) = row.it_per_s;
    // A published range has no median: it is shown, and enters no ratio.
    let rates = if low == high { vec![low] } else { Vec::new() };
    let range = (low != high).then_some((low, high));
    let batch = row.global_batch() as f64;
    VariantRow {
        job: row.job_name(),
        config: row.config.clone(),
        label: row.variant.clone(),
        method: row.reading.map_or_else(|| row.method.clone(), |r| format!("{}, {}", row.method, r.words())),
        class: RateClass::Imported,
        processor: None,
        mode: row.mode.clone(),
        profiler: row.profiler,
        variant: row.variant.clone(),
        // Rates are compared with those that were read from a log in the same way; the right way stands for all.
        point: row.reading.filter(|r| *r != RateReading::Training).iter().map(reading_point).collect(),
        job_baseline: None,
        job_baseline_ran: true,
        // A range over jobs is one run of each; any other figure is of one run.
        n: if range.is_some() { row.jobs.len() } else { 1 },
        samples_per_s: rates.iter().map(|r| r * batch).collect(),
        it_per_s: rates,
        repeats: Vec::new(),
        interleaved: false,
        it_per_s_rate: None,
        samples_per_s_rate: None,
        range,
        learning: None,
        epoch_time: None,
        samples_range: range.map(|(low, high)| (low * batch, high * batch)),
        storage_bytes: row.storage_gb.map(|gb| gb * 1e9),
        batch_bytes: row.batch_mib.map(|mib| mib * f64::from(1 << 20)),
        waits_for_data_ns: None,
        emulation: None,
        interference: None,
        bottleneck: None,
        totals: None,
        batch_size: row.batch_size,
        ranks: row.ranks,
        workers: row.workers,
        data_dir: row.data_dir.clone(),
        settings: Arc::new(row.settings.clone()),
        notes: row.notes.clone(),
        measured_s: Vec::new(),
        cautions: Vec::new(),
        estimator: row.estimator.clone(),
        matches_estimator: row.matches_estimator,
        estimated: Vec::new(),
        repeated_by: row.repeated_by.clone(),
        breakdown: None,
        source: Some(row.source.clone()),
        incomplete: 0,
        parts: Vec::new(),
    }
}

/// The row of a variant of a job, without what running side by side costs it.
pub fn measured_row(job: &MeasuredJob, label: String, runs: &[&Run]) -> VariantRow {
    let trial = &runs[0].trial;
    let settings = &trial.settings;
    let packs = packs(runs);
    let rates: Vec<Rates> = packs.iter().filter_map(Pack::rates).collect();
    let estimates: Vec<(Estimate, Estimate)> = packs.iter().filter_map(Pack::estimates).collect();
    let (its, samples): (Vec<Estimate>, Vec<Estimate>) = estimates.into_iter().unzip();
    let it_per_s_rate = rate_over_runs(&its);
    let breakdown = Breakdown::from_steps(completed_steps(runs));
    let method = match label.strip_prefix(&trial.variant).map(str::trim) {
        Some(point) if !point.is_empty() => format!("{} {point}", trial.method),
        _ => trial.method.clone(),
    };
    let on_slurm = job.record.on_slurm();
    let completed = runs.iter().filter(|run| run.completed());
    let threads = completed.filter_map(|run| Oversubscription::from_run(run, on_slurm));
    let threads = threads.max_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    let mut notes = Vec::new();
    for run in runs.iter().filter(|r| !r.completed()) {
        notes.push(format!("trial {} is not counted: {}", run.trial.name(), run.state.words()));
    }
    notes.extend(runs.iter().flat_map(|run| attempt_sentences(run)));
    VariantRow {
        job: job.record.job.to_string(),
        config: job.record.config.clone(),
        variant: trial.variant.clone(),
        point: trial.point.iter().map(|(key, value)| (key.clone(), setting_text(value))).collect(),
        job_baseline: job.record.baseline.clone(),
        job_baseline_ran: job.baseline_not_run().is_none(),
        n: rates.len(),
        label,
        method,
        class: RateClass::Measured,
        processor: Some(settings.pipeline.processor),
        mode: settings.train.mode.name().to_owned(),
        profiler: settings.profiles(),
        it_per_s: rates.iter().map(|r| r.it_per_s).collect(),
        samples_per_s: rates.iter().map(|r| r.samples_per_s).collect(),
        repeats: packs.iter().filter_map(|pack| Some(pack.runs().first()?.trial.repeat)).collect(),
        interleaved: settings.measure.interleave,
        it_per_s_rate,
        samples_per_s_rate: rate_over_runs(&samples),
        range: None,
        learning: Learning::from_runs(runs),
        epoch_time: EpochTime::from_runs(runs, || it_per_s_rate),
        samples_range: None,
        storage_bytes: runs.iter().find_map(|r| Some(r.data()?.size.allocated_bytes as f64)),
        batch_bytes: batch_bytes(completed_steps(runs)),
        waits_for_data_ns: breakdown.as_ref().map(Breakdown::waits_for_data),
        emulation: Emulation::from_runs(runs),
        interference: None,
        bottleneck: breakdown
            .as_ref()
            .map(|b| Bottleneck::from_breakdown(b, MasksBy::from_pipeline(&settings.pipeline)).with_threads(threads)),
        totals: RunTotals::from_runs(runs),
        batch_size: settings.loader.batch_size,
        ranks: u64::from(settings.launch.ranks),
        workers: Some(u64::from(settings.loader.workers)),
        data_dir: match settings.array.files.is_empty() {
            _ if settings.data.set == NO_DATA_SET => None,
            true => trial.data_dir.file_name().map(|n| n.to_string_lossy().into_owned()),
            false => Some("own files".to_owned()),
        },
        settings: Arc::new(run_settings(job, runs)),
        notes,
        measured_s: runs.iter().filter_map(|run| measured_s(run)).collect(),
        cautions: cautions(runs, on_slurm),
        estimator: "measured steps over their wall time, of the slowest rank; median over runs".to_owned(),
        matches_estimator: None,
        estimated: job.record.estimators.iter().filter_map(|named| EstimatedRate::from_runs(*named, runs)).collect(),
        repeated_by: Vec::new(),
        breakdown,
        source: None,
        incomplete: runs.iter().filter(|r| !r.completed()).count(),
        parts: Vec::new(),
    }
}
