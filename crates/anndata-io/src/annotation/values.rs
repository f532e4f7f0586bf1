use std::fmt::Write as _;

use crate::LabelKind;

/// What an array of annotations holds, in the widest type of its kind; a value for each element.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
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

impl Values {
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
    pub(crate) fn into_strings(self) -> Vec<String> {
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
    pub(crate) fn into_numbers(self) -> Option<Vec<f64>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_does() {
        let values = [0.0, -1.0, 0.5, 123.25, 1e15, 123456789012345680.0, 1e16, 1e22, 1e-4, 1.25e-5, -2.5e-300, 1e-10];
        let text = Values::Double(values.to_vec()).into_strings();
        let python =
            "0.0 -1.0 0.5 123.25 1000000000000000.0 1.2345678901234568e+17 1e+16 1e+22 0.0001 1.25e-05 -2.5e-300 1e-10";
        assert_eq!(text.join(" "), python);
        let text = Values::Double(vec![f64::INFINITY, f64::NEG_INFINITY, f64::NAN]).into_strings();
        assert_eq!(text, ["inf", "-inf", "nan"]);
        assert_eq!(Values::Single(vec![0.1, 16_777_216.0]).into_strings(), ["0.1", "16777216.0"]);
    }
}
