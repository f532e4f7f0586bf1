use std::collections::BTreeMap;

use expctl_record::Estimator;
use serde::{Deserialize, Serialize};

/// The largest job number: Slurm's are of 32 bits.
pub const MOST_JOB: u64 = u32::MAX as u64;
/// Most processes of a row. With [`MOST_BATCH`] their product, which every rate is multiplied by, stays exact.
pub const MOST_RANKS: u64 = 1_000_000;
/// Most samples per rank and iteration of a row.
pub const MOST_BATCH: u64 = 1_000_000_000;

/// Where a published figure comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Title of the note or paper.
    pub title: String,
    /// Where it is: repository, note id, address.
    pub from: String,
    /// When it was published, `YYYY-MM-DD`.
    pub date: String,
}

/// One published row.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedRow {
    /// Job numbers; several where the source gives one figure for them together.
    pub jobs: Vec<u64>,
    /// Name of the config.
    pub config: String,
    /// Folder of the study in experiments/.
    pub study: String,
    /// Name of the row within its job; empty where the job has one.
    pub variant: String,
    /// What the source calls it.
    pub method: String,
    /// What a step did: data, forward, forward_backward, train.
    pub mode: String,
    /// Lowest and highest published rate, iterations per second; equal where one was given.
    pub it_per_s: (f64, f64),
    /// How the source made the rate.
    pub estimator: String,
    /// The estimator here that makes a rate of measured steps in the same way.
    pub matches_estimator: Option<Estimator>,
    /// Variants here that repeat the row, as `config.variant`.
    pub repeated_by: Vec<String>,
    /// Processes.
    pub ranks: u64,
    /// Samples per rank and iteration.
    pub batch_size: u64,
    /// Loader processes per rank.
    pub workers: Option<u64>,
    /// Size of the data set on disk, 10^9 bytes.
    pub storage_gb: Option<f64>,
    /// Size of a rank's collated batch, MiB.
    pub batch_mib: Option<f64>,
    /// Folder of the data set, as the source names it.
    pub data_dir: Option<String>,
    /// True if a profiler ran along.
    pub profiler: bool,
    /// Everything else that is known, by the keys of a config where such a key exists.
    pub settings: BTreeMap<String, String>,
    /// What is known to be wrong or open.
    pub notes: Vec<String>,
    /// How the rate was read from progress text; none of what was published as a number.
    pub reading: Option<Reading>,
    /// What else that text says.
    pub progress: Option<Progress>,
    /// Where it comes from.
    pub source: Source,
}

impl PublishedRow {
    /// The job as tables name it: `392`, `428/430`.
    pub fn job_name(&self) -> String {
        job_name(&self.jobs)
    }

    /// Samples per iteration over all ranks.
    pub fn global_batch(&self) -> u64 {
        self.ranks * self.batch_size
    }
}

/// Job numbers as tables name them: `392`, `428/430`.
pub(super) fn job_name(jobs: &[u64]) -> String {
    jobs.iter().map(u64::to_string).collect::<Vec<_>>().join("/")
}

/// How a rate was read from progress text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reading {
    /// The mean of the last 20 matches of `<number>it/s`, as the published script took it.
    #[serde(rename = "last_20")]
    LastTwenty,
    /// The last rate that the training bar printed.
    #[serde(rename = "last")]
    Last,
    /// Steps over time of the training bars.
    #[serde(rename = "training")]
    Training,
}

impl Reading {
    /// The word used in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LastTwenty => "last_20",
            Self::Last => "last",
            Self::Training => "training",
        }
    }

    /// What a table adds to the method.
    pub const fn words(self) -> &'static str {
        match self {
            Self::LastTwenty => "mean of the last 20 printed",
            Self::Last => "last printed",
            Self::Training => "steps over time",
        }
    }
}

/// What a log's progress text says besides the rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Name of the log.
    pub log: String,
    /// First 16 hex digits of its BLAKE3.
    pub blake3: String,
    /// Steps of the training bars that count.
    pub steps: f64,
    /// Whole seconds printed with them, summed.
    pub elapsed_s: u64,
    /// Lowest rate that these allow, it/s.
    pub it_per_s_low: f64,
    /// Highest rate that these allow, it/s.
    pub it_per_s_high: f64,
    /// Bars of training.
    pub training_bars: u64,
    /// Printed rates in s/it, which the published pattern misses.
    pub missed_s_per_it: u64,
    /// Printed rates in other units, which it misses too.
    pub missed_other_units: u64,
    /// States without a rate.
    pub without_rate: u64,
    /// States printed, by kind of bar.
    pub prints: BTreeMap<String, u64>,
    /// Values of each kind of bar in the published mean.
    #[serde(default)]
    pub last_20_of: BTreeMap<String, u64>,
}
