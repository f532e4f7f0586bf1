use std::collections::BTreeMap;

use super::dtype::Dtype;
use super::encoding::Encoding;
use super::index::{Columns, Notes};

/// Which columns rows are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// An array of all genes' values.
    Dense(usize),
    /// An array of numbers of genes and one of their values.
    Sparse { indices: usize, values: usize },
}

/// Type of the values of `bytes` columns: numbers of genes, and values.
pub(super) const RAW_INDICES: Dtype = Dtype::I32;
pub(super) const RAW_VALUES: Dtype = Dtype::F32;

/// Names that say what a column is.
const X: [&str; 2] = ["x", "X"];
const INDICES: [&str; 1] = ["indices"];
const VALUES: [&str; 2] = ["values", "data"];

/// Find the columns that rows are made of: those that the index notes; else those of the usual names; else the only array,
/// or of two arrays the one of integers and the one of floats.
pub(super) fn find(columns: &Columns, notes: &Notes) -> Result<Layout, String> {
    let layout = match (&notes.x, &notes.indices, &notes.values) {
        (None, None, None) => by_name(columns)?,
        (Some(x), None, None) => Layout::Dense(noted(columns, "expctl.x", x)?),
        (None, Some(indices), Some(values)) => Layout::Sparse {
            indices: noted(columns, "expctl.indices", indices)?,
            values: noted(columns, "expctl.values", values)?,
        },
        _ => return Err("it has to note \"expctl.x\", or \"expctl.indices\" and \"expctl.values\"".to_owned()),
    };
    if let Layout::Sparse { indices, values } = layout {
        if indices == values {
            return Err(format!("column '{}' cannot be both numbers of genes and values", columns.names[indices]));
        }
        if is_float(&columns.encodings[indices]) {
            return Err(format!(
                "column '{}' is to be numbers of genes, but holds no integers",
                columns.names[indices]
            ));
        }
    }
    Ok(layout)
}

fn is_float(encoding: &Encoding) -> bool {
    matches!(encoding, Encoding::Array { dtype: Some(dtype), .. } if dtype.is_float())
}

fn is_integer(encoding: &Encoding) -> bool {
    matches!(encoding, Encoding::Array { dtype: Some(dtype), .. } if !dtype.is_float())
}

/// The array of a name that the index notes.
fn noted(columns: &Columns, key: &str, name: &str) -> Result<usize, String> {
    let column = columns.names.iter().position(|column| column == name);
    let column = column.filter(|column| columns.encodings[*column].is_array());
    column.ok_or_else(|| format!("\"{key}\" names '{name}', which is no column of arrays or bytes"))
}

fn by_name(columns: &Columns) -> Result<Layout, String> {
    let named = |names: &[&str]| -> Vec<usize> {
        let is_named = |column: &usize| names.contains(&columns.names[*column].as_str());
        (0..columns.names.len()).filter(is_named).filter(|column| columns.encodings[*column].is_array()).collect()
    };
    let arrays: Vec<usize> = (0..columns.names.len())
        .filter(|column| matches!(columns.encodings[*column], Encoding::Array { .. }))
        .collect();
    let unclear = |what: &str| {
        let found: Vec<String> = (0..columns.names.len())
            .filter(|column| columns.encodings[*column].is_array())
            .map(|column| format!("'{}'", columns.names[column]))
            .collect();
        format!(
            "{what}; columns of arrays or bytes are: {}; the index can note \"expctl.x\", or \"expctl.indices\" and \
             \"expctl.values\"",
            if found.is_empty() { "none".to_owned() } else { found.join(", ") }
        )
    };
    match (&named(&X)[..], &named(&INDICES)[..], &named(&VALUES)[..]) {
        ([x], [], _) => Ok(Layout::Dense(*x)),
        ([], [indices], [values]) => Ok(Layout::Sparse { indices: *indices, values: *values }),
        ([], [], _) => match arrays[..] {
            [x] => Ok(Layout::Dense(x)),
            [a, b] if is_integer(&columns.encodings[a]) && is_float(&columns.encodings[b]) => {
                Ok(Layout::Sparse { indices: a, values: b })
            }
            [b, a] if is_integer(&columns.encodings[a]) && is_float(&columns.encodings[b]) => {
                Ok(Layout::Sparse { indices: a, values: b })
            }
            _ => Err(unclear("no columns are named 'x', or 'indices' and 'values'")),
        },
        ([], _, []) => Err(unclear("there is a column 'indices', but no 'values' or 'data'")),
        _ => Err(unclear("it is not clear which columns rows are made of")),
    }
}

