//! The data that an attempt read, and the memory and requests that reading took: `data.json`, `shuffle.json` and `rank-<r>.usage.json`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use expctl_settings::{ArrayFormat, StoreKind};
use host_metrics::DroppedPages;
use serde::{Deserialize, Serialize};

use crate::LedgerError;

/// Size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSize {
    /// Its length, bytes.
    pub apparent_bytes: u64,
    /// Size of its blocks on disk, bytes: less than its length for a sparse file or compressed blocks.
    pub allocated_bytes: u64,
}

impl FileSize {
    /// The size of the file at `path`, or of all files below a folder.
    ///
    /// # Errors
    /// A file or folder cannot be read.
    pub fn from_path(path: &Path) -> Result<Self, LedgerError> {
        let metadata = path.metadata().map_err(LedgerError::io("read", path))?;
        if metadata.is_dir() {
            let entries = path.read_dir().map_err(LedgerError::io("read", path))?;
            let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
            let paths = paths.map_err(LedgerError::io("read", path))?;
            return Self::from_paths(paths.iter().map(PathBuf::as_path));
        }
        // The unit of st_blocks is 512 bytes, whatever the file system's blocks are.
        Ok(Self { apparent_bytes: metadata.len(), allocated_bytes: metadata.blocks() * 512 })
    }

    /// The sum over several files and folders.
    ///
    /// # Errors
    /// A file or folder cannot be read.
    pub fn from_paths<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<Self, LedgerError> {
        let mut all = Self { apparent_bytes: 0, allocated_bytes: 0 };
        for path in paths {
            let one = Self::from_path(path)?;
            all.apparent_bytes += one.apparent_bytes;
            all.allocated_bytes += one.allocated_bytes;
        }
        Ok(all)
    }
}

/// `data.json`: the data that an attempt read, written by rank 0 when its loader is set up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRead {
    /// The store of a graph's samples. `None`: an array was read, see `array`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreKind>,
    /// Records in that store, or rows of the array.
    pub records: u64,
    /// Samples that steps could draw from, over all ranks.
    pub selected: u64,
    /// Samples that `select.subset` and `select.split` ask for. `None`: they ask for no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
    /// Maximum size of the batches that a rank might hold, bytes; 0 in records that are older than the field.
    #[serde(default)]
    pub buffer_bytes: u64,
    /// Size of that store's `data.mdb`, or of all files of the array.
    pub size: FileSize,
    /// Size of the base store's `data.mdb`. `None`: the data set has no base store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_size: Option<FileSize>,
    /// More about an array. `None`: samples of a graph were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayRead>,
}

/// The array that an attempt read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayRead {
    /// Format of its files.
    pub format: ArrayFormat,
    /// Number of files.
    pub files: u64,
    /// Values of a row of a batch: the genes of all files joined, or those that `data.genes` names.
    pub genes: u64,
    /// Number of classes of each label column, in the order of `array.labels`.
    #[serde(default)]
    pub classes: Vec<u64>,
    /// Size of all rows in the memory of each rank, bytes. `None`: rows are read from the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
}

/// `rank-<r>.usage.json`: memory and requests of a rank, written after its last step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankUsage {
    /// Largest resident memory of its process, bytes: `VmHWM`, which includes pages of libraries and mapped files. `None`: /proc does not say
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_resident_bytes: Option<u64>,
    /// Number of trained parameters of its model. `None`: the steps compute no model, or the record is older than the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// Requests to servers. `None`: all files were local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteCounts>,
    /// Files that were dropped from the page cache before the first step (`measure.cold_cache`), for one rank of each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<DroppedPages>,
}

/// Requests of a rank for remote files, from its start on, including those for opening, warm-up and prefetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteCounts {
    /// Requests, including repeated ones.
    pub requests: u64,
    /// Requests that repeat a failed one.
    pub retries: u64,
    /// Bytes of objects that came from servers.
    pub remote_bytes: u64,
    /// Bytes that came from the cache instead.
    pub cache_bytes: u64,
    /// Blocks that were in the cache.
    pub hits: u64,
    /// Blocks that were not in the cache; 0 without a cache.
    pub misses: u64,
    /// Blocks that could not be written to the cache: the disk is full, or it is in use.
    pub not_kept: u64,
}

impl RemoteCounts {
    /// The sum of two.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            retries: self.retries + other.retries,
            remote_bytes: self.remote_bytes + other.remote_bytes,
            cache_bytes: self.cache_bytes + other.cache_bytes,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            not_kept: self.not_kept + other.not_kept,
        }
    }
}

/// `shuffle.json`: how well the rows of an epoch of one rank, or of its first batches, are shuffled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShuffleQuality {
    /// Rows of the rank's epoch.
    pub epoch_rows: u64,
    /// Rows that the figures below are of: the first ones of the epoch.
    pub metered_rows: u64,
    /// Batches of these rows.
    pub metered_batches: u64,
    /// Metered rows that had occurred before.
    pub duplicates: u64,
    /// Correlation of the positions in the files of consecutive rows: 0 for a perfect shuffle, 1 for none. `None`: fewer than two different
    /// rows.
    pub neighbour_correlation: Option<f64>,
    /// Mean of |position in the files − position in the epoch of all ranks|, both as shares of all: 0 for no shuffle.
    pub mean_distance: f64,
    /// Expected mean distance if each row is equally likely at each position: 1/3 for whole epochs.
    pub expected_distance: f64,
    /// How the classes of a label are mixed. `None`: batches have no label.
    pub labels: Option<LabelMixing>,
}

/// How the classes of a label are mixed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelMixing {
    /// The column of obs.
    pub column: String,
    /// Classes among the metered rows; a missing class counts as one.
    pub classes: u64,
    /// Mean entropy of a batch's classes, bits.
    pub entropy: f64,
    /// Expected entropy of random batches, bits: from all rows, or, if rows are drawn with replacement (which may favour classes), from the
    /// metered ones.
    pub ideal_entropy: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_take_no_space() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.mdb");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let size = FileSize::from_path(&path).unwrap();
        assert_eq!(size.apparent_bytes, 1 << 20);
        assert!(size.allocated_bytes < 1 << 20, "{size:?}");
        let message = FileSize::from_path(&dir.path().join("gone")).unwrap_err().to_string();
        assert!(message.contains("gone"), "{message}");
    }
}
