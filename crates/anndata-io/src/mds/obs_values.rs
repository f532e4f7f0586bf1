use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use super::dtype::{Number, scalar};
use super::encoding::Encoding;
use crate::{LabelKind, Labels};

/// The number that stands for no value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing(pub(super) Option<i64>);

impl Missing {
    pub(super) fn or_none(self, value: i128) -> Option<i128> {
        (self.0.map(i128::from) != Some(value)).then_some(value)
    }
}

/// Text of a sample.
pub(super) fn text(cell: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(cell).map_err(|e| format!("a text is not UTF-8: {e}"))
}

/// An integer of a sample.
pub(super) fn integer(encoding: &Encoding, cell: &[u8]) -> Result<i128, String> {
    let found = match encoding {
        Encoding::Scalar(dtype) => match scalar(*dtype, cell) {
            Some(Number::Integer(value)) => Some(value),
            _ => None,
        },
        Encoding::TextInteger => text(cell)?.trim().parse().ok(),
        _ => None,
    };
    found.ok_or_else(|| "what should be an integer is none".to_owned())
}

/// A number of a sample; NaN where there is none.
pub(super) fn number(encoding: &Encoding, cell: &[u8], missing: Missing) -> Result<f64, String> {
    let found = match encoding {
        Encoding::Scalar(dtype) => match scalar(*dtype, cell) {
            Some(Number::Float(value)) => Some(value),
            Some(Number::Integer(value)) => return Ok(missing.or_none(value).map_or(f64::NAN, |value| value as f64)),
            None => None,
        },
        Encoding::TextFloat => text(cell)?.trim().parse().ok(),
        _ => return Ok(missing.or_none(integer(encoding, cell)?).map_or(f64::NAN, |value| value as f64)),
    };
    found.ok_or_else(|| "what should be a number is none".to_owned())
}

/// Values of a column as numbers of the different ones.
#[derive(Debug)]
pub(super) struct Coded<T> {
    different: HashMap<T, i32>,
    /// -1 where there is no value.
    codes: Vec<i32>,
}

impl<T> Default for Coded<T> {
    fn default() -> Self {
        Self { different: HashMap::new(), codes: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash + Ord + ToString> Coded<T> {
    pub(super) fn add<Q>(&mut self, value: Option<Q>)
    where
        Q: Into<T> + AsKey<T>,
    {
        let Some(value) = value else {
            self.codes.push(-1);
            return;
        };
        let next = self.different.len() as i32;
        let code = match value.find(&self.different) {
            Some(code) => code,
            None => {
                self.different.insert(value.into(), next);
                next
            }
        };
        self.codes.push(code);
    }

    /// The columns of all shards as one: `categories` are the names of the classes, if the index has noted them; else they are
    /// the different values, ascending.
    pub(super) fn labels(
        parts: Vec<Self>,
        categories: Option<&Vec<String>>,
        kind: LabelKind,
    ) -> Result<Labels, String> {
        let mut different: BTreeMap<&T, i32> =
            parts.iter().flat_map(|part| part.different.keys()).map(|value| (value, 0)).collect();
        let categories = match categories {
            None => {
                different.values_mut().zip(0..).for_each(|(code, place)| *code = place);
                different.keys().map(|value| value.to_string()).collect()
            }
            Some(categories) => {
                let places: HashMap<&str, i32> = categories.iter().map(String::as_str).zip(0..).collect();
                for (value, code) in &mut different {
                    let name = value.to_string();
                    let place = places.get(name.as_str());
                    *code = *place.ok_or_else(|| format!("'{name}' is none of its categories"))?;
                }
                categories.clone()
            }
        };
        let mut codes = Vec::with_capacity(parts.iter().map(|part| part.codes.len()).sum());
        for part in &parts {
            let mut own = vec![0; part.different.len()];
            for (value, code) in &part.different {
                own[*code as usize] = different.get(value).copied().unwrap_or(-1);
            }
            codes.extend(part.codes.iter().map(|code| usize::try_from(*code).map_or(-1, |code| own[code])));
        }
        Ok(Labels { categories, kind, codes })
    }
}

/// What a value is looked up by, so that a text is copied only when it is new.
pub(super) trait AsKey<T> {
    /// Its number among those that are known.
    fn find(&self, known: &HashMap<T, i32>) -> Option<i32>;
}

impl AsKey<String> for &str {
    fn find(&self, known: &HashMap<String, i32>) -> Option<i32> {
        known.get(*self).copied()
    }
}

impl AsKey<i128> for i128 {
    fn find(&self, known: &HashMap<i128, i32>) -> Option<i32> {
        known.get(self).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::dtype::Dtype;
    use super::*;

    #[test]
    fn classes_are_numbered_over_all_shards() {
        let coded = |values: &[&str]| {
            let mut coded = Coded::<String>::default();
            values.iter().for_each(|value| coded.add(Some(*value)));
            coded
        };
        let parts = || vec![coded(&["b", "c", "b"]), coded(&[]), coded(&["a", "c"])];
        let labels = Coded::labels(parts(), None, LabelKind::Text).unwrap();
        assert_eq!((labels.categories.concat(), labels.codes), ("abc".to_owned(), vec![1, 2, 1, 0, 2]));
        let order = ["c", "x", "b", "a"].map(str::to_owned).to_vec();
        let labels = Coded::labels(parts(), Some(&order), LabelKind::Text).unwrap();
        assert_eq!((labels.categories, labels.codes), (order, vec![2, 0, 2, 3, 0]));
        assert!(Coded::labels(parts(), Some(&vec!["a".to_owned()]), LabelKind::Text).is_err());
        let mut numbers = Coded::<i128>::default();
        [Some(10), None, Some(-3), Some(2)].into_iter().for_each(|value| numbers.add(value));
        let labels = Coded::labels(vec![numbers], None, LabelKind::Integer).unwrap();
        assert_eq!((labels.categories.join(" "), labels.codes), ("-3 2 10".to_owned(), vec![2, -1, 0, 1]));
    }

    #[test]
    fn values_are_those_of_the_package() {
        let none = Missing(None);
        assert_eq!(integer(&Encoding::TextInteger, b"-12345678901234567890"), Ok(-12_345_678_901_234_567_890));
        assert_eq!(number(&Encoding::TextFloat, b"1e-05", none), Ok(1e-5));
        assert!(number(&Encoding::TextFloat, b"nan", none).unwrap().is_nan());
        assert!(number(&Encoding::Scalar(Dtype::I8), &[255], Missing(Some(-1))).unwrap().is_nan());
        assert_eq!(number(&Encoding::Scalar(Dtype::F32), &1.5_f32.to_le_bytes(), none), Ok(1.5));
        assert!(number(&Encoding::TextFloat, b"x", none).is_err());
        assert!(integer(&Encoding::Scalar(Dtype::I64), &[0; 7]).is_err());
        assert!(text(&[255]).is_err());
    }
}
