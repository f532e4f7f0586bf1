//! Reference records: the figures of a job that documents cite, in a file small enough to commit.
//!
//! A record has the rates of each run, so that any two of its variants can be compared again with the statistics of notes. The steps
//! stay in the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use expctl_ledger::{JobDir, LedgerError, MeasuredJob, Provenance, Rates, Run, ShuffleQuality, Stage, write_json};
use expctl_stats::{Estimate, RateOverRuns, RatioOfRuns, median, paired_ratio, rate_over_runs, ratio};
use serde::{Deserialize, Serialize};

use super::breakdown::Breakdown;
use super::caution::cautions;
use super::line::{by_repeat, lines_of_job};
use super::rates::{batch_bytes, completed_steps, measured_s, step_times};
use super::sections::usage::peak_in_use;
use super::side_by_side::{Pack, packs};
use super::variant_row::measured_rows;
use super::warning::warnings;

/// Schema version of a reference record.
pub const REFERENCE_SCHEMA_VERSION: u32 = 1;

/// Why a job has no reference record, or a record lacks a figure.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// The job ran from a working tree with uncommitted changes.
    #[error("job {job} ran from a working tree with changes ({commit}), so nobody can run it again")]
    Dirty {
        /// The job.
        job: u64,
        /// The commit that the changes lay on.
        commit: String,
    },
    /// The commit of the job is not known.
    #[error("job {job} does not say of which commit it is")]
    NoCommit {
        /// The job.
        job: u64,
    },
    /// The program was built from another commit than the one checked out.
    #[error("job {job} was submitted at commit {commit} with an expctl built at {built}")]
    OtherBuild {
        /// The job.
        job: u64,
        /// The commit that was checked out.
        commit: String,
        /// The commit of the program.
        built: String,
    },
    /// Trials did not complete.
    #[error("{trials} trials of job {job} did not complete")]
    Incomplete {
        /// The job.
        job: u64,
        /// How many.
        trials: usize,
    },
    /// The file has another schema version.
    #[error("{} has the form {found}; this expctl knows form {known}", .path.display(), known = REFERENCE_SCHEMA_VERSION)]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The record has no variant of that label.
    #[error("no variant {variant} in the record of job {job}; it has {known}")]
    NoVariant {
        /// The job.
        job: u64,
        /// The requested label.
        variant: String,
        /// The labels of the record.
        known: String,
    },
    /// A file of the ledger or the record itself.
    #[error(transparent)]
    File(#[from] LedgerError),
}

/// The figures of a job that documents cite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferenceRecord {
    /// [`REFERENCE_SCHEMA_VERSION`].
    pub schema: u32,
    /// The job, as numbered where it ran.
    pub job: u64,
    /// Name of the config.
    pub config: String,
    /// The config file, as given.
    pub config_path: PathBuf,
    /// BLAKE3 of the resolved settings of all trials of the config; `None` without provenance.
    pub config_hash: Option<String>,
    /// The command that submits it again.
    pub command: String,
    /// Commit of the working tree; ends in `-dirty` if it had changes.
    pub commit: Option<String>,
    /// Reasons not to cite it; empty for a good record.
    pub flaws: Vec<String>,
    /// Version of expctl.
    pub expctl: String,
    /// Submitted, seconds since the epoch.
    pub submitted: i64,
    /// Baseline of the ratios.
    pub baseline: Option<String>,
    /// The machines that ran it.
    pub machines: Vec<Machine>,
    /// Warnings, as in the note.
    pub warnings: Vec<String>,
    /// Figures by label (variant and swept settings).
    pub variants: BTreeMap<String, VariantFigures>,
}

/// A machine without its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Processor model.
    pub cpu: String,
    /// Processors that a rank may use.
    pub cpus: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Models of its GPUs.
    pub gpus: Vec<String>,
}

