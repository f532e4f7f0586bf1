use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::PipelineError;

/// What kind of data set a recipe makes: the key `family` of a recipe and of a manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Perturbed samples of a graph.
    #[default]
    Graph,
    /// Rows of an array.
    Array,
}

/// What a recipe or a manifest says first.
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
    pub fn of_recipe(folder: &Path) -> Result<Self, PipelineError> {
        let (path, text) = read(folder)?;
        head(&path, &text)
    }

    /// The family of a manifest.
    pub(crate) fn of_manifest(path: &Path, text: &[u8]) -> Result<Self, PipelineError> {
        let head: Head = serde_json::from_slice(text).map_err(|e| PipelineError::damaged(path, e))?;
        Ok(head.family)
    }

    /// An error unless it is the one that is `wanted`.
    pub(crate) fn expect(self, wanted: Self, path: &Path) -> Result<(), PipelineError> {
        if self == wanted {
            return Ok(());
        }
        Err(PipelineError::damaged(path, format!("of {}, not of {}", self.things(), wanted.things())))
    }

    const fn things(self) -> &'static str {
        match self {
            Self::Graph => "samples of a graph",
            Self::Array => "rows of an array",
        }
    }
}

/// Path and text of the recipe in `folder`, which is to be of this family.
pub(crate) fn recipe_text(folder: &Path, wanted: Family) -> Result<(PathBuf, String), PipelineError> {
    let (path, text) = read(folder)?;
    head(&path, &text)?.expect(wanted, &path)?;
    Ok((path, text))
}

fn read(folder: &Path) -> Result<(PathBuf, String), PipelineError> {
    let path = folder.join("dataset.toml");
    let text = std::fs::read_to_string(&path).map_err(PipelineError::io("read", &path))?;
    Ok((path, text))
}

fn head(path: &Path, text: &str) -> Result<Family, PipelineError> {
    let head: Head = toml::from_str(text).map_err(|e| PipelineError::damaged(path, e))?;
    Ok(head.family)
}
