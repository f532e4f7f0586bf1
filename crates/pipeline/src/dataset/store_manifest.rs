use std::path::Path;

use expctl_record::StoreKind;
use serde::{Deserialize, Serialize};

use super::files::GENES_FILE;
use super::graph_file::GRAPH_FILE;
use super::manifest::{MANIFEST_FILE, check_version, unreadable};
use super::{FileInfo, Manifest, StoreInfo};
use crate::PipelineError;

/// Version of the layout of a converted store.
pub const STORE_SCHEMA: u32 = 1;
/// The LMDB store inside the folder of a converted store.
pub(crate) const CONVERTED: &str = "lmdb";

/// `stores/<kind>/manifest.json`: a store that was made from the base store. It is written last, so a folder that has one is
/// complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreManifest {
    /// Layout version.
    pub schema: u32,
    /// How its records are laid out.
    pub kind: StoreKind,
    /// What it was made from: blake3 over the contents of base store, graph and genes.
    pub base_blake3: String,
    /// Length of each mask, in the order in which a record has them.
    pub masks: Vec<MaskInfo>,
    /// Its records.
    pub store: StoreInfo,
    /// Its one file.
    pub file: FileInfo,
    /// Seconds that the conversion took (its last run, if it was stopped before), checks included.
    pub build_seconds: f64,
    /// Records that earlier, stopped runs had already written.
    pub resumed_at: u64,
}

/// One mask of every record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskInfo {
    /// Type of nodes, or `<source>__<type>__<target>`.
    pub name: String,
    /// Number of its entries.
    pub entries: u64,
}

impl StoreManifest {
    /// Read the manifest in the folder of a converted store; `None` if there is no such store.
    ///
    /// # Errors
    /// It is damaged, of another version, or of a store of another kind.
    pub fn load(folder: &Path, kind: StoreKind) -> Result<Option<Self>, PipelineError> {
        let path = folder.join(MANIFEST_FILE);
        let text = match std::fs::read(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(PipelineError::io("read", &path))?,
        };
        check_version(&path, &text, STORE_SCHEMA)?;
        let manifest: Self = serde_json::from_slice(&text).map_err(|e| unreadable(&path, &e))?;
        if manifest.kind != kind {
            return Err(PipelineError::damaged(&path, format!("of a {} store", manifest.kind.name())));
        }
        Ok(Some(manifest))
    }
}

/// blake3 over the contents of what stores are made from. Not over files: the same content may lie in another file.
pub(crate) fn base_blake3(manifest: &Manifest) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(manifest.store.content_blake3.as_bytes());
    for file in manifest.files.iter().filter(|file| [GENES_FILE, GRAPH_FILE].contains(&file.path.as_str())) {
        hasher.update(file.path.as_bytes()).update(file.blake3.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}
