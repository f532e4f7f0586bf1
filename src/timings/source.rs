use std::io::Read;
use std::path::Path;

use serde::Serialize;

use super::{Columns, Store, TimingsError, read_csv, read_parquet};

/// Where the times come from, as far as figures made of them must say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// From the ledger.
    Measured,
    /// From a file of others.
    Imported,
    /// Drawn from a random generator; nobody ever waited for them.
    Generated,
}

impl Class {
    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Imported => "imported",
            Self::Generated => "generated",
        }
    }
}

/// What was read.
#[derive(Clone, Debug, Serialize)]
pub struct Source {
    /// File or job, as the heading calls it.
    pub name: String,
    /// Class of the times.
    pub class: Class,
    /// What the columns were, or which steps were taken.
    pub columns: String,
}

/// Read a parquet or CSV file, by its first bytes.
///
/// # Errors
/// A file, column or value that is not as it should be.
pub fn read_file(path: &Path, columns: &Columns) -> Result<(Source, Store), TimingsError> {
    let unreadable = |e: std::io::Error| TimingsError::Read { path: path.to_owned(), reason: e.to_string() };
    let mut first = Vec::new();
    std::fs::File::open(path).map_err(unreadable)?.take(4).read_to_end(&mut first).map_err(unreadable)?;
    let (source, store) = if first == *b"PAR1" { read_parquet(path, columns)? } else { read_csv(path, columns)? };
    if store.series().is_empty() {
        return Err(TimingsError::Empty { path: path.to_owned() });
    }
    Ok((source, store))
}

/// Which columns were read, in words.
pub(super) fn described(have: &[String], places: &super::columns::Places, unit: super::Unit) -> String {
    let name = |place: Option<usize>| place.and_then(|p| have.get(p)).map(|n| format!("`{n}`"));
    let unit = match unit {
        super::Unit::S => "s",
        super::Unit::Ms => "ms",
        super::Unit::Us => "µs",
        super::Unit::Ns => "ns",
    };
    format!(
        "method {}, epoch {}, batch {}, time {} ({unit})",
        name(places.method).unwrap_or_else(|| "one".into()),
        name(places.epoch).unwrap_or_else(|| "one".into()),
        name(places.batch).unwrap_or_else(|| "by order of rows".into()),
        name(Some(places.time)).unwrap_or_default(),
    )
}
