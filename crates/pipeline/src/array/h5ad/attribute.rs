use hdf5_metno::types::{FixedAscii, FixedUnicode, TypeDescriptor, VarLenAscii, VarLenUnicode};
use hdf5_metno::{Attribute, Location};

/// Longest text of an attribute of fixed length that is read; names of encodings have some 20 bytes.
const LONGEST: usize = 256;

/// Text in an attribute, however it is stored; `None` if there is no such attribute or it is no text.
pub(super) fn text(of: &Location, name: &str) -> Option<String> {
    let attribute = attribute(of, name)?;
    if attribute.size() != 1 {
        return None;
    }
    match attribute.dtype().ok()?.to_descriptor().ok()? {
        TypeDescriptor::VarLenUnicode => first::<VarLenUnicode>(&attribute).map(|text| text.as_str().to_owned()),
        TypeDescriptor::VarLenAscii => first::<VarLenAscii>(&attribute).map(|text| text.as_str().to_owned()),
        TypeDescriptor::FixedAscii(n) if n <= LONGEST => {
            first::<FixedAscii<LONGEST>>(&attribute).map(|text| text.as_str().to_owned())
        }
        TypeDescriptor::FixedUnicode(n) if n <= LONGEST => {
            first::<FixedUnicode<LONGEST>>(&attribute).map(|text| text.as_str().to_owned())
        }
        _ => None,
    }
}

/// Whole numbers in an attribute, `most` at most.
pub(super) fn integers(of: &Location, name: &str, most: usize) -> Option<Vec<i64>> {
    let attribute = attribute(of, name).filter(|attribute| attribute.size() <= most)?;
    attribute.read_raw::<i64>().ok()
}

fn attribute(of: &Location, name: &str) -> Option<Attribute> {
    of.attr(name).ok()
}

fn first<T: hdf5_metno::H5Type>(attribute: &Attribute) -> Option<T> {
    attribute.read_raw::<T>().ok()?.into_iter().next()
}
