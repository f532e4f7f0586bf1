//! `H5adStore`, and obs and var of .h5ad files in all forms that AnnData has written since version 0.6.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use hdf5_metno::types::{Reference, TypeDescriptor};
use hdf5_metno::{Dataset, File, Group, Location, LocationType, ObjectReference1, ReferencedObject};

use crate::ann_data::{Container, check_shape, gene_names, obsm_columns};
use crate::annotation::column::{ColumnValues, FrameColumn};
use crate::annotation::frame::{ColumnGroup, FrameColumns, FrameError, check_encoding};
use crate::error::DamageKind;
use crate::h5ad::array_layout::OpenFile;
use crate::h5ad::file_driver::{open_hdf5, open_with_library};
use crate::h5ad::filters::register_hdf5_filters;
use crate::h5ad::values::{ReadLimit, element_count, field_names, read_values};
use crate::h5ad::variable_strings::read_variable_strings;
use crate::names::{NameLists, PackedNames};
use crate::source::byte_source::ByteSource;
use crate::{AnnDataError, AnnDataStore, MatrixFile};

/// A matrix of an .h5ad file.
pub type H5adStore = AnnDataStore<Hdf5>;

/// The HDF5 container.
#[derive(Debug)]
pub struct Hdf5;

impl Container for Hdf5 {
    fn open(
        path: &Path,
        layer: &str,
        csc_bytes: &AtomicU64,
        lists: &NameLists,
    ) -> Result<(MatrixFile, Arc<[String]>), AnnDataError> {
        let mut genes: Arc<[String]> = Arc::default();
        let matrix = MatrixFile::open_checked(path, layer, csc_bytes, |rows, columns| {
            let file = Hdf5FrameFile::open(path)?;
            let obs = Hdf5Frame::open(&file, "obs")?;
            genes = match obsm_columns(layer, (rows, columns), &obs)? {
                Some(names) => lists.shared(names.into()),
                None => {
                    let var = Hdf5Frame::open(&file, var_location(file.root(), layer))?;
                    check_shape(layer, (rows, columns), &obs, &var)?;
                    gene_names(&var, lists)?
                }
            };
            Ok(())
        })?;
        matrix.unchanged()?;
        Ok((matrix, genes))
    }

    fn obs<T>(path: &Path, read: impl FnOnce(&dyn FrameColumns) -> Result<T, AnnDataError>) -> Result<T, AnnDataError> {
        let file = Hdf5FrameFile::open(path)?;
        read(&Hdf5Frame::open(&file, "obs")?)
    }
}

/// Upper bound of the compression ratio of HDF5's filters (deflate reaches 1,032). It is not applied to arrays below
/// [`SMALL_ARRAY_BYTES`].
const MAX_COMPRESSION_RATIO: u64 = 1_100;
const SMALL_ARRAY_BYTES: u64 = 64 << 20;

/// A file whose obs and var are read.
#[derive(Debug)]
pub(crate) struct Hdf5FrameFile {
    source: ByteSource,
    file: File,
}

impl Hdf5FrameFile {
    /// # Errors
    /// The file cannot be opened, or is not HDF5.
    pub fn open(path: &Path) -> Result<Self, AnnDataError> {
        register_hdf5_filters()?;
        let source = open_hdf5(path)?;
        let file = open_with_library(path)?;
        Ok(Self { source, file })
    }

    pub fn path(&self) -> &Path {
        self.source.path()
    }

    pub fn root(&self) -> &File {
        &self.file
    }

    /// Upper bound of an array in this file.
    pub fn most(&self) -> ReadLimit {
        let bytes = self.source.bytes().saturating_mul(MAX_COMPRESSION_RATIO).max(SMALL_ARRAY_BYTES);
        ReadLimit { values: usize::try_from(bytes).unwrap_or(usize::MAX), bytes }
    }

    /// An error for a node of the file.
    pub fn wrong(&self, location: &str, error: FrameError) -> AnnDataError {
        self.source.damaged(DamageKind::inside(location, error))
    }
}

