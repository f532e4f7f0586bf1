//! `ZarrStore`, and obs and var of AnnData folders in zarr.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde_json::Value as Json;

use crate::ann_data::{Container, check_shape, gene_names, obsm_columns};
use crate::annotation::column::{ColumnValues, FrameColumn};
use crate::annotation::frame::{ColumnGroup, FrameColumns, FrameError, check_encoding};
use crate::names::NameLists;
use crate::zarr::array::read_values;
use crate::zarr::hierarchy::{Hierarchy, ZarrNode};
use crate::zarr::matrix::open_matrix_checked;
use crate::zarr::metadata::{ArrayMetadata, JsonObject, json_text};
use crate::{AnnDataError, AnnDataStore, MatrixFile};

/// A matrix of an AnnData folder in zarr.
pub type ZarrStore = AnnDataStore<Zarr>;

/// The zarr container.
#[derive(Debug)]
pub struct Zarr;

impl Container for Zarr {
    fn open(
        path: &Path,
        layer: &str,
        csc_bytes: &AtomicU64,
        lists: &NameLists,
    ) -> Result<(MatrixFile, Arc<[String]>), AnnDataError> {
        let tree = Hierarchy::open(path)?;
        let mut genes: Arc<[String]> = Arc::default();
        let var = if matches!(layer, "raw" | "raw/X") { "raw/var" } else { "var" };
        let matrix = open_matrix_checked(&tree, layer, csc_bytes, |rows, columns| {
            let obs = ZarrFrame::open(&tree, "obs")?;
            genes = match obsm_columns(layer, (rows, columns), &obs)? {
                Some(names) => lists.shared(names.into()),
                None => {
                    let var = ZarrFrame::open(&tree, var)?;
                    check_shape(layer, (rows, columns), &obs, &var)?;
                    gene_names(&var, lists)?
                }
            };
            Ok(())
        })?;
        Ok((matrix, genes))
    }

    fn obs<T>(path: &Path, read: impl FnOnce(&dyn FrameColumns) -> Result<T, AnnDataError>) -> Result<T, AnnDataError> {
        let tree = Hierarchy::open(path)?;
        let values = read(&ZarrFrame::open(&tree, "obs")?)?;
        tree.unchanged()?;
        Ok(values)
    }
}

/// obs or var of an AnnData folder: a group (`dataframe` 0.2.0 as AnnData 0.8 and later write it, or 0.1.0).
///
/// Source: <https://anndata.readthedocs.io/en/stable/fileformat-prose.html>, and AnnData's own readers.
struct ZarrFrame<'t> {
    tree: &'t Hierarchy,
    location: String,
    index: String,
    names: Vec<String>,
    rows: u64,
}

/// Limits of categories: only the files bound them.
const MAX_CATEGORIES: u64 = i32::MAX as u64;

impl<'t> ZarrFrame<'t> {
    /// Opens the frame at `location`, such as `obs` or `raw/var`.
    ///
    /// # Errors
    /// There is no such frame, or its form is not known.
    pub fn open(tree: &'t Hierarchy, location: &str) -> Result<Self, AnnDataError> {
        let wrong = |error: FrameError| tree.wrong(location, error);
        let attributes = match tree.node(location)? {
            Some(ZarrNode::Group(attributes)) => attributes,
            Some(ZarrNode::Array(_)) => return Err(wrong(FrameError::IsArray)),
            None => return Err(wrong(FrameError::Absent)),
        };
        check_attributes(&attributes, &["dataframe"], &["0.1.0", "0.2.0"]).map_err(wrong)?;
        let index = json_text(&attributes, "_index").ok_or_else(|| wrong(FrameError::NoIndexAttribute))?;
        let order = attributes.get("column-order").and_then(Json::as_array);
        let order = order.and_then(|order| order.iter().map(Json::as_str).collect::<Option<Vec<&str>>>());
        let order = order.ok_or_else(|| wrong(FrameError::ColumnOrder))?;
        let names = order.into_iter().filter(|name| *name != index).map(str::to_owned).collect();
        let mut frame = Self { tree, location: location.to_owned(), index: index.to_owned(), names, rows: 0 };
        frame.rows = frame.index_rows().map_err(|error| frame.wrong(&frame.index, error))?;
        Ok(frame)
    }

