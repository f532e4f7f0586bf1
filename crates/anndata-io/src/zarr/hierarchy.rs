//! `Hierarchy`: the groups and arrays of a zarr folder, version 2 or 3, by name; from consolidated metadata if the folder has them.
//! Invariant: each metadata file that was read is remembered by its hash, so `unchanged` finds one that was rewritten.

use std::cell::RefCell;
use std::path::Path;

use serde_json::Value as Json;

use crate::AnnDataError;
use crate::error::DamageKind;
use crate::source::byte_source::ByteSource;
use crate::source::folder::Folder;
use crate::zarr::array::ZarrArray;
use crate::zarr::metadata::{ArrayMetadata, JsonObject, ZarrError, parse_v2, parse_v3};

/// Maximum size of the metadata of a node, and of consolidated metadata, in bytes.
const MAX_METADATA_BYTES: u64 = 1 << 26;

/// A node of the hierarchy.
pub(crate) enum ZarrNode {
    /// A group with its attributes.
    Group(JsonObject),
    Array(ArrayMetadata),
}

/// A zarr folder with its metadata.
pub(crate) struct Hierarchy {
    folder: Folder,
    version: ZarrVersion,
    attributes: JsonObject,
    /// Consolidated metadata of all nodes, if there is any.
    known: Option<JsonObject>,
    /// Keys of metadata that were read, with their content.
    read: RefCell<Vec<(String, Option<blake3::Hash>)>>,
}

/// For each object of an array, its part of the source; `None` if it is not there.
pub(crate) type ObjectFiles = Vec<Option<usize>>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ZarrVersion {
    Two,
    Three,
}

/// Whether a folder is a zarr group, or an array of version 3, judged by the names in it.
pub fn is_zarr(path: &Path) -> bool {
    ["zarr.json", ".zgroup"].iter().any(|name| path.join(name).is_file())
}