/// obs or var of an AnnData file, in any of the forms that AnnData wrote.
///
/// | Written by | Form |
/// |---|---|
/// | 0.6 | a compound data set; the first field is the index; categories of `NAME` are `uns/NAME_categories` |
/// | 0.7 | a group (`dataframe` 0.1.0); a column's attribute `categories` refers to `__categories/NAME` |
/// | 0.8 and later | a group (`dataframe` 0.2.0); a categorical or nullable column is a group of its own |
///
/// Source: <https://anndata.readthedocs.io/en/stable/fileformat-prose.html>, and AnnData's own readers.
#[derive(Debug)]
struct Hdf5Frame<'f> {
    file: &'f Hdf5FrameFile,
    location: String,
    form: Hdf5FrameForm,
    index: String,
    names: Vec<String>,
    rows: usize,
}

#[derive(Debug)]
enum Hdf5FrameForm {
    Table(Dataset),
    Group(Group),
}

impl<'f> Hdf5Frame<'f> {
    /// Opens the frame at `location`, such as `obs` or `raw/var`.
    ///
    /// # Errors
    /// There is no such frame, or its form is not known.
    pub fn open(file: &'f Hdf5FrameFile, location: &str) -> Result<Self, AnnDataError> {
        let wrong = |error: FrameError| file.wrong(location, error);
        let form = match location_type(file.root(), location) {
            Some(LocationType::Group) => {
                Hdf5FrameForm::Group(file.root().group(location).map_err(library_error).map_err(wrong)?)
            }
            Some(LocationType::Dataset) => {
                Hdf5FrameForm::Table(file.root().dataset(location).map_err(library_error).map_err(wrong)?)
            }
            _ => return Err(wrong(FrameError::Absent)),
        };
        let (index, names) = match &form {
            Hdf5FrameForm::Table(table) => table_fields(table),
            Hdf5FrameForm::Group(group) => group_columns(group, file.most()),
        }
        .map_err(wrong)?;
        let mut frame = Self { file, location: location.to_owned(), form, index, names, rows: 0 };
        frame.rows = match &frame.form {
            Hdf5FrameForm::Table(table) => element_count(table).map_err(wrong)?,
            Hdf5FrameForm::Group(group) => {
                index_rows(group, &frame.index).map_err(|error| frame.wrong(&frame.index, error))?
            }
        };
        if frame.rows > file.most().values {
            return Err(wrong(FrameError::TooManyRows { rows: frame.rows }));
        }
        Ok(frame)
    }

    /// A field of the compound data set of AnnData 0.6.
    fn table_column(&self, table: &Dataset, name: &str, most: ReadLimit) -> Result<FrameColumn, FrameError> {
        let values = read_values(table, Some(name), most)?;
        let categories = format!("uns/{name}_categories");
        let is_code = matches!(values, ColumnValues::Signed(_) | ColumnValues::Unsigned(_)) && name != self.index;
        if is_code && location_type(self.file.root(), &categories) == Some(LocationType::Dataset) {
            let categories = self.file.root().dataset(&categories).map_err(library_error)?;
            let categories = read_values(&categories, None, self.file.most())?;
            return FrameColumn::categorical(values, categories, false);
        }
        Ok(FrameColumn::Plain { values, missing: Vec::new() })
    }

    /// A column of the later forms: a data set or a group.
    fn group_column(&self, group: &Group, name: &str, most: ReadLimit) -> Result<FrameColumn, FrameError> {
        if location_type(group, name) == Some(LocationType::Group) {
            let column = group.group(name).map_err(library_error)?;
            return Hdf5ColumnGroup { group: column, rows: most, categories: self.file.most() }.read(false);
        }
        let column = group.dataset(name).map_err(|_| FrameError::Absent)?;
        let values = read_values(&column, None, most)?;
        if !has_attribute(&column, "categories") {
            check_plain(&column)?;
            return Ok(FrameColumn::Plain { values, missing: Vec::new() });
        }
        let (categories, ordered) = referred_categories(&column, self.file.most())?;
        FrameColumn::categorical(values, categories, ordered)
    }
}

