use hdf5_metno::types::{FixedAscii, FixedUnicode, TypeDescriptor, VarLenAscii, VarLenUnicode};
use hdf5_metno::{Attribute, Location};

/// Longest text of an attribute of fixed length that is read; names of encodings have some 20 bytes.
const LONGEST: usize = 256;

/// Text in an attribute, however it is stored; `None` if there is no such attribute. `Err` says why it cannot be read.
pub(super) fn text(of: &Location, name: &str) -> Result<Option<String>, String> {
    let Some(attribute) = attribute(of, name)? else { return Ok(None) };
    let text = || {
        if attribute.size() != 1 {
            return None;
        }
        // The library's own types believe that what a file calls text is UTF-8; their bytes are believed here, and no more.
        match attribute.dtype().ok()?.to_descriptor().ok()? {
            TypeDescriptor::VarLenUnicode => utf8(first::<VarLenUnicode>(&attribute)?.as_bytes()),
            TypeDescriptor::VarLenAscii => utf8(first::<VarLenAscii>(&attribute)?.as_bytes()),
            TypeDescriptor::FixedAscii(n) if n <= LONGEST => utf8(first::<FixedAscii<LONGEST>>(&attribute)?.as_bytes()),
            TypeDescriptor::FixedUnicode(n) if n <= LONGEST => {
                utf8(first::<FixedUnicode<LONGEST>>(&attribute)?.as_bytes())
            }
            _ => None,
        }
    };
    text().map(Some).ok_or_else(|| format!("its attribute {name} is no text, or damaged"))
}

/// Whole numbers in an attribute, `most` at most; `None` if there is no such attribute.
pub(super) fn integers(of: &Location, name: &str, most: usize) -> Result<Option<Vec<i64>>, String> {
    let Some(attribute) = attribute(of, name)? else { return Ok(None) };
    let read = Some(&attribute).filter(|attribute| attribute.size() <= most);
    let read = read.and_then(|attribute| attribute.read_raw::<i64>().ok());
    read.map(Some).ok_or_else(|| format!("its attribute {name} has no {most} whole numbers, or is damaged"))
}

fn attribute(of: &Location, name: &str) -> Result<Option<Attribute>, String> {
    let there = of.attr_names().map_err(|e| format!("its attributes are damaged: {e}"))?;
    if !there.iter().any(|there| there == name) {
        return Ok(None);
    }
    of.attr(name).map(Some).map_err(|e| format!("its attribute {name} is damaged: {e}"))
}

fn first<T: hdf5_metno::H5Type>(attribute: &Attribute) -> Option<T> {
    attribute.read_raw::<T>().ok()?.into_iter().next()
}

fn utf8(text: &[u8]) -> Option<String> {
    String::from_utf8(text.to_vec()).ok()
}