impl Hierarchy {
    /// Opens a folder whose root is a group.
    ///
    /// # Errors
    /// There is no such folder, or it is not zarr of version 2 or 3.
    pub fn open(path: &Path) -> Result<Self, AnnDataError> {
        let folder = Folder::open(path)?;
        let read = RefCell::default();
        let mut tree = Self { folder, version: ZarrVersion::Three, attributes: JsonObject::new(), known: None, read };
        if let Some(mut root) = tree.get("zarr.json")? {
            if let Some(Json::Object(mut all)) = root.remove("consolidated_metadata")
                && let Some(Json::Object(all)) = all.remove("metadata")
            {
                tree.known = Some(all);
            }
            tree.attributes = tree.group(root, "zarr.json")?;
            return Ok(tree);
        }
        tree.version = ZarrVersion::Two;
        let Some(root) = tree.get(".zgroup")? else {
            let array = tree.get(".zarray")?;
            let error = if array.is_some() { ZarrError::RootIsArray } else { ZarrError::NoRoot };
            return Err(AnnDataError::damaged(path, error));
        };
        tree.of_version(&root, 2, ".zgroup")?;
        if let Some(Json::Object(all)) = tree.get(".zmetadata")?.and_then(|mut all| all.remove("metadata")) {
            tree.known = Some(all);
        }
        tree.attributes = tree.get(".zattrs")?.unwrap_or_default();
        Ok(tree)
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Attributes of the root.
    pub fn attributes(&self) -> &JsonObject {
        &self.attributes
    }

    /// The node at `name`; `None` if there is none.
    ///
    /// # Errors
    /// Its metadata is damaged or not supported.
    pub fn node(&self, name: &str) -> Result<Option<ZarrNode>, AnnDataError> {
        match self.version {
            ZarrVersion::Three => {
                let Some(mut metadata) = self.metadata(name, "zarr.json")? else { return Ok(None) };
                if metadata.get("node_type").and_then(Json::as_str) != Some("array") {
                    return self.group(metadata, name).map(|attributes| Some(ZarrNode::Group(attributes)));
                }
                self.of_version(&metadata, 3, name)?;
                let attributes = take_attributes(&mut metadata);
                self.array(name, parse_v3(&metadata, attributes))
            }
            ZarrVersion::Two => {
                if let Some(metadata) = self.metadata(name, ".zarray")? {
                    self.of_version(&metadata, 2, name)?;
                    let attributes = self.metadata(name, ".zattrs")?.unwrap_or_default();
                    return self.array(name, parse_v2(&metadata, attributes));
                }
                match self.metadata(name, ".zgroup")? {
                    Some(_) => Ok(Some(ZarrNode::Group(self.metadata(name, ".zattrs")?.unwrap_or_default()))),
                    None => Ok(None),
                }
            }
        }
    }

    /// Names in a group, sorted.
    pub fn names(&self, group: &str) -> Result<Vec<String>, AnnDataError> {
        let Some(known) = &self.known else {
            let mut names = self.folder.names(group)?;
            names.retain(|name| !name.starts_with('.') && name != "zarr.json");
            return Ok(names);
        };
        let inside = |key: &String| {
            let rest = key.strip_prefix(group)?.strip_prefix('/')?;
            let rest = rest.rsplit_once("/.z").map_or(rest, |(name, _)| name);
            (!rest.contains('/') && !rest.starts_with(".z")).then(|| rest.to_owned())
        };
        let mut names: Vec<String> = known.keys().filter_map(inside).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Opens the objects of arrays as one source; also returns, for each array, the part of the source of each of its keys.
    pub fn source(&self, arrays: &[&ZarrArray]) -> Result<(ByteSource, Vec<ObjectFiles>), AnnDataError> {
        let keys: Vec<Vec<String>> = arrays.iter().map(|array| array.keys()).collect();
        let (source, parts) = self.folder.source(&keys.concat())?;
        let mut parts = parts.into_iter();
        let of_each = keys.iter().map(|keys| parts.by_ref().take(keys.len()).collect()).collect();
        Ok((source, of_each))
    }

    /// An error for a node of the folder.
    pub fn wrong(&self, name: &str, damage: impl Into<DamageKind>) -> AnnDataError {
        AnnDataError::damaged(self.path(), DamageKind::inside(name, damage))
    }

    /// Fails if metadata that was read has changed.
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        for (key, hash) in &*self.read.borrow() {
            let now = self.folder.get(key, MAX_METADATA_BYTES)?.map(|bytes| blake3::hash(&bytes));
            if now != *hash {
                return Err(AnnDataError::Rewritten { path: self.path().to_owned() });
            }
        }
        Ok(())
    }

    /// Metadata of a node, consolidated or from its own file.
    fn metadata(&self, name: &str, file: &str) -> Result<Option<JsonObject>, AnnDataError> {
        let Some(known) = &self.known else { return self.get(&format!("{name}/{file}")) };
        let found = match self.version {
            ZarrVersion::Three => known.get(name),
            ZarrVersion::Two => known.get(&format!("{name}/{file}")),
        };
        match found {
            None => Ok(None),
            Some(Json::Object(found)) => Ok(Some(found.clone())),
            Some(_) => Err(self.wrong(name, ZarrError::NotObject)),
        }
    }

    /// Parses a file as a JSON object.
    fn get(&self, key: &str) -> Result<Option<JsonObject>, AnnDataError> {
        let bytes = self.folder.get(key, MAX_METADATA_BYTES)?;
        self.read.borrow_mut().push((key.to_owned(), bytes.as_deref().map(blake3::hash)));
        let Some(bytes) = bytes else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|e| self.wrong(key, ZarrError::Json(e)))
    }

    fn group(&self, mut metadata: JsonObject, name: &str) -> Result<JsonObject, AnnDataError> {
        self.of_version(&metadata, 3, name)?;
        match metadata.get("node_type").and_then(Json::as_str) {
            Some("group") => Ok(take_attributes(&mut metadata)),
            Some(other) => Err(self.wrong(name, ZarrError::NodeType { node_type: other.to_owned() })),
            None => Err(self.wrong(name, ZarrError::NoNodeType)),
        }
    }

    fn of_version(&self, metadata: &JsonObject, version: u64, name: &str) -> Result<(), AnnDataError> {
        match metadata.get("zarr_format") {
            Some(found) if found.as_u64() == Some(version) => Ok(()),
            Some(found) => Err(self.wrong(name, ZarrError::Version { found: found.clone(), expected: version })),
            None => Err(self.wrong(name, ZarrError::NoVersion)),
        }
    }

    fn array(&self, name: &str, parsed: Result<ArrayMetadata, ZarrError>) -> Result<Option<ZarrNode>, AnnDataError> {
        parsed.map(|meta| Some(ZarrNode::Array(meta))).map_err(|error| self.wrong(name, error))
    }
}

fn take_attributes(metadata: &mut JsonObject) -> JsonObject {
    match metadata.remove("attributes") {
        Some(Json::Object(attributes)) => attributes,
        _ => JsonObject::new(),
    }
}