/// Figures of the completed runs of a variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantFigures {
    /// Its method name in the config.
    pub method: String,
    /// Mode: data, forward, forward_backward, train.
    pub mode: String,
    /// Processes.
    pub ranks: u32,
    /// Loader threads or processes of a rank.
    pub workers: u32,
    /// Samples per rank and iteration.
    pub batch_size: u64,
    /// Whether the trials took turns, so that runs are compared by repeat.
    pub interleaved: bool,
    /// The repeat of each run; the two lists of rates are in this order.
    pub repeats: Vec<u32>,
    /// Iterations per second of each run.
    pub it_per_s: Vec<f64>,
    /// Samples per second of each run, over all ranks.
    pub samples_per_s: Vec<f64>,
    /// Measured time of each run, s, in the same order.
    pub measured_s: Vec<f64>,
    /// Wall time of the mean step, ns.
    pub step_mean_ns: f64,
    /// Wall time of the median step, ns.
    pub step_median_ns: f64,
    /// 5th percentile of the step times, ns.
    pub step_p5_ns: f64,
    /// 95th percentile of the step times, ns.
    pub step_p95_ns: f64,
    /// Exposed time of each stage in the mean step, ns; without stages that did not happen.
    pub exposed_ns: BTreeMap<String, f64>,
    /// Busy time of each stage in the mean step, summed over the threads of a rank, ns.
    pub busy_ns: BTreeMap<String, f64>,
    /// Peak memory in use by a rank over all runs, by hardware samples (anonymous and shared, without pages of files), bytes; `None` without
    /// samples.
    pub peak_memory_bytes: Option<u64>,
    /// Size of the store on disk, bytes; `None` if not known.
    pub storage_bytes: Option<u64>,
    /// Mean size of a collated batch, bytes; `None` if not known.
    pub batch_bytes: Option<f64>,
    /// Shuffle quality of rows of an array; `None` for graphs.
    pub shuffle: Option<ShuffleQuality>,
    /// Versions of the packages of the user's program, by name.
    pub versions: BTreeMap<String, String>,
    /// Cautions, as in the note.
    pub cautions: Vec<String>,
}

impl ReferenceRecord {
    /// The record of a job. Flaws are errors; with `force` they are listed in the record.
    ///
    /// # Errors
    /// Uncommitted changes, an expctl of another commit, trials that did not complete; a `provenance.json` that cannot be read.
    pub fn from_job(dir: &JobDir, job: &MeasuredJob, force: bool) -> Result<Self, ReferenceError> {
        let provenance = Provenance::read(dir)?;
        let flaws: Vec<ReferenceError> = flaws(job, provenance.as_ref());
        let said = flaws.iter().map(ToString::to_string).collect();
        if let Some(flaw) = flaws.into_iter().next()
            && !force
        {
            return Err(flaw);
        }
        let record = &job.record;
        let words = ["expctl".into(), "submit".into(), record.config_path.display().to_string(), "--wait".into()];
        let set = record.overrides.iter().flat_map(|set| ["--set".to_owned(), set.clone()]);
        let command: Vec<String> = words.into_iter().chain(set).collect();
        let hardware = job.runs.iter().flat_map(Run::environments).flat_map(|e| &e.ranks);
        let machines: BTreeSet<Machine> = hardware
            .map(|h| Machine {
                cpu: h.cpu.clone(),
                cpus: h.cpus,
                memory_bytes: h.memory_bytes,
                gpus: h.gpus.iter().map(|gpu| gpu.name.clone()).collect(),
            })
            .collect();
        let variants = job
            .by_label()
            .into_iter()
            .filter_map(|(label, runs)| Some((label, VariantFigures::from_runs(&runs, record.on_slurm())?)));
        Ok(Self {
            schema: REFERENCE_SCHEMA_VERSION,
            job: record.job,
            config: record.config.clone(),
            config_path: record.config_path.clone(),
            config_hash: provenance.map(|p| p.config.hash),
            command: shlex::try_join(command.iter().map(String::as_str)).unwrap_or_else(|_| command.join(" ")),
            commit: record.commit.clone(),
            flaws: said,
            expctl: record.expctl_version.clone(),
            submitted: record.submitted,
            baseline: record.baseline.clone(),
            machines: machines.into_iter().collect(),
            warnings: warnings(job, lines_of_job(&measured_rows(job)).iter())
                .into_iter()
                .map(|warning| warning.text)
                .collect(),
            variants: variants.collect(),
        })
    }

