/// A column of obs as classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// Names of the classes: the categories of the file in its order; of other columns the different values, ascending.
    pub categories: Vec<String>,
    /// int32 `[rows]`: class of each row; -1 where the file has no value.
    pub codes: Vec<i32>,
}

impl Labels {
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
