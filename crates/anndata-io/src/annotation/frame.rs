//! `FrameColumns`: obs or var of a file, which the readers of h5ad and of zarr implement; and the encodings of columns that both formats share.
//! Invariant: a column has one value for each row of its frame; an encoding or a version that is not known is an error.

use std::borrow::Cow;
use std::path::Path;

use crate::annotation::column::{ColumnValues, FrameColumn};
use crate::codec::CodecError;
use crate::error::DamageKind;
use crate::h5ad::array_layout::Hdf5Error;
use crate::names::{MissingName, NameError, PackedNames};
use crate::zarr::metadata::ZarrError;
use crate::{AnnDataError, Labels};

/// A frame (obs or var) in any container.
pub trait FrameColumns {
    /// Location in the file (`obs`, `raw/var`).
    fn location(&self) -> &str;

    /// Path of the file.
    fn path(&self) -> &Path;

    /// Number of rows.
    fn rows(&self) -> usize;

    /// Name of the index.
    fn index_name(&self) -> &str;

    /// Names of the columns, in order, without the index.
    fn names(&self) -> &[String];

    /// Reads an existing column, of any length.
    ///
    /// # Errors
    /// The column cannot be read.
    fn read_any(&self, name: &str) -> Result<FrameColumn, FrameError>;

    /// An error for a column.
    fn wrong(&self, name: &str, error: FrameError) -> AnnDataError {
        AnnDataError::damaged(self.path(), DamageKind::inside(format!("{}/{name}", self.location()), error))
    }

    /// Reads an existing column.
    ///
    /// # Errors
    /// The column cannot be read, or its length is not the number of rows.
    fn read(&self, name: &str) -> Result<FrameColumn, AnnDataError> {
        let column = self.read_any(name).map_err(|error| self.wrong(name, error))?;
        if column.len() != self.rows() {
            return Err(self.wrong(name, FrameError::Length { values: column.len(), rows: self.rows() }));
        }
        Ok(column)
    }

    /// Reads the index: a name for each row.
    ///
    /// # Errors
    /// The index cannot be read, or a name is missing.
    fn index(&self) -> Result<Vec<String>, AnnDataError> {
        let column = self.read(self.index_name())?;
        column.into_strings().ok_or_else(|| self.wrong(self.index_name(), FrameError::UnnamedRow))
    }

    /// The index, if its names can be read faster than by [`Self::index`], which says what is wrong with them otherwise.
    fn packed_index(&self) -> Option<PackedNames> {
        None
    }

    /// Reads a column as classes.
    ///
    /// # Errors
    /// There is no such column, or it cannot be read.
    fn labels(&self, name: &str) -> Result<Labels, AnnDataError> {
        Ok(self.column(name)?.into_labels())
    }

    /// Reads a column as numbers; a missing value is NaN.
    ///
    /// # Errors
    /// There is no such column, it cannot be read, or it holds strings.
    fn numbers(&self, name: &str) -> Result<Vec<f64>, AnnDataError> {
        let column = self.column(name)?;
        column.into_numbers().ok_or_else(|| self.wrong(name, FrameError::NotNumbers))
    }

    /// Reads a column or the index by name.
    ///
    /// # Errors
    /// There is no such column, or it cannot be read.
    fn column(&self, name: &str) -> Result<FrameColumn, AnnDataError> {
        if !self.names().iter().any(|other| other == name) && name != self.index_name() {
            let names = self.names().iter().map(String::as_str);
            let what = format!("{} has no column {name:?}", self.location());
            let missing = FrameError::MissingColumn(MissingName::new(what, "columns", name, names));
            return Err(AnnDataError::damaged(self.path(), missing));
        }
        self.read(name)
    }
}

/// Encodings of nullable columns, which have values and a mask.
const NULLABLE: [&str; 4] = ["nullable-integer", "nullable-boolean", "nullable-string-array", "nullable-float"];

/// A column that is a group, or the group of its categories.
pub(crate) trait ColumnGroup: Sized {
    /// A string attribute; `None` if there is none.
    fn text(&self, name: &str) -> Result<Option<String>, FrameError>;