    /// Read a record.
    ///
    /// # Errors
    /// A file that cannot be read, or has another schema version.
    pub fn read(path: &Path) -> Result<Self, ReferenceError> {
        let text =
            std::fs::read(path).map_err(|source| LedgerError::Io { action: "read", path: path.to_owned(), source })?;
        let json = |source| LedgerError::Json { path: path.to_owned(), source };
        // Check the version first: another schema may have other fields.
        let any: serde_json::Value = serde_json::from_slice(&text).map_err(json)?;
        let found = any.get("schema").and_then(serde_json::Value::as_u64).unwrap_or(0) as u32;
        if found != REFERENCE_SCHEMA_VERSION {
            return Err(ReferenceError::Schema { path: path.to_owned(), found });
        }
        Ok(serde_json::from_value(any).map_err(json)?)
    }

    /// Write it.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ReferenceError> {
        Ok(write_json(path, self)?)
    }

    /// The figures of a variant.
    ///
    /// # Errors
    /// [`ReferenceError::NoVariant`].
    pub fn variant(&self, label: &str) -> Result<&VariantFigures, ReferenceError> {
        self.variants.get(label).ok_or_else(|| ReferenceError::NoVariant {
            job: self.job,
            variant: label.to_owned(),
            known: self.variants.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }

    /// The ratio of the samples/s of two variants as in notes, with the numbers of runs (or of pairs) of its two sides.
    ///
    /// # Errors
    /// [`ReferenceError::NoVariant`].
    pub fn ratio(&self, side: &str, base: &str) -> Result<Option<RatioOfRuns>, ReferenceError> {
        let (side, base) = (self.variant(side)?, self.variant(base)?);
        if side.interleaved && base.interleaved {
            let pairs = by_repeat((&side.repeats, &side.samples_per_s), (&base.repeats, &base.samples_per_s));
            if pairs.len() >= 2 {
                return Ok(paired_ratio(&pairs).map(|ratio| (ratio, (pairs.len(), pairs.len()))));
            }
        }
        let runs = (side.samples_per_s.len(), base.samples_per_s.len());
        Ok(ratio(&side.samples_per_s, &base.samples_per_s).map(|ratio| (ratio, runs)))
    }
}

/// Reasons not to cite a job, gravest first.
fn flaws(job: &MeasuredJob, provenance: Option<&Provenance>) -> Vec<ReferenceError> {
    let number = job.record.job;
    let mut flaws = Vec::new();
    match &job.record.commit {
        None => flaws.push(ReferenceError::NoCommit { job: number }),
        Some(commit) if commit.ends_with("-dirty") => {
            flaws.push(ReferenceError::Dirty { job: number, commit: commit.clone() });
        }
        Some(commit) => {
            let built = provenance.and_then(|p| p.expctl.commit.clone());
            // A build beside new notes is marked as dirty, too; only the mark of the job counts.
            let of = |name: &str| name.strip_suffix("-dirty").unwrap_or(name).get(..12).unwrap_or(name).to_owned();
            if let Some(built) = built.filter(|built| of(built) != of(commit)) {
                flaws.push(ReferenceError::OtherBuild { job: number, commit: commit.clone(), built });
            }
        }
    }
    match job.incomplete().count() {
        0 => {}
        trials => flaws.push(ReferenceError::Incomplete { job: number, trials }),
    }
    flaws
}

impl VariantFigures {
    /// The figures of the runs of a variant; `None` without a completed run.
    fn from_runs(runs: &[&Run], on_slurm: bool) -> Option<Self> {
        let trial = &runs.first()?.trial;
        let settings = &trial.settings;
        let packs = packs(runs);
        let rates: Vec<Rates> = packs.iter().filter_map(Pack::rates).collect();
        let breakdown = Breakdown::from_steps(completed_steps(runs))?;
        let times = step_times(completed_steps(runs))?;
        let completed: Vec<&Run> = runs.iter().copied().filter(|run| run.completed()).collect();
        let stages = |all: &[(Stage, Option<f64>)]| -> BTreeMap<String, f64> {
            all.iter().filter_map(|(stage, ns)| Some((stage.name().to_owned(), (*ns)?))).collect()
        };
        let program = completed.iter().flat_map(|run| run.environments()).find_map(|found| found.program.as_ref());
        Some(Self {
            method: trial.method.clone(),
            mode: settings.train.mode.name().to_owned(),
            ranks: settings.launch.ranks,
            workers: settings.loader.workers,
            batch_size: settings.loader.batch_size,
            interleaved: settings.measure.interleave,
            repeats: packs.iter().filter_map(|pack| Some(pack.runs().first()?.trial.repeat)).collect(),
            it_per_s: rates.iter().map(|r| r.it_per_s).collect(),
            samples_per_s: rates.iter().map(|r| r.samples_per_s).collect(),
            measured_s: runs.iter().filter_map(|run| measured_s(run)).collect(),
            step_mean_ns: breakdown.wall,
            step_median_ns: times.median,
            step_p5_ns: times.p5,
            step_p95_ns: times.p95,
            exposed_ns: stages(&breakdown.exposed),
            busy_ns: stages(&breakdown.busy),
            peak_memory_bytes: completed.iter().filter_map(|run| peak_in_use(run)).max(),
            storage_bytes: completed
                .iter()
                .find_map(|run| Some(run.data()?.size.allocated_bytes))
                .or(program.and_then(|program| program.stored_bytes)),
            batch_bytes: batch_bytes(completed_steps(runs)),
            shuffle: completed.iter().find_map(|run| run.shuffle.clone()),
            versions: program.map(|program| program.versions.clone()).unwrap_or_default(),
            cautions: cautions(runs, on_slurm).into_iter().map(|caution| caution.sentence).collect(),
        })
    }

    /// Median samples/s over the runs, as in tables.
    pub fn median_samples_per_s(&self) -> Option<f64> {
        median(&self.samples_per_s)
    }

    /// Samples/s with the interval over the runs.
    pub fn samples_per_s_rate(&self) -> Option<RateOverRuns> {
        let runs: Vec<Estimate> = self.samples_per_s.iter().map(|rate| Estimate::plain(*rate)).collect();
        rate_over_runs(&runs)
    }

    /// The stage with the most exposed time and its share of the mean step; `None` if no stage has any.
    pub fn waits_for(&self) -> Option<(&str, f64)> {
        let (stage, ns) = self.exposed_ns.iter().max_by(|a, b| a.1.total_cmp(b.1)).filter(|(_, ns)| **ns > 0.0)?;
        Some((stage, ns / self.step_mean_ns))
    }

    /// Exposed time of a stage as a share of the mean step.
    pub fn exposed_share(&self, stage: &str) -> f64 {
        self.exposed_ns.get(stage).map_or(0.0, |ns| ns / self.step_mean_ns)
    }

    /// Busy time of a stage as a share of that of all stages.
    pub fn busy_share(&self, stage: &str) -> f64 {
        let all: f64 = self.busy_ns.values().sum();
        self.busy_ns.get(stage).filter(|_| all > 0.0).map_or(0.0, |ns| ns / all)
    }

    /// Unattributed time, ns per step.
    pub fn unattributed_ns(&self) -> f64 {
        self.step_mean_ns - self.exposed_ns.values().sum::<f64>()
    }
}
