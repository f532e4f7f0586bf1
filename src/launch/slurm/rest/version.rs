//! Versions of slurmrestd's interface, and which of those that a server offers is spoken to.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// A version of the interface: 42 is v0.0.42.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Api(u32);

impl Api {
    /// The oldest that is known here (Slurm 22.05).
    pub const OLDEST: Self = Self(38);
    /// The newest that is known here (Slurm 24.11 to 26.11).
    pub const NEWEST: Self = Self(42);

    /// Whether numbers are plain, the environment is an object and states are single words, as in Slurm 22.05.
    pub fn is_plain(self) -> bool {
        self <= Self::OLDEST
    }

    /// Whether several jobs can be cancelled with one request.
    pub fn cancels_many(self) -> bool {
        self >= Self(40)
    }

    /// Of the versions in a server's description of itself, the newest known one; of unknown ones the nearest to those.
    pub fn choose(offered: &[Self]) -> Option<Self> {
        let known = offered.iter().filter(|api| (Self::OLDEST..=Self::NEWEST).contains(*api)).max();
        known.or_else(|| offered.iter().filter(|api| **api > Self::NEWEST).min()).copied()
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v0.0.{}", self.0)
    }
}

/// Versions that the paths of an OpenAPI description are about; `None` if it is no such description.
pub(super) fn offered(description: &[u8]) -> Option<Vec<Api>> {
    #[derive(Deserialize)]
    struct Description {
        // A description is megabytes long, and only the names of the paths are of interest.
        paths: BTreeMap<String, IgnoredAny>,
    }
    let Description { paths } = serde_json::from_slice(description).ok()?;
    let mut found: Vec<Api> = paths
        .keys()
        .filter_map(|path| path.strip_prefix("/slurm/v0.0.")?.split('/').next()?.parse().ok().map(Api))
        .collect();
    found.sort_unstable();
    found.dedup();
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_a_server_offers() {
        let description =
            br#"{"openapi": "3.0.3", "paths": {"/slurm/v0.0.36/ping": {}, "/slurm/v0.0.38/ping": {"get": 1},
            "/slurm/v0.0.38/jobs": {}, "/slurmdb/v0.0.41/jobs/": {}, "/openapi": {}, "/slurm/v1/ping": {}}}"#;
        assert_eq!(offered(description), Some(vec![Api(36), Api(38)]));
        assert_eq!(offered(b"Authentication failure"), None);
        assert_eq!(offered(b"{}"), None);
    }

    #[test]
    fn the_newest_known_version_is_chosen() {
        let choose = |offered: &[u32]| Api::choose(&offered.iter().copied().map(Api).collect::<Vec<_>>());
        assert_eq!(choose(&[36, 37, 38]), Some(Api(38)));
        assert_eq!(choose(&[40, 41, 42]), Some(Api(42)));
        assert_eq!(choose(&[42, 43, 44, 45]), Some(Api(42)));
        assert_eq!(choose(&[43, 44, 45]), Some(Api(43)));
        assert_eq!(choose(&[36, 37]), None);
        assert_eq!(Api(42).to_string(), "v0.0.42");
    }
}
