//! Reads whole one-dimensional data sets, fields and attributes through libhdf5: columns of obs and var, categories, encodings.
//! Invariant: the number of elements and bytes is compared with a limit before memory is allocated.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use hdf5_metno::sync::sync;
use hdf5_metno::types::{FixedAscii, FixedUnicode, TypeDescriptor, VarLenAscii, VarLenUnicode};
use hdf5_metno::{Attribute, Container, Datatype, Location};
use hdf5_metno_sys::h5::H5free_memory;
use hdf5_metno_sys::h5a::H5Aread;
use hdf5_metno_sys::h5d::H5Dread;
use hdf5_metno_sys::h5i::{H5I_type_t, hid_t};
use hdf5_metno_sys::h5p::H5P_DEFAULT;
use hdf5_metno_sys::h5s::H5S_ALL;
use hdf5_metno_sys::h5t::{
    H5T_class_t, H5T_direction_t, H5T_sign_t, H5T_str_t, H5Tcreate, H5Tget_class, H5Tget_member_index,
    H5Tget_member_name, H5Tget_member_type, H5Tget_native_type, H5Tget_nmembers, H5Tget_sign, H5Tget_size,
    H5Tget_strpad, H5Tinsert, H5Tis_variable_str, H5Treclaim,
};

use crate::annotation::column::ColumnValues;
use crate::annotation::frame::FrameError;
use crate::h5ad::array_layout::Hdf5Error;

/// Limits of a single read: a damaged file must not make us allocate too much memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimit {
    /// Number of elements.
    pub values: usize,
    /// Their decompressed size in bytes.
    pub bytes: u64,
}

/// Reads a one-dimensional data set or attribute, or one field of a compound one.
///
/// # Errors
/// The array cannot be read, or is larger than `most`.
pub(crate) fn read_values(
    container: &Container,
    field: Option<&str>,
    most: ReadLimit,
) -> Result<ColumnValues, FrameError> {
    let count = element_count(container)?;
    if count > most.values {
        return Err(FrameError::TooManyValues { values: count as u64, max_values: most.values as u64 });
    }
    let dtype = member_type(container, field)?;
    let id = dtype.id();
    // SAFETY (of all calls under `sync`): the ids are valid as long as the handles that they are taken from.
    let (class, size) = sync(|| unsafe { (H5Tget_class(id), H5Tget_size(id)) });
    if (count as u64).checked_mul(size as u64).is_none_or(|bytes| bytes > most.bytes) {
        return Err(FrameError::TooLarge { values: count, size });
    }
    match class {
        H5T_class_t::H5T_STRING => read_strings(container, field, &dtype, count).map(ColumnValues::Text),
        H5T_class_t::H5T_INTEGER if size <= 8 => {
            if sync(|| unsafe { H5Tget_sign(id) }) == H5T_sign_t::H5T_SGN_NONE {
                read_as(container, field, native_datatype::<u64>()?.id(), count, 0_u64).map(ColumnValues::Unsigned)
            } else {
                read_as(container, field, native_datatype::<i64>()?.id(), count, 0_i64).map(ColumnValues::Signed)
            }
        }
        H5T_class_t::H5T_FLOAT if size <= 4 => {
            read_as(container, field, native_datatype::<f32>()?.id(), count, 0_f32).map(ColumnValues::Single)
        }
        H5T_class_t::H5T_FLOAT => {
            read_as(container, field, native_datatype::<f64>()?.id(), count, 0_f64).map(ColumnValues::Double)
        }
        H5T_class_t::H5T_ENUM if size == 1 => {
            let same = own_datatype(|| unsafe { H5Tget_native_type(id, H5T_direction_t::H5T_DIR_ASCEND) })?;
            read_as(container, field, same.id(), count, 0_u8)?
                .into_iter()
                .map(|value| match value {
                    0 => Ok(false),
                    1 => Ok(true),
                    value => Err(FrameError::Bool { value }),
                })
                .collect::<Result<_, _>>()
                .map(ColumnValues::Bool)
        }
        other => Err(FrameError::Type { class: class_name(other) }),
    }
}

