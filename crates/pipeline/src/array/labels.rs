use std::sync::Arc;

use super::ArrayStore;
use crate::PipelineError;

/// A column of obs as classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Names of the classes: the categories of the file in its order; of other columns the different values, ascending.
    pub categories: Vec<String>,
    /// int32 `[rows]`: class of each row; -1 where the file has no value.
    pub codes: Vec<i32>,
}

impl Labels {
    /// Columns of obs of a store, in this order.
    ///
    /// # Errors
    /// One is missing, or cannot be read.
    pub fn of(store: &dyn ArrayStore, columns: &[String]) -> Result<Arc<Vec<Self>>, PipelineError> {
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
