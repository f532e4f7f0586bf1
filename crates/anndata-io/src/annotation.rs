//! What is known of rows and columns (obs, var), whatever file it is in.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

use crate::names::missing_name;
use crate::{AnnDataError, LabelKind, Labels};

/// A column of a frame, read.
#[derive(Clone, Debug, PartialEq)]
pub enum FrameColumn {
    /// A value for each row.
    Plain {
        /// `[rows]`.
        values: ColumnValues,
        /// `[rows]`: there is no value, where the column can say so; empty where it cannot.
        missing: Vec<bool>,
    },
    /// Codes of categories.
    Categorical {
        /// `[rows]`: category, -1 where there is no value.
        codes: Vec<i32>,
        /// Values of the categories, all different.
        categories: ColumnValues,
        /// Their order means something.
        ordered: bool,
    },
}

impl FrameColumn {
    /// Codes and categories, checked.
    ///
    /// # Errors
    /// A code that is no category, or a category twice.
    pub(crate) fn categorical(
        codes: ColumnValues,
        categories: ColumnValues,
        ordered: bool,
    ) -> Result<Self, Cow<'static, str>> {
        let count = i32::try_from(categories.len()).map_err(|_| "it has more categories than 32 bits can number")?;
        let code = |row: usize, code: Option<i64>| match code {
            Some(code) if (-1..i64::from(count)).contains(&code) => Ok(code as i32),
            _ => {
                let code = code.map_or_else(|| "a code of more than 63 bits".to_owned(), |code| format!("code {code}"));
                Err(format!("row {row} has {code} where there are {count} categories"))
            }
        };
        let codes = match codes {
            ColumnValues::Signed(codes) => {
                codes.into_iter().enumerate().map(|(row, value)| code(row, Some(value))).collect()
            }
            ColumnValues::Unsigned(codes) => {
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
                    ColumnValues::Signed(values) => {
                        classes_of(values, missing, |_| true, Ord::cmp, ColumnValues::Signed)
                    }
                    ColumnValues::Unsigned(values) => {
                        classes_of(values, missing, |_| true, Ord::cmp, ColumnValues::Unsigned)
                    }
                    ColumnValues::Bool(values) => classes_of(values, missing, |_| true, Ord::cmp, ColumnValues::Bool),
                    ColumnValues::Text(values) => classes_of(values, missing, |_| true, Ord::cmp, ColumnValues::Text),
                    // Adding 0 makes 0 of -0: to everybody who compares them they are one value.
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

    /// As numbers, `[rows]`: NaN where there is no value, True is 1, of categories their values; `None` of strings.
    fn into_numbers(self) -> Option<Vec<f64>> {
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
    fn into_strings(self) -> Option<Vec<String>> {
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
        // Rows are fewer than 2^31 wherever their different values could be more than that.
        codes[row] = distinct.len() as i32 - 1;
    }
    let distinct = wrap(distinct);
    Labels { kind: distinct.kind(), categories: distinct.into_strings(), codes }
}

/// What an array of annotations holds, in the widest type of its kind; a value for each element.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnValues {
    /// Signed integers of any width.
    Signed(Vec<i64>),
    /// Unsigned integers of any width.
    Unsigned(Vec<u64>),
    /// Floats of up to 4 bytes.
    Single(Vec<f32>),
    /// Wider floats.
    Double(Vec<f64>),
    /// Truth values; h5py's are an enumeration of FALSE = 0 and TRUE = 1.
    Bool(Vec<bool>),
    /// Strings of variable or fixed length.
    Text(Vec<String>),
}

impl ColumnValues {
    /// What classes of these are named after.
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

    /// How Python writes each (a float that is a whole number ends in `.0`, a bool is `True` or `False`).
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

    /// As f64, what is wider rounded to the nearest; `None` of strings.
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

/// Python's text of a float, of its shortest digits as Rust writes them with an exponent (`1.25e-7`).
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

/// Columns of obs or var, by name: what every kind of file has alike.
pub trait FrameColumns {
    /// What the file calls the frame (`obs`, `raw/var`).
    fn location(&self) -> &str;

    /// The file.
    fn path(&self) -> &Path;

    /// Number of rows.
    fn rows(&self) -> usize;

    /// Name of the index.
    fn index_name(&self) -> &str;

    /// Names of the columns, in order, without the index.
    fn names(&self) -> &[String];

    /// Read a column that is there, of any length. `Err` says why it cannot be read.
    fn read_any(&self, name: &str) -> Result<FrameColumn, String>;

    /// The error for what is wrong with a column.
    fn wrong(&self, name: &str, reason: &str) -> AnnDataError {
        AnnDataError::damaged(self.path(), format!("{}/{name}: {reason}", self.location()))
    }

    /// Read a column that is there.
    ///
    /// # Errors
    /// It cannot be read, or has not a value for each row.
    fn read(&self, name: &str) -> Result<FrameColumn, AnnDataError> {
        let column = self.read_any(name).map_err(|reason| self.wrong(name, &reason))?;
        if column.len() != self.rows() {
            let reason = format!("it has {} values where there are {} rows", column.len(), self.rows());
            return Err(self.wrong(name, &reason));
        }
        Ok(column)
    }

    /// The index: a name for each row.
    ///
    /// # Errors
    /// It cannot be read, or a row has none.
    fn index(&self) -> Result<Vec<String>, AnnDataError> {
        let column = self.read(self.index_name())?;
        column.into_strings().ok_or_else(|| self.wrong(self.index_name(), "a row has no name"))
    }

    /// A column as classes.
    ///
    /// # Errors
    /// There is none of this name, or it cannot be read.
    fn labels(&self, name: &str) -> Result<Labels, AnnDataError> {
        Ok(self.column(name)?.into_labels())
    }

    /// A column as numbers, NaN where there is no value.
    ///
    /// # Errors
    /// There is none of this name, it cannot be read, or it holds strings.
    fn numbers(&self, name: &str) -> Result<Vec<f64>, AnnDataError> {
        let column = self.column(name)?;
        column.into_numbers().ok_or_else(|| self.wrong(name, "it holds strings where numbers are needed"))
    }

    /// A column, or the index.
    ///
    /// # Errors
    /// There is none of this name, or it cannot be read.
    fn column(&self, name: &str) -> Result<FrameColumn, AnnDataError> {
        if !self.names().iter().any(|other| other == name) && name != self.index_name() {
            let names = self.names().iter().map(String::as_str);
            let what = format!("{} has no column {name:?}", self.location());
            return Err(AnnDataError::damaged(self.path(), missing_name(&what, "columns", name, names)));
        }
        self.read(name)
    }
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
    fn codes_are_of_categories() {
        let two = || ColumnValues::Text(vec!["a".to_owned(), "b".to_owned()]);
        let e = |codes| FrameColumn::categorical(codes, two(), false).unwrap_err();
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
