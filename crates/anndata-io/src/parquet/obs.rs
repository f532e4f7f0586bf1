use std::collections::{BTreeSet, HashMap};

use super::file::ParquetFile;
use super::layout::ObsLeaf;
use super::obs_values::{bools, numbers as read_numbers, texts};
use crate::{LabelKind, Labels};

/// A column of obs as classes. `categories` are the names of its classes, if the file has noted them.
pub(super) fn labels(file: &ParquetFile, leaf: ObsLeaf, categories: Option<&Vec<String>>) -> Result<Labels, String> {
    let kind = match leaf {
        ObsLeaf::Text(_) => LabelKind::Text,
        ObsLeaf::Bool(_) => LabelKind::Bool,
        ObsLeaf::Number(..) => LabelKind::Integer,
    };
    let labels = match leaf {
        ObsLeaf::Text(column) => classes(&texts(file, column)?, String::clone, categories),
        ObsLeaf::Bool(column) => {
            let name = |value: &bool| if *value { "True".to_owned() } else { "False".to_owned() };
            classes(&bools(file, column)?, name, categories)
        }
        ObsLeaf::Number(_, numeric) if numeric.is_float() => {
            Err("it holds numbers with fractions: they are no classes".to_owned())
        }
        ObsLeaf::Number(column, numeric) => {
            classes(&read_numbers::<i128>(file, column, numeric)?, i128::to_string, categories)
        }
    };
    Ok(Labels { kind, ..labels? })
}

/// A column of obs as numbers; NaN where there is none.
pub(super) fn numbers(file: &ParquetFile, leaf: ObsLeaf) -> Result<Vec<f64>, String> {
    let or_nan = |value: Option<f64>| value.unwrap_or(f64::NAN);
    match leaf {
        ObsLeaf::Text(_) => Err("it holds text, not numbers".to_owned()),
        ObsLeaf::Bool(column) => Ok(bools(file, column)?
            .into_iter()
            .map(|value| or_nan(value.map(|value| f64::from(u8::from(value)))))
            .collect()),
        ObsLeaf::Number(column, numeric) => {
            Ok(read_numbers::<f64>(file, column, numeric)?.into_iter().map(or_nan).collect())
        }
    }
}

/// Codes of the values: the place in `categories`, or else among the different values, ascending.
fn classes<T: Ord + std::hash::Hash>(
    values: &[Option<T>],
    name: impl Fn(&T) -> String,
    categories: Option<&Vec<String>>,
) -> Result<Labels, String> {
    let different: BTreeSet<&T> = values.iter().flatten().collect();
    let names = || different.iter().map(|value| name(value)).collect();
    let categories: Vec<String> = categories.cloned().unwrap_or_else(names);
    let places: HashMap<&str, i32> = categories.iter().map(String::as_str).zip(0..).collect();
    let mut codes = HashMap::new();
    for value in different {
        let name = name(value);
        let code = places.get(name.as_str()).ok_or_else(|| format!("'{name}' is none of its categories"))?;
        codes.insert(value, *code);
    }
    let codes = values.iter().map(|value| value.as_ref().and_then(|value| codes.get(value)).map_or(-1, |code| *code));
    let codes = codes.collect();
    Ok(Labels { categories, codes, ..Labels::default() })
}
