use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    /// Where it comes from.
    pub source: Source,
}

impl PublishedRow {
    /// The job as tables name it: `392`, `428/430`.
    pub fn job_name(&self) -> String {
        self.jobs.iter().map(u64::to_string).collect::<Vec<_>>().join("/")
    }

    /// Samples per iteration over all ranks.
    pub fn global_batch(&self) -> u64 {
        self.ranks * self.batch_size
    }
}