    /// A Boolean attribute; `false` if there is none.
    fn flag(&self, name: &str) -> Result<bool, FrameError>;

    /// Reads a member that is an array.
    fn values(&self, part: &'static str, is_category: bool) -> Result<ColumnValues, FrameError>;

    /// A member that is a group; `None` if it is an array.
    fn group(&self, part: &str) -> Result<Option<Self>, FrameError>;

    /// Fails if the encoding is another one, or has an unknown version.
    fn check_encoding(&self, types: &[&str], versions: &[&str]) -> Result<(), FrameError> {
        let encoding = self.text("encoding-type")?;
        check_encoding(encoding.as_deref(), || self.text("encoding-version"), types, versions)
    }

    /// Reads the categorical or nullable column. `is_category` says that the column has the categories of another one, whose rows
    /// are not those of the frame.
    fn read(&self, is_category: bool) -> Result<FrameColumn, FrameError> {
        match self.text("encoding-type")?.unwrap_or_default().as_str() {
            "categorical" => {
                self.check_encoding(&["categorical"], &["0.2.0"])?;
                let codes = self.values("codes", is_category)?;
                let categories = match self.group("categories")? {
                    Some(group) if group.text("encoding-type")?.as_deref() == Some("categorical") => {
                        return Err(FrameError::NestedCategories);
                    }
                    Some(group) => match group.read(true)? {
                        FrameColumn::Plain { values, missing } if !missing.contains(&true) => values,
                        _ => return Err(FrameError::NestedCategories),
                    },
                    None => self.values("categories", true)?,
                };
                FrameColumn::categorical(codes, categories, self.flag("ordered")?)
            }
            "" => Err(FrameError::NoEncoding),
            _ => {
                self.check_encoding(&NULLABLE, &["0.1.0", "0.2.0"])?;
                let values = self.values("values", is_category)?;
                let ColumnValues::Bool(missing) = self.values("mask", is_category)? else {
                    return Err(FrameError::MaskType);
                };
                if missing.len() != values.len() {
                    return Err(FrameError::MaskLength { mask: missing.len(), values: values.len() });
                }
                Ok(FrameColumn::Plain { values, missing })
            }
        }
    }
}

/// Fails if an encoding is none of `types`, or its version none of `versions`.
pub(crate) fn check_encoding(
    encoding: Option<&str>,
    version: impl FnOnce() -> Result<Option<String>, FrameError>,
    types: &[&str],
    versions: &[&str],
) -> Result<(), FrameError> {
    let encoding = encoding.unwrap_or_default();
    if !types.contains(&encoding) {
        return Err(FrameError::Encoding { encoding: encoding.to_owned() });
    }
    match version()? {
        Some(version) if !encoding.is_empty() && !versions.contains(&version.as_str()) => {
            Err(FrameError::Version { encoding: encoding.to_owned(), version, known: versions.join(" and ") })
        }
        _ => Ok(()),
    }
}

/// Why obs or var, or a column of it, cannot be read. The texts name neither the file nor the node; most are predicates of the node.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error(transparent)]
    MissingColumn(Box<MissingName>),
    #[error("it is not there")]
    Absent,
    #[error("it is an array instead of a group")]
    IsArray,
    #[error("it is neither a group nor a table of columns")]
    NotTable,
    #[error("it is not as AnnData 0.8 and later write it; read and write it with one of these")]
    TooOld,
    #[error("it has too many parts in parts")]
    TooDeep,

    #[error("it is a group without an encoding-type")]
    NoEncoding,
    #[error("its encoding {encoding:?} is not one that is read here")]
    Encoding { encoding: String },
    #[error("version {version:?} of the encoding {encoding:?} is not known, {known} is")]
    Version { encoding: String, version: String, known: String },
    #[error("its attribute {name} is not a string")]
    NotTextAttribute { name: String },
    #[error("its attribute {name} is not a truth value")]
    NotBoolAttribute { name: String },