/// Number of elements of an array with one dimension, or of a scalar.
///
/// # Errors
/// The array has more dimensions.
pub(crate) fn element_count(container: &Container) -> Result<usize, FrameError> {
    let space = container.space().map_err(Hdf5Error::from)?;
    let shape = space.shape();
    match shape.as_slice() {
        [] if space.is_scalar() => Ok(1),
        [] => Ok(0),
        [count] => Ok(*count),
        _ => Err(FrameError::Dimensions { shape: shape.iter().map(|length| *length as u64).collect() }),
    }
}

/// Type of the elements, or of a field of them.
fn member_type(container: &Container, field: Option<&str>) -> Result<Datatype, FrameError> {
    let dtype = container.dtype().map_err(Hdf5Error::from)?;
    let Some(field) = field else { return Ok(dtype) };
    let name = c_name(field)?;
    own_datatype(|| unsafe {
        match u32::try_from(H5Tget_member_index(dtype.id(), name.as_ptr())) {
            Ok(index) => H5Tget_member_type(dtype.id(), index),
            Err(_) => -1,
        }
    })
}

/// Reads `count` elements as `memory`, a type of the size of `T`; every bit pattern is a valid `T`.
fn read_as<T: Copy>(
    container: &Container,
    field: Option<&str>,
    memory: hid_t,
    count: usize,
    zero: T,
) -> Result<Vec<T>, FrameError> {
    if sync(|| unsafe { H5Tget_size(memory) }) != size_of::<T>() {
        return Err(FrameError::TypeSize);
    }
    let mut values = filled_vec(count, zero)?;
    if count > 0 {
        // SAFETY: the buffer has `count` elements of the size of the memory type.
        unsafe { read_into(container, field, memory, size_of::<T>(), values.as_mut_ptr().cast()) }?;
    }
    Ok(values)
}

/// Reads `count` elements of `size` bytes as `memory` into consecutive bytes.
pub(crate) fn read_bytes(
    container: &Container,
    field: Option<&str>,
    memory: hid_t,
    count: usize,
    size: usize,
) -> Result<Vec<u8>, FrameError> {
    let bytes = count.checked_mul(size).filter(|_| sync(|| unsafe { H5Tget_size(memory) }) == size);
    let mut values = filled_vec(bytes.ok_or(FrameError::TypeSize)?, 0)?;
    if !values.is_empty() {
        // SAFETY: the buffer has `count` elements of the size of the memory type.
        unsafe { read_into(container, field, memory, size, values.as_mut_ptr().cast()) }?;
    }
    Ok(values)
}

fn filled_vec<T: Copy>(count: usize, zero: T) -> Result<Vec<T>, FrameError> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| FrameError::NoMemory { values: count })?;
    values.resize(count, zero);
    Ok(values)
}

/// # Safety
/// `buffer` has space for all elements of the data space of the container, of `size` bytes each, the size of `memory`.
unsafe fn read_into(
    container: &Container,
    field: Option<&str>,
    memory: hid_t,
    size: usize,
    buffer: *mut c_void,
) -> Result<(), FrameError> {
    let name = field.map(c_name).transpose()?;
    // libhdf5 selects a field by name: the memory type is a compound of this field alone.
    let single = match &name {
        Some(name) => Some(own_datatype(|| unsafe {
            let id = H5Tcreate(H5T_class_t::H5T_COMPOUND, size);
            if id >= 0 {
                H5Tinsert(id, name.as_ptr(), 0, memory);
            }
            id
        })?),
        None => None,
    };
    let memory = single.as_ref().map_or(memory, |dtype| dtype.id());
    let attribute = container.id_type() == H5I_type_t::H5I_ATTR;
    sync(|| {
        // SAFETY: promised by the caller.
        let status = unsafe {
            if attribute {
                H5Aread(container.id(), memory, buffer)
            } else {
                H5Dread(container.id(), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer)
            }
        };
        if status < 0 { Err(library_reason()) } else { Ok(()) }
    })
}

/// Message of libhdf5 for the call that just failed, under the same lock: a call of another thread, which opens another file, would clear it.
#[cold]
fn library_reason() -> FrameError {
    FrameError::Hdf5(hdf5_metno::Error::query().map_or(Hdf5Error::Unreadable, Hdf5Error::from))
}

