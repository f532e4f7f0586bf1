use std::borrow::Cow;

use super::values::Values;
use crate::Labels;

/// A column of a frame, read.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// A value for each row.
    Plain {
        /// `[rows]`.
        values: Values,
        /// `[rows]`: there is no value, where the column can say so; empty where it cannot.
        missing: Vec<bool>,
    },
    /// Codes of categories.
    Categorical {
        /// `[rows]`: category, -1 where there is no value.
        codes: Vec<i32>,
        /// Values of the categories, all different.
        categories: Values,
        /// Their order means something.
        ordered: bool,
    },
}

impl Column {
    /// Codes and categories, checked.
    ///
    /// # Errors
    /// A code that is no category, or a category twice.
    pub(crate) fn categorical(codes: Values, categories: Values, ordered: bool) -> Result<Self, Cow<'static, str>> {
        let count = i32::try_from(categories.len()).map_err(|_| "it has more categories than 32 bits can number")?;
        let code = |row: usize, code: Option<i64>| match code {
            Some(code) if (-1..i64::from(count)).contains(&code) => Ok(code as i32),
            _ => {
                let code = code.map_or_else(|| "a code of more than 63 bits".to_owned(), |code| format!("code {code}"));
                Err(format!("row {row} has {code} where there are {count} categories"))
            }
        };
        let codes = match codes {
            Values::Signed(codes) => codes.into_iter().enumerate().map(|(row, value)| code(row, Some(value))).collect(),
            Values::Unsigned(codes) => {
                codes.into_iter().enumerate().map(|(row, value)| code(row, i64::try_from(value).ok())).collect()
            }
            _ => Err("its codes are not integers".to_owned()),
        }?;
        let mut sorted: Vec<_> = categories.clone().into_strings();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("it has the category {:?} twice", twice[0]).into());
        }
        Ok(Self::Categorical { codes, categories, ordered })
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain { values, .. } => values.len(),
            Self::Categorical { codes, .. } => codes.len(),
        }
    }

    /// As classes: the categories in their order, of other columns the different values, ascending; NaN is no value.
    pub(crate) fn into_labels(self) -> Labels {
        match self {
            Self::Categorical { codes, categories, .. } => {
                Labels { kind: categories.kind(), categories: categories.into_strings(), codes }
            }
            Self::Plain { values, missing } => {
                let missing = missing.as_slice();
                match values {
                    Values::Signed(values) => classes(values, missing, |_| true, Ord::cmp, Values::Signed),
                    Values::Unsigned(values) => classes(values, missing, |_| true, Ord::cmp, Values::Unsigned),
                    Values::Bool(values) => classes(values, missing, |_| true, Ord::cmp, Values::Bool),
                    Values::Text(values) => classes(values, missing, |_| true, Ord::cmp, Values::Text),
                    // Adding 0 makes 0 of -0: to everybody who compares them they are one value.
                    Values::Single(mut values) => {
                        values.iter_mut().for_each(|value| *value += 0.0);
                        classes(values, missing, |value| !value.is_nan(), f32::total_cmp, Values::Single)
                    }
                    Values::Double(mut values) => {
                        values.iter_mut().for_each(|value| *value += 0.0);
                        classes(values, missing, |value| !value.is_nan(), f64::total_cmp, Values::Double)
                    }
                }
            }
        }
    }

    /// As numbers, `[rows]`: NaN where there is no value, True is 1, of categories their values; `None` of strings.
    pub(crate) fn into_numbers(self) -> Option<Vec<f64>> {
        match self {
            Self::Plain { values, missing } => {
                let mut numbers = values.into_numbers()?;
                for (number, missing) in numbers.iter_mut().zip(missing) {
                    if missing {
                        *number = f64::NAN;
                    }
                }
                Some(numbers)
            }
            Self::Categorical { codes, categories, .. } => {
                let numbers = categories.into_numbers()?;
                let number = |code: &i32| usize::try_from(*code).map_or(f64::NAN, |code| numbers[code]);
                Some(codes.iter().map(number).collect())
            }
        }
    }

    /// As text, `[rows]`; `None` where a row has no value.
    pub(crate) fn into_strings(self) -> Option<Vec<String>> {
        match self {
            Self::Plain { missing, .. } if missing.contains(&true) => None,
            Self::Plain { values, .. } => Some(values.into_strings()),
            Self::Categorical { codes, categories, .. } => {
                let names = categories.into_strings();
                codes.iter().map(|code| usize::try_from(*code).ok().map(|code| names[code].clone())).collect()
            }
        }
    }
}

