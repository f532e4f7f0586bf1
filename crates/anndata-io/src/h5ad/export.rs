//! `export_parts` reads groups and data sets of an .h5ad file with all their attributes. The writer of zarr folders copies annotations with it.
//! Invariant: depth, number of nodes and size of an array are bounded, so a damaged file is an error and not an endless walk.

use std::path::Path;

use bytemuck::Pod;
use hdf5_metno::types::{FloatSize, IntSize, TypeDescriptor};
use hdf5_metno::{Container, Dataset, H5Type, Location, LocationType};
use serde_json::{Map, Value as Json};

use crate::AnnDataError;
use crate::annotation::column::ColumnValues;
use crate::annotation::frame::FrameError;
use crate::h5ad::array_layout::Hdf5Error;
use crate::h5ad::frame::Hdf5FrameFile;
use crate::h5ad::values::{ReadLimit, read_strings, read_values};

/// Maximum depth of nested groups.
const MAX_DEPTH: usize = 32;
/// Maximum number of groups and data sets in a file.
const MAX_PARTS: usize = 1 << 16;

/// A group or data set with its attributes.
pub(crate) struct ExportedPart {
    pub attributes: Map<String, Json>,
    /// `None` for a group.
    pub array: Option<ExportedArray>,
}

/// A data set in row-major order; a scalar has no dimensions.
pub(crate) struct ExportedArray {
    pub shape: Vec<u64>,
    pub values: ExportedValues,
}

/// Values of a data set.
pub(crate) enum ExportedValues {
    /// NumPy's name of the dtype, size of an element in bytes, and all elements in the byte order of this machine.
    Numbers(&'static str, usize, Vec<u8>),
    Bools(Vec<bool>),
    Texts(Vec<String>),
}

/// Passes parts of an AnnData file, with everything in them, to `take`; a group comes before its members.
///
/// # Errors
/// The file is older than AnnData 0.8; a column of obs or var has an unsupported type (other nodes of such a type are skipped
/// with a warning); `take` fails.
pub(crate) fn export_parts(
    path: &Path,
    parts: &[&str],
    take: &mut dyn FnMut(&str, ExportedPart) -> Result<(), AnnDataError>,
) -> Result<(), AnnDataError> {
    let file = Hdf5FrameFile::open(path)?;
    let mut walk = PartWalk { file: &file, seen: 0, take };
    for name in parts.iter().filter(|name| file.root().link_exists(name)) {
        walk.part(name, 0)?;
    }
    Ok(())
}

struct PartWalk<'a> {
    file: &'a Hdf5FrameFile,
    seen: usize,
    take: &'a mut dyn FnMut(&str, ExportedPart) -> Result<(), AnnDataError>,
}

impl PartWalk<'_> {
    fn part(&mut self, name: &str, depth: usize) -> Result<(), AnnDataError> {
        let root = self.file.root();
        let wrong = |error: FrameError| self.file.wrong(name, error);
        let failed = |e: hdf5_metno::Error| wrong(FrameError::Hdf5(e.into()));
        self.seen += 1;
        if depth > MAX_DEPTH || self.seen > MAX_PARTS {
            return Err(wrong(FrameError::TooDeep));
        }
        if matches!(root.loc_type_by_name(name), Ok(LocationType::Group)) {
            let group = root.group(name).map_err(failed)?;
            let attributes = export_attributes(&group).map_err(wrong)?;
            let is = |key: &str, value: &str| attributes.get(key).and_then(Json::as_str) == Some(value);
            if is("encoding-type", "dataframe") && !is("encoding-version", "0.2.0")
                || attributes.is_empty() && depth == 0
            {
                return Err(wrong(FrameError::TooOld));
            }
            let names = group.member_names().map_err(failed)?;
            (self.take)(name, ExportedPart { attributes, array: None })?;
            return names.iter().try_for_each(|inside| self.part(&format!("{name}/{inside}"), depth + 1));
        }
        let dataset = root.dataset(name).map_err(|e| FrameError::Hdf5(e.into()));
        match dataset.and_then(|dataset| export_array(&dataset, self.file.most())) {
            Ok(part) => (self.take)(name, part),
            Err(error) if name.starts_with("obs/") || name.starts_with("var/") => Err(wrong(error)),
            Err(error) => {
                tracing::warn!(file = %self.file.path().display(), part = name, reason = %error, "left out");
                Ok(())
            }
        }
    }
}