fn native_datatype<T: hdf5_metno::H5Type>() -> Result<Datatype, FrameError> {
    Ok(Datatype::from_type::<T>().map_err(Hdf5Error::from)?)
}

/// Takes ownership of the id of a type that calls, under the lock of libhdf5, return.
fn own_datatype(calls: impl FnOnce() -> hid_t) -> Result<Datatype, FrameError> {
    sync(|| -> Result<Datatype, FrameError> {
        let id = calls();
        if id < 0 {
            return Err(library_reason());
        }
        // SAFETY: the id is new and has no other owner.
        Ok(unsafe { hdf5_metno::from_id(id) }.map_err(Hdf5Error::from)?)
    })
}

fn c_name(name: &str) -> Result<CString, FrameError> {
    CString::new(name).map_err(|_| FrameError::NulName)
}

fn class_name(class: H5T_class_t) -> &'static str {
    match class {
        H5T_class_t::H5T_INTEGER => "an integer of more than 64 bits",
        H5T_class_t::H5T_TIME => "time",
        H5T_class_t::H5T_BITFIELD => "bits",
        H5T_class_t::H5T_OPAQUE => "opaque bytes",
        H5T_class_t::H5T_COMPOUND => "compound",
        H5T_class_t::H5T_REFERENCE => "reference",
        H5T_class_t::H5T_ENUM => "an enumeration other than bool",
        H5T_class_t::H5T_VLEN => "lists",
        H5T_class_t::H5T_ARRAY => "arrays",
        _ => "unknown to HDF5",
    }
}

/// Names of the fields of a compound type, in order.
pub(crate) fn field_names(dtype: &Datatype) -> Result<Vec<String>, FrameError> {
    let id = dtype.id();
    if sync(|| unsafe { H5Tget_class(id) }) != H5T_class_t::H5T_COMPOUND {
        return Err(FrameError::NotTable);
    }
    sync(|| unsafe {
        let count = u32::try_from(H5Tget_nmembers(id)).map_err(|_| library_reason())?;
        (0..count)
            .map(|field| {
                let name = H5Tget_member_name(id, field);
                if name.is_null() {
                    return Err(library_reason());
                }
                let text = CStr::from_ptr(name).to_str().map(str::to_owned);
                H5free_memory(name.cast());
                text.map_err(|_| FrameError::ColumnName)
            })
            .collect()
    })
}

/// Reads all strings of a data set, an attribute or a field; `dtype` is their type in the file. The character set in the file
/// is ignored, because writers store UTF-8 as "ASCII".
///
/// # Errors
/// libhdf5 cannot read them, or a string is not UTF-8.
pub(crate) fn read_strings(
    container: &Container,
    field: Option<&str>,
    dtype: &Datatype,
    count: usize,
) -> Result<Vec<String>, FrameError> {
    // SAFETY: the id is valid as long as `dtype` is.
    let (variable, size, padding) =
        sync(|| unsafe { (H5Tis_variable_str(dtype.id()), H5Tget_size(dtype.id()), H5Tget_strpad(dtype.id())) });
    match variable {
        0 => fixed_length_strings(container, field, dtype, count, size, padding),
        1.. => variable_length_strings(container, field, dtype, count),
        _ => Err(library_reason()),
    }
}

/// Strings of a fixed length, padded.
fn fixed_length_strings(
    container: &Container,
    field: Option<&str>,
    dtype: &Datatype,
    count: usize,
    size: usize,
    padding: H5T_str_t,
) -> Result<Vec<String>, FrameError> {
    let bytes = read_bytes(container, field, dtype.id(), count, size)?;
    let text = |bytes: &[u8]| -> Vec<u8> {
        let end = match padding {
            H5T_str_t::H5T_STR_NULLTERM => bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()),
            H5T_str_t::H5T_STR_SPACEPAD => bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1),
            _ => bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1),
        };
        bytes[..end].to_vec()
    };
    bytes.chunks_exact(size.max(1)).enumerate().map(|(i, bytes)| string_from_utf8(i, text(bytes))).collect()
}

