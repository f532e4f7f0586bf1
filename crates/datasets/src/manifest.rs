//! What the manifests of all data sets have in common.

use std::path::{Path, PathBuf};

use expctl_settings::Advice;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Damage, DatasetError};

/// Name of the manifest of a data set, and of each store that was made from it.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Origin of a part of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataOrigin {
    /// From a real data source.
    Measured,
    /// Drawn at random.
    Generated,
    /// Partly real, completed with random ones.
    Completed,
}

impl DataOrigin {
    /// The word used in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Generated => "generated",
            Self::Completed => "completed",
        }
    }

    /// The class of `real` measured and `generated` drawn things.
    pub(crate) fn from_counts(real: u64, generated: u64) -> Self {
        match (real, generated) {
            (_, 0) => Self::Measured,
            (0, _) => Self::Generated,
            _ => Self::Completed,
        }
    }
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Path inside the data set.
    pub path: String,
    /// Its apparent size.
    pub bytes: u64,
    /// Bytes that it takes on the disk.
    pub allocated_bytes: u64,
    /// Checksum of this very file.
    pub blake3: String,
}

/// Kind of a data set: the key `family` of a recipe and of a manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Perturbed samples of a graph.
    #[default]
    Graph,
    /// Rows of an array.
    Array,
}

/// The key `family` of a recipe or a manifest.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    family: Family,
}

impl Family {
    /// The family of the recipe in `folder`.
    ///
    /// # Errors
    /// The recipe cannot be read.
    pub fn of_recipe(folder: &Path) -> Result<Self, DatasetError> {
        let (path, text) = read(folder)?;
        head(&path, &text)
    }

    /// The family of a manifest.
    fn of_manifest(path: &Path, text: &[u8]) -> Result<Self, DatasetError> {
        let head: Head = serde_json::from_slice(text).map_err(|e| DatasetError::damaged(path, e))?;
        Ok(head.family)
    }

    /// Check that the family is the one that is `wanted`.
    pub(crate) fn check(self, wanted: Self, path: &Path) -> Result<(), DatasetError> {
        if self == wanted {
            return Ok(());
        }
        Err(DatasetError::damaged(path, Damage::Family { found: self, expected: wanted }))
    }

    /// What its data sets have.
    pub(crate) const fn things(self) -> &'static str {
        match self {
            Self::Graph => "samples of a graph",
            Self::Array => "rows of an array",
        }
    }
}

/// Path and text of the recipe in `folder`, which is to be of this family.
pub fn recipe_text(folder: &Path, wanted: Family) -> Result<(PathBuf, String), DatasetError> {
    let (path, text) = read(folder)?;
    head(&path, &text)?.check(wanted, &path)?;
    Ok((path, text))
}

fn read(folder: &Path) -> Result<(PathBuf, String), DatasetError> {
    let path = folder.join("dataset.toml");
    let text = std::fs::read_to_string(&path).map_err(DatasetError::io("read", &path))?;
    Ok((path, text))
}

fn head(path: &Path, text: &str) -> Result<Family, DatasetError> {
    let head: Head = toml::from_str(text).map_err(|e| DatasetError::damaged(path, e))?;
    Ok(head.family)
}

/// Read the manifest of a data set of this family and version.
///
/// # Errors
/// [`DatasetError::NotBuilt`]; the manifest is damaged, of another family or of another version.
pub fn load<M: DeserializeOwned>(folder: &Path, family: Family, schema: u32) -> Result<M, DatasetError> {
    let path = folder.join(MANIFEST_FILE);
    let text = match std::fs::read(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(DatasetError::NotBuilt { path: folder.to_owned() });
        }
        other => other.map_err(DatasetError::io("read", &path))?,
    };
    let again = |e: DatasetError| e.and(Advice::BuildAgain(folder.to_owned()));
    Family::of_manifest(&path, &text).map_err(again)?.check(family, &path)?;
    check_version(&path, &text, schema).map_err(again)?;
    serde_json::from_slice(&text).map_err(|e| again(DatasetError::damaged(&path, e)))
}

/// Refuse a manifest of another version before the rest is parsed: its fields may be others, too.
fn check_version(path: &Path, text: &[u8], expected: u32) -> Result<(), DatasetError> {
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
    }
    let Version { schema } = serde_json::from_slice(text).map_err(|e| DatasetError::damaged(path, e))?;
    if schema == expected {
        Ok(())
    } else {
        Err(DatasetError::damaged(path, Damage::Version { found: schema, expected }))
    }
}

/// Read the manifest of a store that was made from the base store, of this version; `None` if there is no such store.
///
/// # Errors
/// The manifest is damaged or of another version.
pub fn load_converted<M: DeserializeOwned>(folder: &Path, schema: u32) -> Result<Option<M>, DatasetError> {
    let path = folder.join(MANIFEST_FILE);
    let text = match std::fs::read(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(DatasetError::io("read", &path))?,
    };
    check_version(&path, &text, schema)?;
    Ok(Some(serde_json::from_slice(&text).map_err(|e| DatasetError::damaged(&path, e))?))
}
