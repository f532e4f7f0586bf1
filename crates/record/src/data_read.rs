use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{RecordError, StoreKind};

/// Size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSize {
    /// Its length, bytes.
    pub apparent_bytes: u64,
    /// What its blocks take on disk, bytes. A file with holes takes less than its length, one of compressed blocks too.
    pub allocated_bytes: u64,
}

impl FileSize {
    /// The size of the file at `path` now.
    ///
    /// # Errors
    /// The file cannot be looked at.
    pub fn of(path: &Path) -> Result<Self, RecordError> {
        let metadata = path.metadata().map_err(RecordError::io("read", path))?;
        // The unit of st_blocks is 512 bytes, whatever the file system's blocks are.
        Ok(Self { apparent_bytes: metadata.len(), allocated_bytes: metadata.blocks() * 512 })
    }
}

/// `data.json`: what an attempt read, written by rank 0 when its loader is set up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRead {
    /// What records were read from.
    pub store: StoreKind,
    /// Records in that store.
    pub records: u64,
    /// Samples that steps could choose from, over all ranks.
    pub selected: u64,
    /// Samples that `select.subset` and `select.split` ask for; none where they ask for no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
    /// The most bytes of batches that a rank might hold; 0 in records that are older than the field.
    #[serde(default)]
    pub buffer_bytes: u64,
    /// Size of that store's `data.mdb`.
    pub size: FileSize,
    /// Size of the base store's `data.mdb`; none where the data set has no base store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_size: Option<FileSize>,
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