fn export_array(dataset: &Dataset, most: ReadLimit) -> Result<ExportedPart, FrameError> {
    let shape: Vec<u64> = dataset.shape().into_iter().map(|length| length as u64).collect();
    let dtype = dataset.dtype().map_err(Hdf5Error::from)?;
    let count = dataset.size();
    if (count as u64).checked_mul(dtype.size() as u64).is_none_or(|bytes| bytes > most.bytes) {
        return Err(FrameError::TooLarge { values: count, size: dtype.size() });
    }
    use TypeDescriptor::{FixedAscii, FixedUnicode, Float, Integer, Unsigned, VarLenAscii, VarLenUnicode};
    let descriptor = match dtype.to_descriptor() {
        // libhdf5 has no float16 of its own; the way through float32 is exact.
        Err(_) if dtype.size() == 2 && shape.len() < 2 => {
            let ColumnValues::Single(values) = read_values(dataset, None, most)? else {
                return Err(FrameError::ExportType { class: None });
            };
            let values: Vec<u8> =
                values.into_iter().flat_map(|value| half::f16::from_f32(value).to_ne_bytes()).collect();
            let values = ExportedValues::Numbers("float16", 2, values);
            return Ok(ExportedPart {
                attributes: export_attributes(dataset)?,
                array: Some(ExportedArray { shape, values }),
            });
        }
        other => other.map_err(Hdf5Error::from)?,
    };
    let values = match descriptor {
        Integer(IntSize::U1) => export_numbers::<i8>(dataset, "int8"),
        Integer(IntSize::U2) => export_numbers::<i16>(dataset, "int16"),
        Integer(IntSize::U4) => export_numbers::<i32>(dataset, "int32"),
        Integer(IntSize::U8) => export_numbers::<i64>(dataset, "int64"),
        Unsigned(IntSize::U1) => export_numbers::<u8>(dataset, "uint8"),
        Unsigned(IntSize::U2) => export_numbers::<u16>(dataset, "uint16"),
        Unsigned(IntSize::U4) => export_numbers::<u32>(dataset, "uint32"),
        Unsigned(IntSize::U8) => export_numbers::<u64>(dataset, "uint64"),
        Float(FloatSize::U4) => export_numbers::<f32>(dataset, "float32"),
        Float(FloatSize::U8) => export_numbers::<f64>(dataset, "float64"),
        FixedAscii(_) | FixedUnicode(_) | VarLenAscii | VarLenUnicode => {
            Ok(ExportedValues::Texts(read_strings(dataset, None, &dtype, count)?))
        }
        TypeDescriptor::Boolean => match read_values(dataset, None, most)? {
            ColumnValues::Bool(values) => Ok(ExportedValues::Bools(values)),
            _ => Err(FrameError::ExportType { class: None }),
        },
        other => Err(FrameError::ExportType { class: Some(other.to_string()) }),
    }?;
    Ok(ExportedPart { attributes: export_attributes(dataset)?, array: Some(ExportedArray { shape, values }) })
}

fn export_numbers<T: H5Type + Pod>(dataset: &Dataset, name: &'static str) -> Result<ExportedValues, FrameError> {
    let values = dataset.read_raw::<T>().map_err(Hdf5Error::from)?;
    Ok(ExportedValues::Numbers(name, size_of::<T>(), bytemuck::cast_slice(&values).to_vec()))
}

/// Attributes as zarr stores them: scalars and lists.
fn export_attributes(of: &Location) -> Result<Map<String, Json>, FrameError> {
    let mut all = Map::new();
    for name in of.attr_names().map_err(Hdf5Error::from)? {
        let attribute = of.attr(&name).map_err(Hdf5Error::from)?;
        let values = read_values(&attribute, None, ReadLimit { values: 1 << 20, bytes: 1 << 26 });
        let values = values.map_err(|error| FrameError::inside(format!("its attribute {name}"), error))?;
        let mut values: Vec<Json> = match values {
            ColumnValues::Signed(values) => values.into_iter().map(Json::from).collect(),
            ColumnValues::Unsigned(values) => values.into_iter().map(Json::from).collect(),
            ColumnValues::Single(values) => values.into_iter().map(Json::from).collect(),
            ColumnValues::Double(values) => values.into_iter().map(Json::from).collect(),
            ColumnValues::Bool(values) => values.into_iter().map(Json::from).collect(),
            ColumnValues::Text(values) => values.into_iter().map(Json::from).collect(),
        };
        let value = match (is_scalar(&attribute), values.len()) {
            (true, 1) => values.swap_remove(0),
            _ => Json::Array(values),
        };
        all.insert(name, value);
    }
    Ok(all)
}

fn is_scalar(container: &Container) -> bool {
    container.space().is_ok_and(|space| space.is_scalar())
}
