use std::borrow::Cow;
use std::path::Path;

use hdf5_metno::types::{Reference, TypeDescriptor};
use hdf5_metno::{Dataset, File, Group, Location, LocationType, ObjectReference1, ReferencedObject};

use super::column_values::{Most, read_values};
use super::frame_file::FrameFile;
use crate::AnnDataError;
use crate::annotation::{Column, FrameColumns, Values};

/// Why a part of a frame cannot be read, for a sentence that names file and place.
type Reason = Cow<'static, str>;

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
pub(super) struct Frame<'f> {
    file: &'f FrameFile,
    location: String,
    form: FrameForm,
    index: String,
    names: Vec<String>,
    rows: usize,
}

#[derive(Debug)]
enum FrameForm {
    Table(Dataset),
    Group(Group),
}

impl<'f> Frame<'f> {
    /// Open the frame at `location` (`obs`, `raw/var`).
    ///
    /// # Errors
    /// There is none, or it is in no form that is known.
    pub(super) fn open(file: &'f FrameFile, location: &str) -> Result<Self, AnnDataError> {
        let wrong = |reason: Reason| file.wrong(location, &reason);
        let form = match kind(file.root(), location) {
            Some(LocationType::Group) => FrameForm::Group(file.root().group(location).map_err(library).map_err(wrong)?),
            Some(LocationType::Dataset) => {
                FrameForm::Table(file.root().dataset(location).map_err(library).map_err(wrong)?)
            }
            _ => return Err(wrong("it is not there".into())),
        };
        let (index, names) = match &form {
            FrameForm::Table(table) => table_fields(table),
            FrameForm::Group(group) => group_columns(group, file.most()),
        }
        .map_err(wrong)?;
        let mut frame = Self { file, location: location.to_owned(), form, index, names, rows: 0 };
        frame.rows = match &frame.form {
            FrameForm::Table(table) => super::column_values::element_count(table).map_err(wrong)?,
            FrameForm::Group(group) => index_rows(group, &frame.index).map_err(|e| frame.wrong(&frame.index, &e))?,
        };
        if frame.rows > file.most().values {
            return Err(wrong(format!("it says that it has {} rows, more than its file can hold", frame.rows).into()));
        }
        Ok(frame)
    }

    /// A field of AnnData 0.6's compound data set.
    fn table_column(&self, table: &Dataset, name: &str, most: Most) -> Result<Column, Reason> {
        let values = read_values(table, Some(name), most)?;
        let categories = format!("uns/{name}_categories");
        let is_code = matches!(values, Values::Signed(_) | Values::Unsigned(_)) && name != self.index;
        if is_code && kind(self.file.root(), &categories) == Some(LocationType::Dataset) {
            let categories = self.file.root().dataset(&categories).map_err(library)?;
            let categories = read_values(&categories, None, self.file.most())?;
            return Column::categorical(values, categories, false);
        }
        Ok(Column::Plain { values, missing: Vec::new() })
    }

    /// A column of the later forms: a data set, or a group of several.
    fn group_column(&self, group: &Group, name: &str, most: Most) -> Result<Column, Reason> {
        if kind(group, name) == Some(LocationType::Group) {
            let column = group.group(name).map_err(library)?;
            return encoded_column(&column, most, self.file.most());
        }
        let column = group.dataset(name).map_err(|_| Reason::from("it is not there"))?;
        let values = read_values(&column, None, most)?;
        if !has_attribute(&column, "categories") {
            check_encoding(&column, &["array", "string-array", ""], &["0.2.0"])?;
            return Ok(Column::Plain { values, missing: Vec::new() });
        }
        let (categories, ordered) = referred_categories(&column, self.file.most())?;
        Column::categorical(values, categories, ordered)
    }
}

impl FrameColumns for Frame<'_> {
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

    fn read_any(&self, name: &str) -> Result<Column, String> {
        let most = Most { values: self.rows, ..self.file.most() };
        let column = match &self.form {
            FrameForm::Table(table) => self.table_column(table, name, most),
            FrameForm::Group(group) => self.group_column(group, name, most),
        };
        column.map_err(Reason::into_owned)
    }
}

