use std::sync::Arc;

use super::ArrayStore;
use crate::AnnDataError;

/// A column of obs as classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Names of the classes: the categories of the file in its order; of other columns the different values, ascending. Those
    /// of several files are the classes of the first, then the new ones of each file that follows.
    pub categories: Vec<String>,
    /// What the classes are named after.
    pub kind: LabelKind,
    /// int32 `[rows]`: class of each row; -1 where the file has no value.
    pub codes: Vec<i32>,
}

/// Values that classes are named after. The same number has other names as an integer and as a float (1, 1.0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelKind {
    /// Text.
    #[default]
    Text,
    /// Integers of any width.
    Integer,
    /// Floats of any width.
    Float,
    /// Truth values.
    Bool,
}

impl LabelKind {
    /// What the values are called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integers",
            Self::Float => "floats",
            Self::Bool => "truth values",
        }
    }
}

impl Labels {
    /// Columns of obs of a store, in this order.
    ///
    /// # Errors
    /// One is missing, or cannot be read.
    pub fn of(store: &dyn ArrayStore, columns: &[String]) -> Result<Arc<Vec<Self>>, AnnDataError> {
        columns.iter().map(|column| store.labels(column)).collect::<Result<Vec<_>, _>>().map(Arc::new)
    }

    /// Rows of each class; rows without one are counted in none.
    pub fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.categories.len()];
        for code in &self.codes {
            if let Some(count) = usize::try_from(*code).ok().and_then(|code| counts.get_mut(code)) {
                *count += 1;
            }
        }
        counts
    }
}
