use serde::{Deserialize, Serialize};

use crate::DroppedPages;

/// What a rank used beside time: `rank-<r>.usage.json`, written when its last step is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankUsage {
    /// The most memory that its process had resident at once, bytes: `VmHWM`, as Linux counts it, with the pages of libraries
    /// and of mapped files. Missing where /proc does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_resident_bytes: Option<u64>,
    /// Parameters of its model that are trained, counted when it was built. Missing where the steps compute no model, and of
    /// records that are older than the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// Missing where all files were local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteCounts>,
    /// With `measure.cold_cache`, of one rank of each node: the files that were dropped from the page cache before its first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<DroppedPages>,
}

/// What reading remote files took a rank, from its start on: opening them, the warm-up, and what was asked for ahead are part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteCounts {
    /// Requests that were sent, repeated ones too.
    pub requests: u64,
    /// Those of them that repeat one that failed.
    pub retries: u64,
    /// Bytes of objects that came from servers.
    pub remote_bytes: u64,
    /// Bytes that were taken from the cache in their place.
    pub cache_bytes: u64,
    /// Blocks that were in the cache.
    pub hits: u64,
    /// Blocks that were not; 0 without a cache.
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