/// A categorical or nullable column that is a group.
fn encoded_column(column: &Group, most: Most, most_categories: Most) -> Result<Column, Reason> {
    let part = |name: &str, most: Most| {
        let part = column.dataset(name).map_err(|_| format!("it has no data set {name:?}"))?;
        read_values(&part, None, most).map_err(|reason| Reason::from(format!("{name:?}: {reason}")))
    };
    let encoding = text_attribute(column, "encoding-type")?.unwrap_or_default();
    if encoding == "categorical" {
        check_encoding(column, &["categorical"], &["0.2.0"])?;
        let codes = part("codes", most)?;
        let categories = match kind(column, "categories") {
            Some(LocationType::Group) => {
                let group = column.group("categories").map_err(library)?;
                match encoded_column(&group, most_categories, most_categories)? {
                    Column::Plain { values, missing } if !missing.contains(&true) => values,
                    _ => return Err("its categories are not plain values".into()),
                }
            }
            _ => part("categories", most_categories)?,
        };
        return Column::categorical(codes, categories, flag(column, "ordered")?);
    }
    const NULLABLE: [&str; 4] = ["nullable-integer", "nullable-boolean", "nullable-string-array", "nullable-float"];
    if !NULLABLE.contains(&encoding.as_str()) {
        return Err(match encoding.as_str() {
            "" => "it is a group without an encoding-type".into(),
            _ => format!("its encoding {encoding:?} is not one that is read").into(),
        });
    }
    check_encoding(column, &NULLABLE, &["0.1.0", "0.2.0"])?;
    let values = part("values", most)?;
    let missing = match part("mask", most)? {
        Values::Bool(mask) => mask,
        _ => return Err("its mask is not bool".into()),
    };
    if missing.len() != values.len() {
        return Err(format!("its mask has {} values where there are {}", missing.len(), values.len()).into());
    }
    Ok(Column::Plain { values, missing })
}

/// The categories that a column of AnnData 0.7 refers to, and whether they are ordered.
fn referred_categories(column: &Dataset, most: Most) -> Result<(Values, bool), Reason> {
    let attribute = column.attr("categories").map_err(library)?;
    let is_reference = matches!(
        attribute.dtype().and_then(|dtype| dtype.to_descriptor()),
        Ok(TypeDescriptor::Reference(Reference::Object))
    );
    if !is_reference {
        return Ok((read_values(&attribute, None, most)?, false));
    }
    let reference = attribute.read_scalar::<ObjectReference1>().map_err(library)?;
    match column.dereference(&reference) {
        Ok(ReferencedObject::Dataset(categories)) if has_attribute(&categories, "categories") => {
            Err("the categories that it refers to are of categories themselves".into())
        }
        Ok(ReferencedObject::Dataset(categories)) => {
            let values = read_values(&categories, None, most).map_err(|reason| format!("its categories: {reason}"))?;
            Ok((values, flag(&categories, "ordered")?))
        }
        _ => Err("it refers to categories that are not in the file".into()),
    }
}

/// Index and columns of a compound data set.
fn table_fields(table: &Dataset) -> Result<(String, Vec<String>), Reason> {
    let dtype = table.dtype().map_err(library)?;
    let mut names = super::column_values::field_names(&dtype)?;
    const INDEX: [&str; 6] = ["index", "_index", "obs_names", "var_names", "row_names", "col_names"];
    let index = names.iter().position(|name| INDEX.contains(&name.as_str())).ok_or("it has no index")?;
    Ok((names.remove(index), names))
}