    /// Number of rows: the length of the index, which is an array, or a group of values and mask.
    fn index_rows(&self) -> Result<u64, FrameError> {
        let name = format!("{}/{}", self.location, self.index);
        let meta = match self.node(&name)? {
            ZarrNode::Array(meta) => meta,
            ZarrNode::Group(attributes) => {
                let part =
                    if json_text(&attributes, "encoding-type") == Some("categorical") { "codes" } else { "values" };
                self.array(&format!("{name}/{part}"))?
            }
        };
        match meta.shape[..] {
            [rows] => Ok(rows),
            _ => Err(FrameError::Dimensions { shape: meta.shape }),
        }
    }

    fn node(&self, name: &str) -> Result<ZarrNode, FrameError> {
        self.tree.node(name)?.ok_or(FrameError::Absent)
    }

    fn array(&self, name: &str) -> Result<ArrayMetadata, FrameError> {
        match self.tree.node(name)? {
            Some(ZarrNode::Array(meta)) => Ok(meta),
            _ => {
                let part = name.rsplit('/').next().unwrap_or_default().to_owned();
                Err(FrameError::MissingPart { what: "array", part })
            }
        }
    }

    /// A column that is an array; AnnData 0.7 stores the location of its categories in an attribute.
    fn plain(&self, name: &str, meta: ArrayMetadata) -> Result<FrameColumn, FrameError> {
        let categories = meta.text("categories").map(|place| format!("{}/{place}", self.location));
        if categories.is_none() {
            check_attributes(&meta.attributes, &["array", "string-array", ""], &["0.2.0"])?;
        }
        let values = read_values(self.tree, name, meta, self.rows)?;
        let Some(place) = categories else { return Ok(FrameColumn::Plain { values, missing: Vec::new() }) };
        let meta = self.array(&place)?;
        let ordered = flag(&meta.attributes, "ordered")?;
        let categories = read_values(self.tree, &place, meta, MAX_CATEGORIES)
            .map_err(|error| FrameError::inside("its categories", error))?;
        FrameColumn::categorical(values, categories, ordered)
    }
}

impl FrameColumns for ZarrFrame<'_> {
    fn location(&self) -> &str {
        &self.location
    }

    fn path(&self) -> &Path {
        self.tree.path()
    }

    fn rows(&self) -> usize {
        usize::try_from(self.rows).unwrap_or(usize::MAX)
    }

    fn index_name(&self) -> &str {
        &self.index
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn read_any(&self, name: &str) -> Result<FrameColumn, FrameError> {
        let place = format!("{}/{name}", self.location);
        match self.node(&place)? {
            ZarrNode::Array(meta) => self.plain(&place, meta),
            ZarrNode::Group(attributes) => ZarrColumnGroup { frame: self, name: place, attributes }.read(false),
        }
    }
}

/// A column that is a group.
struct ZarrColumnGroup<'f> {
    frame: &'f ZarrFrame<'f>,
    name: String,
    attributes: JsonObject,
}

impl ColumnGroup for ZarrColumnGroup<'_> {
    fn text(&self, name: &str) -> Result<Option<String>, FrameError> {
        Ok(json_text(&self.attributes, name).map(str::to_owned))
    }

    fn flag(&self, name: &str) -> Result<bool, FrameError> {
        flag(&self.attributes, name)
    }

    fn values(&self, part: &'static str, is_category: bool) -> Result<ColumnValues, FrameError> {
        let name = format!("{}/{part}", self.name);
        let meta = self.frame.array(&name)?;
        let most = if is_category { MAX_CATEGORIES } else { self.frame.rows };
        read_values(self.frame.tree, &name, meta, most).map_err(|error| FrameError::inside(format!("{part:?}"), error))
    }

    fn group(&self, part: &str) -> Result<Option<Self>, FrameError> {
        let name = format!("{}/{part}", self.name);
        match self.frame.node(&name)? {
            ZarrNode::Array(_) => Ok(None),
            ZarrNode::Group(attributes) => Ok(Some(Self { frame: self.frame, name, attributes })),
        }
    }
}

/// Fails if a node has another encoding, or one of an unknown version.
fn check_attributes(attributes: &JsonObject, types: &[&str], versions: &[&str]) -> Result<(), FrameError> {
    let version = || Ok(json_text(attributes, "encoding-version").map(str::to_owned));
    check_encoding(json_text(attributes, "encoding-type"), version, types, versions)
}

/// A Boolean attribute; `false` if there is none.
fn flag(attributes: &JsonObject, name: &str) -> Result<bool, FrameError> {
    match attributes.get(name) {
        None | Some(Json::Null) => Ok(false),
        Some(Json::Bool(value)) => Ok(*value),
        Some(_) => Err(FrameError::NotBoolAttribute { name: name.to_owned() }),
    }
}