/// The different values ascending, and which of them each row has.
fn classes<T: Clone>(
    values: Vec<T>,
    missing: &[bool],
    is_value: impl Fn(&T) -> bool,
    order: impl Fn(&T, &T) -> std::cmp::Ordering,
    wrap: impl Fn(Vec<T>) -> Values,
) -> Labels {
    let mut rows: Vec<usize> = (0..values.len())
        .filter(|row| is_value(&values[*row]) && !missing.get(*row).copied().unwrap_or(false))
        .collect();
    rows.sort_unstable_by(|a, b| order(&values[*a], &values[*b]));
    let mut codes = vec![-1; values.len()];
    let mut distinct: Vec<T> = Vec::new();
    for row in rows {
        if distinct.last().is_none_or(|last| order(last, &values[row]).is_ne()) {
            distinct.push(values[row].clone());
        }
        // Rows are fewer than 2^31 wherever their different values could be more than that.
        codes[row] = distinct.len() as i32 - 1;
    }
    let distinct = wrap(distinct);
    Labels { kind: distinct.kind(), categories: distinct.into_strings(), codes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(values: Values, missing: &[bool]) -> Column {
        Column::Plain { values, missing: missing.to_vec() }
    }

    #[test]
    fn different_values_are_classes_in_ascending_order() {
        let labels = plain(Values::Signed(vec![10, -2, 10, 9]), &[]).into_labels();
        assert_eq!((labels.categories.join(" "), labels.codes), ("-2 9 10".to_owned(), vec![2, 0, 2, 1]));
        let labels = plain(Values::Double(vec![0.5, f64::NAN, -0.0, 0.0]), &[]).into_labels();
        assert_eq!((labels.categories.join(" "), labels.codes), ("0.0 0.5".to_owned(), vec![1, -1, 0, 0]));
        let text = ["b", "a", "b"].map(str::to_owned).to_vec();
        let labels = plain(Values::Text(text), &[false, true, false]).into_labels();
        assert_eq!((labels.categories.join(" "), labels.codes), ("b".to_owned(), vec![0, -1, 0]));
        let labels = plain(Values::Bool(vec![true, false]), &[]).into_labels();
        assert_eq!((labels.categories.join(" "), labels.codes), ("False True".to_owned(), vec![1, 0]));
    }

    #[test]
    fn what_has_no_value_is_nan_as_a_number() {
        let numbers = plain(Values::Unsigned(vec![3, u64::MAX, 1]), &[false, false, true]).into_numbers().unwrap();
        assert_eq!(numbers[..2], [3.0, 18_446_744_073_709_551_616.0]);
        assert!(numbers[2].is_nan());
        let column =
            Column::categorical(Values::Signed(vec![1, -1, 0]), Values::Single(vec![0.5, 2.0]), false).unwrap();
        let numbers = column.clone().into_numbers().unwrap();
        assert_eq!((numbers[0], numbers[1].is_nan(), numbers[2]), (2.0, true, 0.5));
        assert_eq!(column.into_strings(), None);
        assert_eq!(plain(Values::Text(vec!["1".to_owned()]), &[]).into_numbers(), None);
    }

    #[test]
    fn codes_are_of_categories() {
        let two = || Values::Text(vec!["a".to_owned(), "b".to_owned()]);
        let e = |codes| Column::categorical(codes, two(), false).unwrap_err();
        assert_eq!(e(Values::Signed(vec![0, 2])), "row 1 has code 2 where there are 2 categories");
        assert_eq!(
            e(Values::Unsigned(vec![u64::MAX])),
            "row 0 has a code of more than 63 bits where there are 2 categories"
        );
        assert_eq!(e(Values::Text(Vec::new())), "its codes are not integers");
        assert!(Column::categorical(Values::Unsigned(vec![1, 0]), two(), true).is_ok());
    }
}