/// Index and columns of a group.
fn group_columns(group: &Group, most: Most) -> Result<(String, Vec<String>), Reason> {
    check_encoding(group, &["dataframe", ""], &["0.1.0", "0.2.0"])?;
    let index = match text_attribute(group, "_index")? {
        Some(index) => index,
        None => ["_index", "index"]
            .into_iter()
            .find(|name| group.link_exists(name))
            .ok_or("it does not say which column is its index (attribute _index)")?
            .to_owned(),
    };
    let names = if has_attribute(group, "column-order") {
        let order = group.attr("column-order").map_err(library)?;
        match read_values(&order, None, most)? {
            Values::Text(names) => names,
            // A frame without columns: Python's empty list is one of floats.
            values if values.len() == 0 => Vec::new(),
            _ => return Err("its column-order is not of strings".into()),
        }
    } else {
        let names = group.member_names().map_err(library)?;
        names.into_iter().filter(|name| name != "__categories").collect()
    };
    Ok((index.clone(), names.into_iter().filter(|name| *name != index).collect()))
}

/// Rows of a group: what its index says, whether that is a data set or a group of values and mask.
fn index_rows(group: &Group, index: &str) -> Result<usize, Reason> {
    let dataset = match kind(group, index) {
        Some(LocationType::Group) => {
            let column = group.group(index).map_err(library)?;
            let part = if column.link_exists("codes") { "codes" } else { "values" };
            column.dataset(part).map_err(|_| format!("it has no data set {part:?}"))?
        }
        _ => group.dataset(index).map_err(|_| "it is not there")?,
    };
    super::column_values::element_count(&dataset)
}

/// An error if what is written there says that it is something else, or in a version that is not known.
fn check_encoding(location: &Location, types: &[&str], versions: &[&str]) -> Result<(), Reason> {
    let encoding = text_attribute(location, "encoding-type")?.unwrap_or_default();
    if !types.contains(&encoding.as_str()) {
        return Err(format!("its encoding {encoding:?} is not one that is read here").into());
    }
    let Some(version) = text_attribute(location, "encoding-version")? else { return Ok(()) };
    if encoding.is_empty() || versions.contains(&version.as_str()) {
        return Ok(());
    }
    let known = versions.join(" and ");
    Err(format!("version {version:?} of the encoding {encoding:?} is not known, {known} is").into())
}

fn has_attribute(location: &Location, name: &str) -> bool {
    location.attr_info(name).is_ok()
}

/// An attribute that is a single string.
fn text_attribute(location: &Location, name: &str) -> Result<Option<String>, Reason> {
    if !has_attribute(location, name) {
        return Ok(None);
    }
    let attribute = location.attr(name).map_err(library)?;
    match read_values(&attribute, None, Most { values: 1, bytes: 1 << 16 }) {
        Ok(Values::Text(mut values)) if values.len() == 1 => Ok(values.pop()),
        Ok(_) => Err(format!("its attribute {name} is not a string").into()),
        Err(reason) => Err(format!("its attribute {name}: {reason}").into()),
    }
}

/// An attribute that is a truth value; false where there is none.
fn flag(location: &Location, name: &str) -> Result<bool, Reason> {
    if !has_attribute(location, name) {
        return Ok(false);
    }
    let attribute = location.attr(name).map_err(library)?;
    match read_values(&attribute, None, Most { values: 1, bytes: 1 << 16 }) {
        Ok(Values::Bool(values)) if values.len() == 1 => Ok(values[0]),
        Ok(Values::Signed(values)) if values.len() == 1 => Ok(values[0] != 0),
        Ok(Values::Unsigned(values)) if values.len() == 1 => Ok(values[0] != 0),
        Ok(_) => Err(format!("its attribute {name} is not a truth value").into()),
        Err(reason) => Err(format!("its attribute {name}: {reason}").into()),
    }
}

/// What is there, if anything.
fn kind(group: &Location, name: &str) -> Option<LocationType> {
    group.loc_type_by_name(name).ok()
}

fn library(e: hdf5_metno::Error) -> Reason {
    e.to_string().into()
}

/// Where the frames of a matrix are: `X` and layers have `var`, `raw` has its own.
pub(super) fn var_location(file: &File, layer: &str) -> &'static str {
    match layer {
        "raw" | "raw/X" | "raw.X" if kind(file, "raw.var").is_some() => "raw.var",
        "raw" | "raw/X" | "raw.X" => "raw/var",
        _ => "var",
    }
}
