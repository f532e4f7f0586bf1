use std::path::Path;

use hdf5_metno::types::VarLenUnicode;
use hdf5_metno::{Group, H5Type, Location};

use crate::AnnDataError;

/// What the HDF5 library says, as an error of this file.
pub(super) fn refused(path: &Path) -> impl Fn(hdf5_metno::Error) -> AnnDataError {
    let path = path.to_owned();
    move |e| AnnDataError::io("write", &path)(std::io::Error::other(e.to_string()))
}

/// A string as the library takes it.
///
/// # Errors
/// It has a NUL in it, where a string of HDF5 ends.
pub(super) fn unicode(path: &Path, text: &str) -> Result<VarLenUnicode, AnnDataError> {
    text.parse().map_err(|e| AnnDataError::Invalid(format!("{text:?} cannot be written to {}: {e}", path.display())))
}

/// Give an object its AnnData encoding.
pub(super) fn encoding(path: &Path, at: &Location, kind: &str, version: &str) -> Result<(), AnnDataError> {
    text(path, at, "encoding-type", kind)?;
    text(path, at, "encoding-version", version)
}

/// A string attribute.
pub(super) fn text(path: &Path, at: &Location, name: &str, value: &str) -> Result<(), AnnDataError> {
    let value = unicode(path, value)?;
    let written = at.new_attr::<VarLenUnicode>().create(name).and_then(|attribute| attribute.write_scalar(&value));
    written.map_err(refused(path))
}

/// An attribute of one value.
pub(super) fn value<T: H5Type>(path: &Path, at: &Location, name: &str, value: T) -> Result<(), AnnDataError> {
    let written = at.new_attr::<T>().create(name).and_then(|attribute| attribute.write_scalar(&value));
    written.map_err(refused(path))
}

/// An attribute of several values.
pub(super) fn list<T: H5Type>(path: &Path, at: &Location, name: &str, values: &[T]) -> Result<(), AnnDataError> {
    let attribute = at.new_attr::<T>().shape(values.len()).create(name);
    let written = attribute.and_then(|attribute| if values.is_empty() { Ok(()) } else { attribute.write_raw(values) });
    written.map_err(refused(path))
}

/// An empty group of AnnData's encoding `dict`.
pub(super) fn dict(path: &Path, parent: &Group, name: &str) -> Result<(), AnnDataError> {
    let group = parent.create_group(name).map_err(refused(path))?;
    encoding(path, &group, "dict", "0.1.0")
}
