//! `FrameColumn`: one column of obs or var in memory, `[rows]`, and its conversion to classes, numbers, names, and the cells that writers take.
//! Invariant: a number or a Boolean gets the name that Python's `str` gives it, so that classes have the names that pandas shows.

use std::fmt::Write as _;

use crate::annotation::frame::FrameError;
use crate::write::frame_writer::{ColumnCells, ColumnKind};
use crate::{Annotation, LabelKind, Labels};

/// A column of a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum FrameColumn {
    /// A value for each row.
    Plain {
        /// Values, `[rows]`.
        values: ColumnValues,
        /// Whether each value is missing, `[rows]`; empty for types without missing values.
        missing: Vec<bool>,
    },
    /// Categorical.
    Categorical {
        /// Codes, `[rows]`; -1 is a missing value.
        codes: Vec<i32>,
        /// The categories, which are distinct.
        categories: ColumnValues,
        /// Whether the categories are ordered.
        ordered: bool,
    },
}

impl FrameColumn {
    /// A categorical column.
    ///
    /// # Errors
    /// A code is not that of a category, or a category occurs twice.
    pub(crate) fn categorical(
        codes: ColumnValues,
        categories: ColumnValues,
        ordered: bool,
    ) -> Result<Self, FrameError> {
        let count = i32::try_from(categories.len()).map_err(|_| FrameError::TooManyCategories)?;
        let code = |row: usize, code: Option<i64>| match code {
            Some(code) if (-1..i64::from(count)).contains(&code) => Ok(code as i32),
            _ => Err(FrameError::Code { row, code, categories: count }),
        };
        let codes = match codes {
            ColumnValues::Signed(codes) => {
                codes.into_iter().enumerate().map(|(row, value)| code(row, Some(value))).collect()
            }
            ColumnValues::Unsigned(codes) => {
                codes.into_iter().enumerate().map(|(row, value)| code(row, i64::try_from(value).ok())).collect()
            }
            _ => Err(FrameError::CodeType),
        }?;
        let mut sorted: Vec<_> = categories.clone().into_strings();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(FrameError::RepeatedCategory { category: twice[0].clone() });
        }
        Ok(Self::Categorical { codes, categories, ordered })
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain { values, .. } => values.len(),
            Self::Categorical { codes, .. } => codes.len(),
        }
    }

    /// Converts to classes: the categories in their order, or the distinct values of another column, ascending; NaN is missing.
    pub(crate) fn into_labels(self) -> Labels {
        match self {
            Self::Categorical { codes, categories, .. } => {
                Labels { kind: categories.kind(), categories: categories.into_strings(), codes }
            }
            Self::Plain { values, missing } => {
                let missing = missing.as_slice();
                match values {
                    ColumnValues::Signed(values) => {
                        classes_of(values, missing, |_| true, Ord::cmp, ColumnValues::Signed)
                    }
                    ColumnValues::Unsigned(values) => {
                        classes_of(values, missing, |_| true, Ord::cmp, ColumnValues::Unsigned)
                    }
                    ColumnValues::Bool(values) => classes_of(values, missing, |_| true, Ord::cmp, ColumnValues::Bool),
                    ColumnValues::Text(values) => classes_of(values, missing, |_| true, Ord::cmp, ColumnValues::Text),
                    // Adding 0 turns -0 into 0, which compare equal.
                    ColumnValues::Single(mut values) => {
                        values.iter_mut().for_each(|value| *value += 0.0);
                        classes_of(values, missing, |value| !value.is_nan(), f32::total_cmp, ColumnValues::Single)
                    }
                    ColumnValues::Double(mut values) => {
                        values.iter_mut().for_each(|value| *value += 0.0);
                        classes_of(values, missing, |value| !value.is_nan(), f64::total_cmp, ColumnValues::Double)
                    }
                }
            }
        }
    }

    /// Converts to what the column is: classes of categories, text and truth values; else numbers.
    pub(crate) fn into_annotation(self) -> Annotation {
        match self {
            Self::Plain { values, missing } if matches!(values.kind(), LabelKind::Integer | LabelKind::Float) => {
                let integers = values.kind() == LabelKind::Integer;
                // Numbers convert to numbers.
                let values = Self::Plain { values, missing }.into_numbers().unwrap_or_default();
                Annotation::Numbers { values, integers }
            }
            classes => Annotation::Classes(classes.into_labels()),
        }
    }

    /// Converts to numbers, `[rows]`: a missing value is NaN, true is 1, a category is its value; `None` for strings.
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

    /// Converts to text, `[rows]`; `None` for a missing value.
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

