use std::path::Path;

use serde_json::Value as Json;

use crate::ann_data::{Container, check_shape, gene_names};
use crate::annotation::{ColumnValues, FrameColumn, FrameColumns};
use crate::zarr::array::read_values;
use crate::zarr::hierarchy::{Hierarchy, Node};
use crate::zarr::matrix::open_matrix_checked;
use crate::zarr::metadata::{ArrayMetadata, JsonObject, json_text};
use crate::{AnnDataError, AnnDataStore, MatrixFile};

/// A matrix of an AnnData folder in zarr.
pub type ZarrStore = AnnDataStore<Zarr>;

/// The zarr container.
#[derive(Debug)]
pub struct Zarr;

impl Container for Zarr {
    fn open(path: &Path, layer: &str, csc_bytes: u64) -> Result<(MatrixFile, Vec<String>), AnnDataError> {
        let tree = Hierarchy::open(path)?;
        let mut genes = Vec::new();
        let var = if matches!(layer, "raw" | "raw/X") { "raw/var" } else { "var" };
        let matrix = open_matrix_checked(&tree, layer, csc_bytes, |rows, columns| {
            let var = ZarrFrame::open(&tree, var)?;
            check_shape(layer, (rows, columns), &ZarrFrame::open(&tree, "obs")?, &var)?;
            genes = gene_names(&var)?;
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
        let wrong = |reason: &str| tree.wrong(location, reason);
        let attributes = match tree.node(location)? {
            Some(Node::Group(attributes)) => attributes,
            Some(Node::Array(_)) => return Err(wrong("it is an array instead of a group")),
            None => return Err(wrong("it is not there")),
        };
        check_encoding(&attributes, &["dataframe"], &["0.1.0", "0.2.0"]).map_err(|reason| wrong(&reason))?;
        let index = json_text(&attributes, "_index")
            .ok_or_else(|| wrong("it does not say which column is its index (attribute _index)"))?;
        let order = attributes.get("column-order").and_then(Json::as_array);
        let order = order.and_then(|order| order.iter().map(Json::as_str).collect::<Option<Vec<&str>>>());
        let order = order.ok_or_else(|| wrong("its column-order is not of strings"))?;
        let names = order.into_iter().filter(|name| *name != index).map(str::to_owned).collect();
        let mut frame = Self { tree, location: location.to_owned(), index: index.to_owned(), names, rows: 0 };
        frame.rows = frame.index_rows().map_err(|reason| frame.wrong(&frame.index, &reason))?;
        Ok(frame)
    }

    /// Number of rows: the length of the index, which is an array, or a group of values and mask.
    fn index_rows(&self) -> Result<u64, String> {
        let name = format!("{}/{}", self.location, self.index);
        let meta = match self.node(&name)? {
            Node::Array(meta) => meta,
            Node::Group(attributes) => {
                let part =
                    if json_text(&attributes, "encoding-type") == Some("categorical") { "codes" } else { "values" };
                self.array(&format!("{name}/{part}"))?
            }
        };
        match meta.shape[..] {
            [rows] => Ok(rows),
            _ => Err(format!("it has the shape {:?} where one dimension is expected", meta.shape)),
        }
    }

    fn node(&self, name: &str) -> Result<Node, String> {
        self.tree.node(name).map_err(|e| e.to_string())?.ok_or_else(|| "it is not there".to_owned())
    }

    fn array(&self, name: &str) -> Result<ArrayMetadata, String> {
        let last = name.rsplit('/').next().unwrap_or_default();
        match self.tree.node(name).map_err(|e| e.to_string())? {
            Some(Node::Array(meta)) => Ok(meta),
            _ => Err(format!("it has no array {last:?}")),
        }
    }

    /// A member of a column that is a group.
    fn part(&self, column: &str, part: &str, most: u64) -> Result<ColumnValues, String> {
        let name = format!("{column}/{part}");
        read_values(self.tree, &name, self.array(&name)?, most).map_err(|reason| format!("{part:?}: {reason}"))
    }

    /// A categorical or nullable column, which is a group.
    fn encoded(
        &self,
        name: &str,
        attributes: &JsonObject,
        most: u64,
        most_categories: u64,
    ) -> Result<FrameColumn, String> {
        const NULLABLE: [&str; 4] = ["nullable-integer", "nullable-boolean", "nullable-string-array", "nullable-float"];
        match json_text(attributes, "encoding-type").unwrap_or_default() {
            "categorical" => {
                check_encoding(attributes, &["categorical"], &["0.2.0"])?;
                let codes = self.part(name, "codes", most)?;
                let categories = match self.node(&format!("{name}/categories"))? {
                    Node::Array(_) => self.part(name, "categories", most_categories)?,
                    Node::Group(of) if json_text(&of, "encoding-type") != Some("categorical") => {
                        match self.encoded(&format!("{name}/categories"), &of, most_categories, most_categories)? {
                            FrameColumn::Plain { values, missing } if !missing.contains(&true) => values,
                            _ => return Err("its categories are not plain values".to_owned()),
                        }
                    }
                    Node::Group(_) => return Err("its categories are not plain values".to_owned()),
                };
                Ok(FrameColumn::categorical(codes, categories, flag(attributes, "ordered")?)?)
            }
            "" => Err("it is a group without an encoding-type".to_owned()),
            encoding if !NULLABLE.contains(&encoding) => {
                Err(format!("its encoding {encoding:?} is not one that is read"))
            }
            _ => {
                check_encoding(attributes, &NULLABLE, &["0.1.0", "0.2.0"])?;
                let values = self.part(name, "values", most)?;
                let ColumnValues::Bool(missing) = self.part(name, "mask", most)? else {
                    return Err("its mask is not bool".to_owned());
                };
                if missing.len() != values.len() {
                    return Err(format!("its mask has {} values where there are {}", missing.len(), values.len()));
                }
                Ok(FrameColumn::Plain { values, missing })
            }
        }
    }

    /// A column that is an array; AnnData 0.7 stores the location of its categories in an attribute.
    fn plain(&self, name: &str, meta: ArrayMetadata) -> Result<FrameColumn, String> {
        let categories = meta.text("categories").map(|place| format!("{}/{place}", self.location));
        if categories.is_none() {
            check_encoding(&meta.attributes, &["array", "string-array", ""], &["0.2.0"])?;
        }
        let values = read_values(self.tree, name, meta, self.rows)?;
        let Some(place) = categories else { return Ok(FrameColumn::Plain { values, missing: Vec::new() }) };
        let meta = self.array(&place)?;
        let ordered = flag(&meta.attributes, "ordered")?;
        let categories = read_values(self.tree, &place, meta, MAX_CATEGORIES)
            .map_err(|reason| format!("its categories: {reason}"))?;
        Ok(FrameColumn::categorical(values, categories, ordered)?)
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

    fn read_any(&self, name: &str) -> Result<FrameColumn, String> {
        let place = format!("{}/{name}", self.location);
        match self.node(&place)? {
            Node::Array(meta) => self.plain(&place, meta),
            Node::Group(attributes) => self.encoded(&place, &attributes, self.rows, MAX_CATEGORIES),
        }
    }
}

/// Fails if the encoding is another one, or has an unknown version.
fn check_encoding(attributes: &JsonObject, types: &[&str], versions: &[&str]) -> Result<(), String> {
    let encoding = json_text(attributes, "encoding-type").unwrap_or_default();
    if !types.contains(&encoding) {
        return Err(format!("its encoding {encoding:?} is not one that is read here"));
    }
    match json_text(attributes, "encoding-version") {
        Some(version) if !encoding.is_empty() && !versions.contains(&version) => {
            let known = versions.join(" and ");
            Err(format!("version {version:?} of the encoding {encoding:?} is not known, {known} is"))
        }
        _ => Ok(()),
    }
}

/// A Boolean attribute; `false` if there is none.
fn flag(attributes: &JsonObject, name: &str) -> Result<bool, String> {
    match attributes.get(name) {
        None | Some(Json::Null) => Ok(false),
        Some(Json::Bool(value)) => Ok(*value),
        Some(_) => Err(format!("its attribute {name} is not a truth value")),
    }
}