    #[error("it does not say which column is its index (attribute _index)")]
    NoIndexAttribute,
    #[error("it has no index")]
    NoIndex,
    #[error("its column-order is not of strings")]
    ColumnOrder,
    #[error("the name of a column is not UTF-8")]
    ColumnName,
    #[error("a row has no name")]
    UnnamedRow,
    #[error("{0}; AnnData.var_names_make_unique() makes them different")]
    RowNames(NameError),
    #[error("it says that it has {rows} rows, more than its file can hold")]
    TooManyRows { rows: usize },
    #[error("it has {values} values where there are {rows} rows")]
    Length { values: usize, rows: usize },
    /// Another number of rows than the matrix has rows or columns.
    #[error("{frame} has {found} rows where {matrix} has {count} {of}")]
    Shape { frame: String, found: usize, matrix: String, count: u64, of: &'static str },

    /// A column that is a group lacks a member; `what` is "data set" or "array".
    #[error("it has no {what} {part:?}")]
    MissingPart { what: &'static str, part: String },
    /// A member or an attribute of a column has the error.
    #[error("{part}: {error}")]
    Part { part: Cow<'static, str>, error: Box<FrameError> },
    #[error("its mask is not bool")]
    MaskType,
    #[error("its mask has {mask} values where there are {values}")]
    MaskLength { mask: usize, values: usize },
    #[error("it has more categories than 32 bits can number")]
    TooManyCategories,
    #[error("its categories are not plain values")]
    NestedCategories,
    #[error("the categories that it refers to are of categories themselves")]
    ReferredCategories,
    #[error("it refers to categories that are not in the file")]
    LostCategories,
    #[error("it has the category {category:?} twice")]
    RepeatedCategory { category: String },
    #[error("its codes are not integers")]
    CodeType,
    /// `None` is a code that int64 cannot hold.
    #[error(
        "row {row} has {} where there are {categories} categories",
        code.map_or_else(|| "a code of more than 63 bits".to_owned(), |code| format!("code {code}"))
    )]
    Code { row: usize, code: Option<i64>, categories: i32 },

    #[error("it has the shape {shape:?} where one dimension is expected")]
    Dimensions { shape: Vec<u64> },
    #[error("it has {values} values where there can be {max_values} at most")]
    TooManyValues { values: u64, max_values: u64 },
    #[error("it says that it holds {values} values of {size} bytes, more than its file can")]
    TooLarge { values: usize, size: usize },
    #[error("there is no memory for its {values} values")]
    NoMemory { values: usize },
    #[error("it is of a type that is not read ({class})")]
    Type { class: &'static str },
    #[error("it is of a type that is not written to zarr{}", class.as_ref().map(|class| format!(" ({class})")).unwrap_or_default())]
    ExportType { class: Option<String> },
    #[error("its type has another size in memory")]
    TypeSize,
    #[error("its name has a NUL in it")]
    NulName,
    #[error("it has the value {value} where True and False are 1 and 0")]
    Bool { value: u8 },
    #[error("string {index} of it is not UTF-8")]
    Text { index: usize },
    #[error("it holds strings where numbers are needed")]
    NotNumbers,
    #[error("an integer in it is more than 63 bits hold")]
    LargeInteger,
    #[error("chunk {chunk} of it holds no {strings} strings")]
    Strings { chunk: u64, strings: u64 },
    #[error("chunk {chunk} of it {error}")]
    Chunk { chunk: u64, error: CodecError },

    #[error(transparent)]
    Hdf5(#[from] Hdf5Error),
    #[error("it {0}")]
    Zarr(#[from] ZarrError),
    /// The file cannot be read.
    #[error(transparent)]
    Read(Box<AnnDataError>),
}

impl FrameError {
    /// The error of a member or an attribute.
    #[cold]
    pub fn inside(part: impl Into<Cow<'static, str>>, error: Self) -> Self {
        Self::Part { part: part.into(), error: Box::new(error) }
    }
}

impl From<AnnDataError> for FrameError {
    #[cold]
    fn from(error: AnnDataError) -> Self {
        Self::Read(Box::new(error))
    }
}