/// The distinct values, ascending, and the code of each row.
fn classes_of<T: Clone>(
    values: Vec<T>,
    missing: &[bool],
    is_value: impl Fn(&T) -> bool,
    order: impl Fn(&T, &T) -> std::cmp::Ordering,
    wrap: impl Fn(Vec<T>) -> ColumnValues,
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
        // The number of rows is below 2^31 if so many values can be distinct.
        codes[row] = distinct.len() as i32 - 1;
    }
    let distinct = wrap(distinct);
    Labels { kind: distinct.kind(), categories: distinct.into_strings(), codes }
}

/// Values of an array in the widest type of their kind.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnValues {
    /// Signed integers of any width.
    Signed(Vec<i64>),
    /// Unsigned integers of any width.
    Unsigned(Vec<u64>),
    /// Floats of up to 4 bytes.
    Single(Vec<f32>),
    /// Floats of 8 bytes.
    Double(Vec<f64>),
    /// Booleans; h5py stores them as an enumeration with FALSE = 0 and TRUE = 1.
    Bool(Vec<bool>),
    /// Strings of variable or fixed length.
    Text(Vec<String>),
}

impl ColumnValues {
    /// Type of classes that are named after these values.
    pub(crate) const fn kind(&self) -> LabelKind {
        match self {
            Self::Signed(_) | Self::Unsigned(_) => LabelKind::Integer,
            Self::Single(_) | Self::Double(_) => LabelKind::Float,
            Self::Bool(_) => LabelKind::Bool,
            Self::Text(_) => LabelKind::Text,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Signed(values) => values.len(),
            Self::Unsigned(values) => values.len(),
            Self::Single(values) => values.len(),
            Self::Double(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    /// Formats each value like Python: an integral float ends with `.0`, a Boolean is `True` or `False`.
    fn into_strings(self) -> Vec<String> {
        fn each<T>(values: Vec<T>, text: impl Fn(T) -> String) -> Vec<String> {
            values.into_iter().map(text).collect()
        }
        match self {
            Self::Signed(values) => each(values, |value| value.to_string()),
            Self::Unsigned(values) => each(values, |value| value.to_string()),
            Self::Single(values) => each(values, |value| float_text(format!("{value:e}"))),
            Self::Double(values) => each(values, |value| float_text(format!("{value:e}"))),
            Self::Bool(values) => each(values, |value| if value { "True" } else { "False" }.to_owned()),
            Self::Text(values) => values,
        }
    }

    /// Converts to f64, rounded to the nearest; `None` for strings.
    fn into_numbers(self) -> Option<Vec<f64>> {
        Some(match self {
            Self::Signed(values) => values.into_iter().map(|value| value as f64).collect(),
            Self::Unsigned(values) => values.into_iter().map(|value| value as f64).collect(),
            Self::Single(values) => values.into_iter().map(f64::from).collect(),
            Self::Double(values) => values,
            Self::Bool(values) => values.into_iter().map(|value| f64::from(u8::from(value))).collect(),
            Self::Text(_) => return None,
        })
    }
}

/// Python's representation of a float, from the shortest digits that Rust writes with an exponent (`1.25e-7`).
fn float_text(scientific: String) -> String {
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return match scientific.as_str() {
            "NaN" => "nan".to_owned(),
            other => other.to_owned(),
        };
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    if !(-4..16).contains(&exponent) {
        return format!("{sign}{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    let digits = digits.replace('.', "");
    let mut text = sign.to_owned();
    match usize::try_from(exponent) {
        Ok(exponent) => {
            let whole = digits.len().min(exponent + 1);
            let _ = write!(text, "{}{}.", &digits[..whole], "0".repeat(exponent + 1 - whole));
            text.push_str(if digits.len() > whole { &digits[whole..] } else { "0" });
        }
        Err(_) => {
            let _ = write!(text, "0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1));
        }
    }
    text
}

/// The kind and the cells of a column as writers have them; `None` if an integer does not fit into int64.
pub(crate) fn column_cells(column: FrameColumn) -> Option<(ColumnKind, ColumnCells)> {
    let categorical = |labels: Labels, ordered| {
        (ColumnKind::Categorical { categories: labels.categories, ordered }, ColumnCells::Codes(labels.codes))
    };
    Some(match column {
        FrameColumn::Plain { values: ColumnValues::Signed(values), missing } if !missing.is_empty() => {
            (ColumnKind::NullableInt64, ColumnCells::NullableInt64(optional(values, &missing)))
        }
        FrameColumn::Plain { values: ColumnValues::Unsigned(values), missing } if !missing.is_empty() => {
            // What stands where a value is missing is no value.
            let signed = |(value, missing): (u64, &bool)| if *missing { Some(0) } else { i64::try_from(value).ok() };
            let values = values.into_iter().zip(&missing).map(signed).collect::<Option<Vec<i64>>>()?;
            (ColumnKind::NullableInt64, ColumnCells::NullableInt64(optional(values, &missing)))
        }
        FrameColumn::Plain { values, missing } if missing.contains(&true) => match values {
            ColumnValues::Single(values) => {
                (ColumnKind::Float32, ColumnCells::Float32(with_nan(values, &missing, f32::NAN)))
            }
            ColumnValues::Double(values) => {
                (ColumnKind::Float64, ColumnCells::Float64(with_nan(values, &missing, f64::NAN)))
            }
            values => categorical(FrameColumn::Plain { values, missing }.into_labels(), false),
        },
        FrameColumn::Plain { values, .. } => match values {
            ColumnValues::Signed(values) => (ColumnKind::Int64, ColumnCells::Int64(values)),
            ColumnValues::Unsigned(values) => {
                let values = values.into_iter().map(|value| i64::try_from(value).ok()).collect::<Option<_>>()?;
                (ColumnKind::Int64, ColumnCells::Int64(values))
            }
            ColumnValues::Single(values) => (ColumnKind::Float32, ColumnCells::Float32(values)),
            ColumnValues::Double(values) => (ColumnKind::Float64, ColumnCells::Float64(values)),
            ColumnValues::Bool(values) => (ColumnKind::Bool, ColumnCells::Bool(values)),
            ColumnValues::Text(values) => (ColumnKind::Strings, ColumnCells::Strings(values)),
        },
        FrameColumn::Categorical { codes, categories, ordered } => {
            categorical(FrameColumn::Categorical { codes, categories, ordered }.into_labels(), ordered)
        }
    })
}

fn optional(values: Vec<i64>, missing: &[bool]) -> Vec<Option<i64>> {
    values.into_iter().zip(missing).map(|(value, missing)| (!missing).then_some(value)).collect()
}

fn with_nan<T>(values: Vec<T>, missing: &[bool], nan: T) -> Vec<T>
where
    T: Copy,
{
    values.into_iter().zip(missing).map(|(value, missing)| if *missing { nan } else { value }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(values: ColumnValues, missing: &[bool]) -> FrameColumn {
        FrameColumn::Plain { values, missing: missing.to_vec() }
    }

    #[test]
    fn different_values_are_classes_in_ascending_order() {
        let labels = plain(ColumnValues::Signed(vec![10, -2, 10, 9]), &[]).into_labels();
        assert_eq!((labels.categories.join(" "), labels.codes), ("-2 9 10".to_owned(), vec![2, 0, 2, 1]));
        let labels = plain(ColumnValues::Double(vec![0.5, f64::NAN, -0.0, 0.0]), &[]).into_labels();
        assert_eq!((labels.categories.join(" "), labels.codes), ("0.0 0.5".to_owned(), vec![1, -1, 0, 0]));
        let text = ["b", "a", "b"].map(str::to_owned).to_vec();
        let labels = plain(ColumnValues::Text(text), &[false, true, false]).into_labels();
        assert_eq!((labels.categories.join(" "), labels.codes), ("b".to_owned(), vec![0, -1, 0]));
        let labels = plain(ColumnValues::Bool(vec![true, false]), &[]).into_labels();
        assert_eq!((labels.categories.join(" "), labels.codes), ("False True".to_owned(), vec![1, 0]));
    }

    #[test]
    fn what_has_no_value_is_nan_as_a_number() {
        let numbers =
            plain(ColumnValues::Unsigned(vec![3, u64::MAX, 1]), &[false, false, true]).into_numbers().unwrap();
        assert_eq!(numbers[..2], [3.0, 18_446_744_073_709_551_616.0]);
        assert!(numbers[2].is_nan());
        let column =
            FrameColumn::categorical(ColumnValues::Signed(vec![1, -1, 0]), ColumnValues::Single(vec![0.5, 2.0]), false)
                .unwrap();
        let numbers = column.clone().into_numbers().unwrap();
        assert_eq!((numbers[0], numbers[1].is_nan(), numbers[2]), (2.0, true, 0.5));
        assert_eq!(column.into_strings(), None);
        assert_eq!(plain(ColumnValues::Text(vec!["1".to_owned()]), &[]).into_numbers(), None);
    }

    #[test]
    fn unsigned_numbers_with_gaps_are_written_as_numbers() {
        let (kind, cells) = column_cells(plain(ColumnValues::Unsigned(vec![3, u64::MAX]), &[false, true])).unwrap();
        assert!(matches!(kind, ColumnKind::NullableInt64));
        assert!(matches!(cells, ColumnCells::NullableInt64(values) if values == [Some(3), None]));
        assert!(column_cells(plain(ColumnValues::Unsigned(vec![u64::MAX, 1]), &[false, true])).is_none());
    }

    #[test]
    fn codes_are_of_categories() {
        let two = || ColumnValues::Text(vec!["a".to_owned(), "b".to_owned()]);
        let e = |codes| FrameColumn::categorical(codes, two(), false).unwrap_err().to_string();
        assert_eq!(e(ColumnValues::Signed(vec![0, 2])), "row 1 has code 2 where there are 2 categories");
        assert_eq!(
            e(ColumnValues::Unsigned(vec![u64::MAX])),
            "row 0 has a code of more than 63 bits where there are 2 categories"
        );
        assert_eq!(e(ColumnValues::Text(Vec::new())), "its codes are not integers");
        assert!(FrameColumn::categorical(ColumnValues::Unsigned(vec![1, 0]), two(), true).is_ok());
    }

    #[test]
    fn floats_are_written_as_python_does() {
        let values = [0.0, -1.0, 0.5, 123.25, 1e15, 123456789012345680.0, 1e16, 1e22, 1e-4, 1.25e-5, -2.5e-300, 1e-10];
        let text = ColumnValues::Double(values.to_vec()).into_strings();
        let python =
            "0.0 -1.0 0.5 123.25 1000000000000000.0 1.2345678901234568e+17 1e+16 1e+22 0.0001 1.25e-05 -2.5e-300 1e-10";
        assert_eq!(text.join(" "), python);
        let text = ColumnValues::Double(vec![f64::INFINITY, f64::NEG_INFINITY, f64::NAN]).into_strings();
        assert_eq!(text, ["inf", "-inf", "nan"]);
        assert_eq!(ColumnValues::Single(vec![0.1, 16_777_216.0]).into_strings(), ["0.1", "16777216.0"]);
    }
}