/// Strings of variable length, which libhdf5 allocates.
fn variable_length_strings(
    container: &Container,
    field: Option<&str>,
    dtype: &Datatype,
    count: usize,
) -> Result<Vec<String>, FrameError> {
    let mut pointers: Vec<*mut c_char> = read_as(container, field, dtype.id(), count, ptr::null_mut())?;
    let strings = pointers
        .iter()
        .enumerate()
        .map(|(i, pointer)| {
            if pointer.is_null() {
                return Ok(String::new());
            }
            // SAFETY: libhdf5 wrote a string that ends with NUL, and it lives until it is reclaimed below.
            string_from_utf8(i, unsafe { CStr::from_ptr(*pointer) }.to_bytes().to_vec())
        })
        .collect();
    if count > 0 {
        let space = container.space().map_err(Hdf5Error::from)?;
        // SAFETY: the buffer was read with this type and space; it is not used afterwards.
        sync(|| unsafe { H5Treclaim(dtype.id(), space.id(), H5P_DEFAULT, pointers.as_mut_ptr().cast()) });
    }
    strings
}

fn string_from_utf8(i: usize, bytes: Vec<u8>) -> Result<String, FrameError> {
    String::from_utf8(bytes).map_err(|_| FrameError::Text { index: i })
}

/// Longest attribute of fixed-length text that is read; names of encodings have about 20 bytes.
const MAX_ATTRIBUTE_TEXT: usize = 256;

/// A text attribute, however it is stored; `None` if there is none.
pub(crate) fn attribute_text(of: &Location, name: &str) -> Result<Option<String>, Hdf5Error> {
    let Some(attribute) = attribute(of, name)? else { return Ok(None) };
    let text = || {
        if attribute.size() != 1 {
            return None;
        }
        // The string types of hdf5-metno assume valid UTF-8; here only the bytes are read.
        match attribute.dtype().ok()?.to_descriptor().ok()? {
            TypeDescriptor::VarLenUnicode => utf8(first_value::<VarLenUnicode>(&attribute)?.as_bytes()),
            TypeDescriptor::VarLenAscii => utf8(first_value::<VarLenAscii>(&attribute)?.as_bytes()),
            TypeDescriptor::FixedAscii(n) if n <= MAX_ATTRIBUTE_TEXT => {
                utf8(first_value::<FixedAscii<MAX_ATTRIBUTE_TEXT>>(&attribute)?.as_bytes())
            }
            TypeDescriptor::FixedUnicode(n) if n <= MAX_ATTRIBUTE_TEXT => {
                utf8(first_value::<FixedUnicode<MAX_ATTRIBUTE_TEXT>>(&attribute)?.as_bytes())
            }
            _ => None,
        }
    };
    text().map(Some).ok_or_else(|| Hdf5Error::TextAttribute { name: name.to_owned() })
}

/// An attribute of integers, at most `most` of them; `None` if there is none.
pub(crate) fn attribute_integers(of: &Location, name: &str, most: usize) -> Result<Option<Vec<i64>>, Hdf5Error> {
    let Some(attribute) = attribute(of, name)? else { return Ok(None) };
    let read = Some(&attribute).filter(|attribute| attribute.size() <= most);
    let read = read.and_then(|attribute| attribute.read_raw::<i64>().ok());
    read.map(Some).ok_or_else(|| Hdf5Error::IntegerAttribute { name: name.to_owned(), count: most })
}

fn attribute(of: &Location, name: &str) -> Result<Option<Attribute>, Hdf5Error> {
    let there = of.attr_names().map_err(|e| Hdf5Error::Attributes { message: e.to_string() })?;
    if !there.iter().any(|there| there == name) {
        return Ok(None);
    }
    let found = of.attr(name).map(Some);
    found.map_err(|e| Hdf5Error::Attribute { name: name.to_owned(), message: e.to_string() })
}

fn first_value<T: hdf5_metno::H5Type>(attribute: &Attribute) -> Option<T> {
    attribute.read_raw::<T>().ok()?.into_iter().next()
}

fn utf8(text: &[u8]) -> Option<String> {
    String::from_utf8(text.to_vec()).ok()
}
