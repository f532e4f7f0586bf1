use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{ArrayFormat, RecordError, StoreKind};

/// Size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSize {
    /// Its length, bytes.
    pub apparent_bytes: u64,
    /// What its blocks take on disk, bytes. A file with holes takes less than its length, one of compressed blocks too.
    pub allocated_bytes: u64,
}

impl FileSize {
    /// The size of the file at `path` now, or of all files below a folder.
    ///
    /// # Errors
    /// The file cannot be looked at.
    pub fn of(path: &Path) -> Result<Self, RecordError> {
        let metadata = path.metadata().map_err(RecordError::io("read", path))?;
        if metadata.is_dir() {
            let entries = path.read_dir().map_err(RecordError::io("read", path))?;
            let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
            let paths = paths.map_err(RecordError::io("read", path))?;
            return Self::of_all(paths.iter().map(PathBuf::as_path));
        }
        // The unit of st_blocks is 512 bytes, whatever the file system's blocks are.
        Ok(Self { apparent_bytes: metadata.len(), allocated_bytes: metadata.blocks() * 512 })
    }

    /// The size of all these files together.
    ///
    /// # Errors
    /// One of them cannot be looked at.
    pub fn of_all<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<Self, RecordError> {
        let mut all = Self { apparent_bytes: 0, allocated_bytes: 0 };
        for path in paths {
            let one = Self::of(path)?;
            all.apparent_bytes += one.apparent_bytes;
            all.allocated_bytes += one.allocated_bytes;
        }
        Ok(all)
    }
}

/// `data.json`: what an attempt read, written by rank 0 when its loader is set up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRead {
    /// The store of a graph's samples; none of an array, which says more in `array`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreKind>,
    /// Records in that store; rows of an array.
    pub records: u64,
    /// Samples that steps could choose from, over all ranks.
    pub selected: u64,
    /// Samples that `select.subset` and `select.split` ask for; none where they ask for no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
    /// The most bytes of batches that a rank might hold; 0 in records that are older than the field.
    #[serde(default)]
    pub buffer_bytes: u64,
    /// Size of that store's `data.mdb`; of an array, of all its files.
    pub size: FileSize,
    /// Size of the base store's `data.mdb`; none where the data set has no base store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_size: Option<FileSize>,
    /// What else is to be said of an array; none where samples of a graph were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayRead>,
}

/// The array that an attempt read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayRead {
    /// What its files are.
    pub format: ArrayFormat,
    /// Number of files.
    pub files: u64,
    /// Values of a row of a batch: the genes of all files joined, or those that were asked for.
    pub genes: u64,
    /// Classes of each label column, in the order of `array.labels`.
    #[serde(default)]
    pub classes: Vec<u64>,
    /// Bytes of all rows in the memory of each rank; none where they are read from the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_take_no_space() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.mdb");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let size = FileSize::of(&path).unwrap();
        assert_eq!(size.apparent_bytes, 1 << 20);
        assert!(size.allocated_bytes < 1 << 20, "{size:?}");
        let message = FileSize::of(&dir.path().join("gone")).unwrap_err().to_string();
        assert!(message.contains("gone"), "{message}");
    }
}
