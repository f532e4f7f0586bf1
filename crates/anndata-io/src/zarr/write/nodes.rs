use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

use crate::AnnDataError;

/// The groups and arrays of a folder that is being written.
pub(super) struct Nodes {
    folder: PathBuf,
    all: BTreeMap<String, Json>,
}

impl Nodes {
    /// In a new folder.
    ///
    /// # Errors
    /// It is there already, or cannot be made.
    pub(super) fn create(folder: &Path) -> Result<Self, AnnDataError> {
        std::fs::create_dir(folder).map_err(AnnDataError::io("create", folder))?;
        Ok(Self { folder: folder.to_owned(), all: BTreeMap::new() })
    }

    /// Where a node is, once it is there.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// There is a node of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Add a group.
    pub(super) fn group(&mut self, name: &str, attributes: Map<String, Json>) -> Result<(), AnnDataError> {
        self.add(name, json!({"zarr_format": 3, "node_type": "group", "attributes": attributes}))
    }

    /// Add a group of an encoding of AnnData.
    pub(super) fn encoded(&mut self, name: &str, encoding: &str) -> Result<(), AnnDataError> {
        let attributes = json!({"encoding-type": encoding, "encoding-version": "0.1.0"});
        self.group(name, attributes.as_object().cloned().unwrap_or_default())
    }

    /// Add an array, of which the chunks are written elsewhere: `special` has its type, fill value and codecs.
    pub(super) fn array(
        &mut self,
        name: &str,
        shape: &[u64],
        chunk: &[u64],
        special: Json,
        attributes: Map<String, Json>,
    ) -> Result<(), AnnDataError> {
        let mut node = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "attributes": attributes,
            "storage_transformers": [],
        });
        if let (Some(node), Json::Object(special)) = (node.as_object_mut(), special) {
            node.extend(special);
        }
        self.add(name, node)
    }

    fn add(&mut self, name: &str, node: Json) -> Result<(), AnnDataError> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder).map_err(AnnDataError::io("create", &folder))?;
        write(&folder, &node)?;
        self.all.insert(name.to_owned(), node);
        Ok(())
    }

    /// Write the root, with the metadata of all nodes.
    pub(super) fn finish(self) -> Result<(), AnnDataError> {
        let root = json!({
            "zarr_format": 3,
            "node_type": "group",
            "attributes": {"encoding-type": "anndata", "encoding-version": "0.1.0"},
            "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": self.all},
        });
        write(&self.folder, &root)
    }
}

fn write(folder: &Path, node: &Json) -> Result<(), AnnDataError> {
    let path = folder.join("zarr.json");
    let text = serde_json::to_vec_pretty(node).map_err(|e| AnnDataError::damaged(&path, e))?;
    std::fs::write(&path, text).map_err(AnnDataError::io("write", &path))
}

/// The codec that makes numbers bytes, in the order of this machine, and what compresses them.
pub(super) fn number_codecs(element: usize) -> Json {
    let endian = if cfg!(target_endian = "big") { "big" } else { "little" };
    json!([
        {"name": "bytes", "configuration": {"endian": endian}},
        {"name": "blosc", "configuration": {
            "typesize": element,
            "cname": "lz4",
            "clevel": crate::matrix::filters::blosc::LEVEL,
            "shuffle": "shuffle",
            "blocksize": 0,
        }},
    ])
}
