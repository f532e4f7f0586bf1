use hdf5_metno::types::{FixedAscii, FixedUnicode, TypeDescriptor, VarLenAscii, VarLenUnicode};
use hdf5_metno::{Attribute, Location};

/// Longest text of an attribute of fixed length that is read; names of encodings have some 20 bytes.
const LONGEST: usize = 256;

/// Text in an attribute, if it is UTF-8, however it is stored; `None` if there is no such attribute or it is no text.
pub(super) fn text(of: &Location, name: &str) -> Option<String> {
    let attribute = attribute(of, name)?;
    if attribute.size() != 1 {
        return None;
    }
    match attribute.dtype().ok()?.to_descriptor().ok()? {
        TypeDescriptor::VarLenUnicode => first::<VarLenUnicode>(&attribute).and_then(|text| utf8(text.as_bytes())),
        TypeDescriptor::VarLenAscii => first::<VarLenAscii>(&attribute).and_then(|text| utf8(text.as_bytes())),
        TypeDescriptor::FixedAscii(n) if n <= LONGEST => {
            first::<FixedAscii<LONGEST>>(&attribute).and_then(|text| utf8(text.as_bytes()))
        }
        TypeDescriptor::FixedUnicode(n) if n <= LONGEST => {
            first::<FixedUnicode<LONGEST>>(&attribute).and_then(|text| utf8(text.as_bytes()))
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

/// The library's own types believe that what a file calls text is UTF-8.
fn utf8(text: &[u8]) -> Option<String> {
    String::from_utf8(text.to_vec()).ok()
}
