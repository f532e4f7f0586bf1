use hdf5_metno::{Dataset, Group};

use super::attribute;
use super::describe::{Object, Open};
use crate::AnnDataError;
use crate::matrix::{Arrays, Described, Encoding};
use crate::source::Source;

/// Columns that a matrix with a value for each can have.
const MOST_DENSE_COLUMNS: u64 = 1 << 27;

/// Find the matrix at `location` and what the file says of it.
pub(super) fn describe(source: &Source, location: &str) -> Result<Described, AnnDataError> {
    let open = Open::new(source)?;
    let name = found(&open, location)?;
    match open.object(&name)? {
        Object::Dataset(dataset) => describe_dense(&open, &name, &dataset),
        Object::Group(group) => describe_sparse(&open, &name, &group),
    }
}

/// The name that the matrix has in this file.
fn found(open: &Open<'_>, location: &str) -> Result<String, AnnDataError> {
    let names: &[&str] = match location {
        // AnnData before 0.7 has a dot.
        "raw" | "raw/X" => &["raw/X", "raw.X"],
        other => &[other],
    };
    // The library answers an error for `a/b` where there is no `a`.
    let there = |name: &str| name.match_indices('/').all(|(end, _)| open.has(&name[..end])) && open.has(name);
    if let Some(name) = names.iter().find(|name| there(name)) {
        return Ok((*name).to_owned());
    }
    // Of a damaged group the library says that it has nothing.
    open.names()?;
    let mut has: Vec<String> =
        ["X", "raw/X", "raw.X"].into_iter().filter(|name| there(name)).map(str::to_owned).collect();
    if let Some(layers) = open.group("layers").and_then(|layers| layers.member_names().ok()) {
        has.extend(layers.into_iter().map(|layer| format!("layers/{layer}")));
    }
    let has = if has.is_empty() { "it has no matrix".to_owned() } else { format!("it has {}", has.join(", ")) };
    Err(open.source.damaged(format!("has no matrix {location}; {has}")))
}

fn describe_dense(open: &Open<'_>, name: &str, dataset: &Dataset) -> Result<Described, AnnDataError> {
    let wrong = |reason: String| Err(open.wrong(name, reason));
    known_version(open, name, dataset, &[("array", &["0.1.0", "0.2.0"])])?;
    let [rows, columns] = open.shape(name, dataset)?[..] else {
        return wrong("is no matrix: it does not have two dimensions".to_owned());
    };
    if columns > MOST_DENSE_COLUMNS {
        return wrong(format!(
            "has {columns} columns; more than {MOST_DENSE_COLUMNS} of a dense matrix are not supported"
        ));
    }
    Ok(Described { rows, columns, arrays: Arrays::Dense(open.describe(name, dataset)?) })
}

fn describe_sparse(open: &Open<'_>, name: &str, group: &Group) -> Result<Described, AnnDataError> {
    let wrong = |reason: String| open.wrong(name, reason);
    known_version(open, name, group, &[("csr_matrix", &["0.1.0"]), ("csc_matrix", &["0.1.0"])])?;
    // The latter are what AnnData before 0.7 wrote.
    let text = |attribute: &str| attribute::text(group, attribute).map_err(wrong);
    let shape = |attribute: &str| attribute::integers(group, attribute, 2).map_err(wrong);
    let encoding = match text("encoding-type")?.filter(|encoding| !encoding.is_empty()) {
        None => text("h5sparse_format")?,
        found => found,
    };
    let encoding = match encoding.as_deref() {
        Some("csr_matrix" | "csr") => Encoding::Csr,
        Some("csc_matrix" | "csc") => Encoding::Csc,
        Some(other) => return Err(wrong(format!("is encoded as {other:?}; csr, csc and arrays can be read"))),
        None => {
            return Err(wrong(
                "is no matrix: a group without the attribute encoding-type or h5sparse_format".to_owned(),
            ));
        }
    };
    let found = match shape("shape")? {
        None => shape("h5sparse_shape")?,
        found => found,
    };
    let (rows, columns) = match found.as_deref() {
        Some(&[rows, columns]) if rows >= 0 && columns >= 0 => (rows as u64, columns as u64),
        _ => return Err(wrong("has no attribute shape with its rows and columns".to_owned())),
    };
    let array = |part: &str| {
        let name = format!("{name}/{part}");
        if !open.has(&name) {
            return Err(open.source.damaged(format!("has no {name}")));
        }
        let Object::Dataset(dataset) = open.object(&name)? else {
            return Err(open.wrong(&name, "is a group instead of a data set"));
        };
        let stored = open.describe(&name, &dataset)?;
        match open.shape(&name, &dataset)?[..] {
            [_] => Ok(stored),
            _ => Err(open.wrong(&name, "does not have one dimension")),
        }
    };
    let arrays = Box::new([array("indptr")?, array("indices")?, array("data")?]);
    Ok(Described { rows, columns, arrays: Arrays::Sparse(encoding, arrays) })
}

/// An error if the encoding is one that is known, in a version that is not.
fn known_version(
    open: &Open<'_>,
    name: &str,
    of: &hdf5_metno::Location,
    known: &[(&str, &[&str])],
) -> Result<(), AnnDataError> {
    let wrong = |reason: String| Err(open.wrong(name, reason));
    let text = |attribute: &str| attribute::text(of, attribute).map_err(|reason| open.wrong(name, reason));
    let Some(encoding) = text("encoding-type")?.filter(|encoding| !encoding.is_empty()) else {
        return Ok(());
    };
    let Some((_, versions)) = known.iter().find(|(of, _)| *of == encoding) else {
        let known: Vec<&str> = known.iter().map(|(of, _)| *of).collect();
        return wrong(format!("is encoded as {encoding:?}, not as {}", known.join(" or ")));
    };
    match text("encoding-version")? {
        Some(version) if !versions.contains(&version.as_str()) => {
            wrong(format!("is encoded as {encoding} in version {version:?}; known is {}", versions.join(", ")))
        }
        _ => Ok(()),
    }
}