impl FrameColumns for Hdf5Frame<'_> {
    fn location(&self) -> &str {
        &self.location
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn index_name(&self) -> &str {
        &self.index
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn read_any(&self, name: &str) -> Result<FrameColumn, FrameError> {
        let most = ReadLimit { values: self.rows, ..self.file.most() };
        match &self.form {
            Hdf5FrameForm::Table(table) => self.table_column(table, name, most),
            Hdf5FrameForm::Group(group) => self.group_column(group, name, most),
        }
    }

    fn packed_index(&self) -> Option<PackedNames> {
        let Hdf5FrameForm::Group(group) = &self.form else { return None };
        // Of a remote object libhdf5 reads whole pages, which other reads then find in a cache.
        if self.file.source.is_remote() {
            return None;
        }
        let column = group.dataset(&self.index).ok()?;
        if has_attribute(&column, "categories") || check_plain(&column).is_err() {
            return None;
        }
        let open = OpenFile::of(&self.file.source, self.file.file.clone()).ok()?;
        let most = ReadLimit { values: self.rows, ..self.file.most() };
        read_variable_strings(&open, &column, most).filter(|names| names.count() == self.rows)
    }
}

/// A column that is a group, and the limits of its values and of its categories.
struct Hdf5ColumnGroup {
    group: Group,
    rows: ReadLimit,
    categories: ReadLimit,
}

impl ColumnGroup for Hdf5ColumnGroup {
    fn text(&self, name: &str) -> Result<Option<String>, FrameError> {
        text_attribute(&self.group, name)
    }

    fn flag(&self, name: &str) -> Result<bool, FrameError> {
        flag(&self.group, name)
    }

    fn values(&self, part: &'static str, is_category: bool) -> Result<ColumnValues, FrameError> {
        let missing = |_| FrameError::MissingPart { what: "data set", part: part.to_owned() };
        let array = self.group.dataset(part).map_err(missing)?;
        let most = if is_category { self.categories } else { self.rows };
        read_values(&array, None, most).map_err(|error| FrameError::inside(format!("{part:?}"), error))
    }

    fn group(&self, part: &str) -> Result<Option<Self>, FrameError> {
        if location_type(&self.group, part) != Some(LocationType::Group) {
            return Ok(None);
        }
        let group = self.group.group(part).map_err(library_error)?;
        Ok(Some(Self { group, rows: self.rows, categories: self.categories }))
    }
}

/// The categories to which a column of AnnData 0.7 refers, and whether they are ordered.
fn referred_categories(column: &Dataset, most: ReadLimit) -> Result<(ColumnValues, bool), FrameError> {
    let attribute = column.attr("categories").map_err(library_error)?;
    let is_reference = matches!(
        attribute.dtype().and_then(|dtype| dtype.to_descriptor()),
        Ok(TypeDescriptor::Reference(Reference::Object))
    );
    if !is_reference {
        return Ok((read_values(&attribute, None, most)?, false));
    }
    let reference = attribute.read_scalar::<ObjectReference1>().map_err(library_error)?;
    match column.dereference(&reference) {
        Ok(ReferencedObject::Dataset(categories)) if has_attribute(&categories, "categories") => {
            Err(FrameError::ReferredCategories)
        }
        Ok(ReferencedObject::Dataset(categories)) => {
            let values = read_values(&categories, None, most);
            let values = values.map_err(|error| FrameError::inside("its categories", error))?;
            Ok((values, flag(&categories, "ordered")?))
        }
        _ => Err(FrameError::LostCategories),
    }
}

/// Index and columns of a compound data set.
fn table_fields(table: &Dataset) -> Result<(String, Vec<String>), FrameError> {
    let dtype = table.dtype().map_err(library_error)?;
    let mut names = field_names(&dtype)?;
    const INDEX: [&str; 6] = ["index", "_index", "obs_names", "var_names", "row_names", "col_names"];
    let index = names.iter().position(|name| INDEX.contains(&name.as_str())).ok_or(FrameError::NoIndex)?;
    Ok((names.remove(index), names))
}

/// Index and columns of a group.
fn group_columns(group: &Group, most: ReadLimit) -> Result<(String, Vec<String>), FrameError> {
    check_location(group, &["dataframe", ""], &["0.1.0", "0.2.0"])?;
    let index = match text_attribute(group, "_index")? {
        Some(index) => index,
        None => ["_index", "index"]
            .into_iter()
            .find(|name| group.link_exists(name))
            .ok_or(FrameError::NoIndexAttribute)?
            .to_owned(),
    };
    let names = if has_attribute(group, "column-order") {
        let order = group.attr("column-order").map_err(library_error)?;
        match read_values(&order, None, most)? {
            ColumnValues::Text(names) => names,
            // A frame without columns: h5py writes an empty list as floats.
            values if values.len() == 0 => Vec::new(),
            _ => return Err(FrameError::ColumnOrder),
        }
    } else {
        let names = group.member_names().map_err(library_error)?;
        names.into_iter().filter(|name| name != "__categories").collect()
    };
    Ok((index.clone(), names.into_iter().filter(|name| *name != index).collect()))
}

/// Number of rows of a group: the length of its index, which is a data set, or a group of values and mask.
fn index_rows(group: &Group, index: &str) -> Result<usize, FrameError> {
    let dataset = match location_type(group, index) {
        Some(LocationType::Group) => {
            let column = group.group(index).map_err(library_error)?;
            let part = if column.link_exists("codes") { "codes" } else { "values" };
            let missing = |_| FrameError::MissingPart { what: "data set", part: part.to_owned() };
            column.dataset(part).map_err(missing)?
        }
        _ => group.dataset(index).map_err(|_| FrameError::Absent)?,
    };
    element_count(&dataset)
}

/// Fails if a node has another encoding, or one of an unknown version.
fn check_location(location: &Location, types: &[&str], versions: &[&str]) -> Result<(), FrameError> {
    let encoding = text_attribute(location, "encoding-type")?;
    check_encoding(encoding.as_deref(), || text_attribute(location, "encoding-version"), types, versions)
}

/// Fails if a column that is an array is not plain values.
fn check_plain(column: &Dataset) -> Result<(), FrameError> {
    check_location(column, &["array", "string-array", ""], &["0.2.0"])
}

fn has_attribute(location: &Location, name: &str) -> bool {
    location.attr_info(name).is_ok()
}

/// The values of an attribute with one value; `None` if there is no such attribute.
fn attribute_value(location: &Location, name: &str) -> Result<Option<ColumnValues>, FrameError> {
    if !has_attribute(location, name) {
        return Ok(None);
    }
    let attribute = location.attr(name).map_err(library_error)?;
    let value = read_values(&attribute, None, ReadLimit { values: 1, bytes: 1 << 16 });
    value.map(Some).map_err(|error| FrameError::inside(format!("its attribute {name}"), error))
}

/// A string attribute.
fn text_attribute(location: &Location, name: &str) -> Result<Option<String>, FrameError> {
    match attribute_value(location, name)? {
        None => Ok(None),
        Some(ColumnValues::Text(mut values)) if values.len() == 1 => Ok(values.pop()),
        Some(_) => Err(FrameError::NotTextAttribute { name: name.to_owned() }),
    }
}

/// A Boolean attribute; `false` if there is none.
fn flag(location: &Location, name: &str) -> Result<bool, FrameError> {
    match attribute_value(location, name)? {
        None => Ok(false),
        Some(ColumnValues::Bool(values)) if values.len() == 1 => Ok(values[0]),
        Some(ColumnValues::Signed(values)) if values.len() == 1 => Ok(values[0] != 0),
        Some(ColumnValues::Unsigned(values)) if values.len() == 1 => Ok(values[0] != 0),
        Some(_) => Err(FrameError::NotBoolAttribute { name: name.to_owned() }),
    }
}

/// Type of the node at `name`, if there is one.
fn location_type(group: &Location, name: &str) -> Option<LocationType> {
    group.loc_type_by_name(name).ok()
}

fn library_error(error: hdf5_metno::Error) -> FrameError {
    FrameError::Hdf5(error.into())
}

/// Location of the var of a matrix: X and layers have `var`, raw has its own.
fn var_location(file: &File, layer: &str) -> &'static str {
    match layer {
        "raw" | "raw/X" | "raw.X" if location_type(file, "raw.var").is_some() => "raw.var",
        "raw" | "raw/X" | "raw.X" => "raw/var",
        _ => "var",
    }
}
