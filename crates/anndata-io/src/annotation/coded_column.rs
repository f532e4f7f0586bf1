//! `CodedColumn` numbers the distinct values of an obs column while they are read. Parquet and MDS files store values; h5ad and zarr files store
//! codes and categories, and do not need it.
//! Invariant: a code is the index of its value in the categories, over all parts of the column; -1 is a missing value.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use crate::{LabelKind, Labels};

/// Names of the classes of truth values.
pub(crate) const BOOL_NAMES: [&str; 2] = ["False", "True"];

/// A value of a column is none of the categories that the file says the column has.
#[derive(Debug, thiserror::Error)]
#[error("'{value}' is none of its categories")]
pub(crate) struct UnknownCategory {
    value: String,
}

/// Values of a column, or of a part of it, as codes.
#[derive(Debug)]
pub(crate) struct CodedColumn<T> {
    /// Code of each distinct value, in the order in which they came.
    distinct: HashMap<T, i32>,
    /// Code of each row; -1 is a missing value.
    codes: Vec<i32>,
}

impl<T> Default for CodedColumn<T> {
    fn default() -> Self {
        Self { distinct: HashMap::new(), codes: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash + Ord + ToString> CodedColumn<T> {
    /// Appends a value; `None` is a missing one.
    pub fn add<Q>(&mut self, value: Option<Q>)
    where
        Q: Into<T> + LookupKey<T>,
    {
        let Some(value) = value else {
            self.codes.push(-1);
            return;
        };
        let next = self.distinct.len() as i32;
        let code = match value.find(&self.distinct) {
            Some(code) => code,
            None => {
                self.distinct.insert(value.into(), next);
                next
            }
        };
        self.codes.push(code);
    }

    /// Joins the parts of a column: `categories` are the names of the classes, if the file says them; else the classes are the
    /// distinct values, ascending.
    ///
    /// # Errors
    /// A value is none of the categories.
    pub fn labels(
        parts: Vec<Self>,
        categories: Option<&Vec<String>>,
        kind: LabelKind,
    ) -> Result<Labels, UnknownCategory> {
        let mut distinct: BTreeMap<&T, i32> =
            parts.iter().flat_map(|part| part.distinct.keys()).map(|value| (value, 0)).collect();
        let categories = match categories {
            None => {
                distinct.values_mut().zip(0..).for_each(|(code, next)| *code = next);
                distinct.keys().map(|value| value.to_string()).collect()
            }
            Some(categories) => {
                let code_of: HashMap<&str, i32> = categories.iter().map(String::as_str).zip(0..).collect();
                for (value, code) in &mut distinct {
                    let name = value.to_string();
                    *code = *code_of.get(name.as_str()).ok_or_else(|| UnknownCategory { value: name.clone() })?;
                }
                categories.clone()
            }
        };
        let mut codes = Vec::with_capacity(parts.iter().map(|part| part.codes.len()).sum());
        for part in &parts {
            // From the codes of this part to those of the column.
            let mut codes_of_part = vec![0; part.distinct.len()];
            for (value, code) in &part.distinct {
                codes_of_part[*code as usize] = distinct.get(value).copied().unwrap_or(-1);
            }
            codes.extend(part.codes.iter().map(|code| usize::try_from(*code).map_or(-1, |code| codes_of_part[code])));
        }
        Ok(Labels { categories, kind, codes })
    }
}

/// Key of a value, so that a string is copied only if it is new.
pub(crate) trait LookupKey<T> {
    /// Code of the value, among those that are known.
    fn find(&self, known: &HashMap<T, i32>) -> Option<i32>;
}

impl LookupKey<String> for &str {
    fn find(&self, known: &HashMap<String, i32>) -> Option<i32> {
        known.get(*self).copied()
    }
}

impl LookupKey<i128> for i128 {
    fn find(&self, known: &HashMap<i128, i32>) -> Option<i32> {
        known.get(self).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_numbered_over_all_parts() {
        let coded = |values: &[&str]| {
            let mut coded = CodedColumn::<String>::default();
            values.iter().for_each(|value| coded.add(Some(*value)));
            coded
        };
        let parts = || vec![coded(&["b", "c", "b"]), coded(&[]), coded(&["a", "c"])];
        let labels = CodedColumn::labels(parts(), None, LabelKind::Text).unwrap();
        assert_eq!((labels.categories.concat(), labels.codes), ("abc".to_owned(), vec![1, 2, 1, 0, 2]));
        let order = ["c", "x", "b", "a"].map(str::to_owned).to_vec();
        let labels = CodedColumn::labels(parts(), Some(&order), LabelKind::Text).unwrap();
        assert_eq!((labels.categories, labels.codes), (order, vec![2, 0, 2, 3, 0]));
        assert!(CodedColumn::labels(parts(), Some(&vec!["a".to_owned()]), LabelKind::Text).is_err());
        let mut numbers = CodedColumn::<i128>::default();
        [Some(10), None, Some(-3), Some(2)].into_iter().for_each(|value| numbers.add(value));
        let labels = CodedColumn::labels(vec![numbers], None, LabelKind::Integer).unwrap();
        assert_eq!((labels.categories.join(" "), labels.codes), ("-3 2 10".to_owned(), vec![2, -1, 0, 1]));
    }
}
