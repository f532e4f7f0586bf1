use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::ptr;

use hdf5_metno::{Container, Datatype, sync::sync};
use hdf5_metno_sys::h5p::H5P_DEFAULT;
use hdf5_metno_sys::h5t::{H5T_str_t, H5Tget_size, H5Tget_strpad, H5Tis_variable_str, H5Treclaim};

use super::column_values::{library_reason, read_as, read_bytes};

/// All strings of a data set, an attribute, or a field; `dtype` is their type in the file. The character set that the file
/// names is not believed: writers put UTF-8 under "ASCII".
///
/// # Errors
/// HDF5 cannot read them, or one is not UTF-8.
pub(super) fn read_strings(
    container: &Container,
    field: Option<&str>,
    dtype: &Datatype,
    count: usize,
) -> Result<Vec<String>, Cow<'static, str>> {
    // SAFETY: the id is valid as long as `dtype` is.
    let (variable, size, padding) =
        sync(|| unsafe { (H5Tis_variable_str(dtype.id()), H5Tget_size(dtype.id()), H5Tget_strpad(dtype.id())) });
    match variable {
        0 => fixed(container, field, dtype, count, size, padding),
        1.. => variable_length(container, field, dtype, count),
        _ => Err(library_reason()),
    }
}

/// Strings of the same number of bytes each, padded.
fn fixed(
    container: &Container,
    field: Option<&str>,
    dtype: &Datatype,
    count: usize,
    size: usize,
    padding: H5T_str_t,
) -> Result<Vec<String>, Cow<'static, str>> {
    let bytes = read_bytes(container, field, dtype.id(), count, size)?;
    let text = |bytes: &[u8]| -> Vec<u8> {
        let end = match padding {
            H5T_str_t::H5T_STR_NULLTERM => bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()),
            H5T_str_t::H5T_STR_SPACEPAD => bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1),
            _ => bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1),
        };
        bytes[..end].to_vec()
    };
    bytes.chunks_exact(size.max(1)).enumerate().map(|(i, bytes)| utf8(i, text(bytes))).collect()
}

/// Strings of any length, which HDF5 allocates.
fn variable_length(
    container: &Container,
    field: Option<&str>,
    dtype: &Datatype,
    count: usize,
) -> Result<Vec<String>, Cow<'static, str>> {
    let mut pointers: Vec<*mut c_char> = read_as(container, field, dtype.id(), count, ptr::null_mut())?;
    let strings = pointers
        .iter()
        .enumerate()
        .map(|(i, pointer)| {
            if pointer.is_null() {
                return Ok(String::new());
            }
            // SAFETY: HDF5 wrote a string that ends with NUL there, which lives until it is reclaimed below.
            utf8(i, unsafe { CStr::from_ptr(*pointer) }.to_bytes().to_vec())
        })
        .collect();
    if count > 0 {
        let space = container.space().map_err(|e| e.to_string())?;
        // SAFETY: the buffer is what was read, of that type and space; nothing of it is used afterwards.
        sync(|| unsafe { H5Treclaim(dtype.id(), space.id(), H5P_DEFAULT, pointers.as_mut_ptr().cast()) });
    }
    strings
}

fn utf8(i: usize, bytes: Vec<u8>) -> Result<String, Cow<'static, str>> {
    String::from_utf8(bytes).map_err(|_| format!("string {i} of it is not UTF-8").into())
}