/// Columns of obs by name: all others of one value that is a number or text.
pub(super) fn obs(columns: &Columns) -> BTreeMap<String, usize> {
    let is_obs = |encoding: &Encoding| {
        matches!(encoding, Encoding::Scalar(_) | Encoding::Text | Encoding::TextInteger | Encoding::TextFloat)
    };
    let found = columns.names.iter().zip(&columns.encodings).zip(0..).filter(|((_, encoding), _)| is_obs(encoding));
    found.map(|((name, _), column)| (name.clone(), column)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample::SampleShape;
    use super::*;

    fn of(columns: &[(&str, &str)], notes: &Notes) -> Result<Layout, String> {
        let names = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let encodings = columns.iter().map(|(_, encoding)| Encoding::parse(encoding).unwrap()).collect();
        find(&Columns { names, encodings, shape: SampleShape::default() }, notes)
    }

    #[test]
    fn columns_are_found_or_named() {
        let sparse = |indices, values| Ok(Layout::Sparse { indices, values });
        for (columns, layout) in [
            (&[("data", "ndarray:float32"), ("indices", "ndarray:int32")][..], sparse(1, 0)),
            (&[("indices", "bytes"), ("other", "ndarray"), ("values", "bytes")], sparse(0, 2)),
            (&[("counts", "ndarray:float16"), ("genes", "ndarray:uint16")], sparse(1, 0)),
            (&[("genes", "ndarray:uint16"), ("xs", "ndarray:float64"), ("y", "int")], sparse(0, 1)),
            (&[("x", "ndarray:float32"), ("other", "ndarray:float32")], Ok(Layout::Dense(0))),
            (&[("X", "bytes")], Ok(Layout::Dense(0))),
            (&[("cell", "ndarray:float32:5"), ("y", "int"), ("z", "bytes")], Ok(Layout::Dense(0))),
        ] {
            assert_eq!(of(columns, &Notes::default()), layout, "{columns:?}");
        }
        for (columns, reason) in [
            (&[("a", "ndarray:int32"), ("b", "ndarray:int32")][..], "are: 'a', 'b'"),
            (&[("x", "int"), ("z", "bytes")], "are: 'z'"),
            (&[("indices", "ndarray:int32"), ("v", "ndarray:float32")], "no 'values'"),
            (&[("indices", "ndarray:int32"), ("values", "bytes"), ("data", "bytes")], "not clear"),
            (&[("indices", "ndarray:int32"), ("values", "bytes"), ("x", "bytes")], "not clear"),
            (&[("indices", "ndarray:float32"), ("values", "bytes")], "holds no integers"),
            (&[("y", "int")], "are: none"),
        ] {
            let found = of(columns, &Notes::default()).unwrap_err();
            assert!(found.contains(reason), "{found}");
        }
        let notes = |x: Option<&str>, indices: Option<&str>, values: Option<&str>| Notes {
            x: x.map(str::to_owned),
            indices: indices.map(str::to_owned),
            values: values.map(str::to_owned),
            ..Notes::default()
        };
        let columns = [("a", "ndarray:int32"), ("b", "ndarray:int32"), ("c", "int")];
        assert_eq!(of(&columns, &notes(None, Some("b"), Some("a"))), sparse(1, 0));
        assert_eq!(of(&columns, &notes(Some("b"), None, None)), Ok(Layout::Dense(1)));
        for (notes, reason) in [
            (notes(Some("c"), None, None), "no column of arrays"),
            (notes(Some("d"), None, None), "names 'd'"),
            (notes(None, Some("a"), None), "has to note"),
            (notes(None, Some("a"), Some("a")), "both"),
        ] {
            let found = of(&columns, &notes).unwrap_err();
            assert!(found.contains(reason), "{found}");
        }
    }
}
