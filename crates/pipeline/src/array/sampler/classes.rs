use super::philox::below;
use crate::PipelineError;
use crate::array::Labels;

/// Draws rows so that every class comes alike often: a class, all alike likely, then one of its rows, all alike likely.
/// Rows without a class are never drawn, and neither are classes without rows. 4 bytes a row.
#[derive(Clone, Debug)]
pub struct ClassTable {
    /// Rows of all classes, class by class.
    rows: Vec<u32>,
    /// Where each class that has rows starts, and the end.
    starts: Vec<u32>,
    left_out: u64,
}

impl ClassTable {
    /// A table of these classes; `column` is what they are called in errors.
    ///
    /// # Errors
    /// No row has a class, or there are more than 2³² rows.
    pub fn new(labels: &Labels, column: &str) -> Result<Self, PipelineError> {
        let n = labels.codes.len();
        if u32::try_from(n).is_err() {
            let reason = format!("classes in {column}: {n} rows are more than can be drawn from; 4,294,967,295 can");
            return Err(PipelineError::Invalid(reason));
        }
        let counts = labels.counts();
        let mut next = Vec::with_capacity(counts.len());
        let mut starts = vec![0];
        let mut end = 0u32;
        for count in counts {
            next.push(end);
            end += count as u32;
            if count > 0 {
                starts.push(end);
            }
        }
        if end == 0 {
            let reason = format!("classes in {column}: none of the {n} rows has one, so no row can be drawn");
            return Err(PipelineError::Invalid(reason));
        }
        let mut rows = vec![0; end as usize];
        for (row, code) in labels.codes.iter().enumerate() {
            if let Some(place) = usize::try_from(*code).ok().and_then(|code| next.get_mut(code)) {
                rows[*place as usize] = row as u32;
                *place += 1;
            }
        }
        Ok(Self { rows, starts, left_out: n as u64 - u64::from(end) })
    }

    /// Classes that have rows.
    pub fn classes(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// Rows without a class, which are never drawn.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The row that two random words give.
    pub(super) fn draw(&self, [class, place]: [u64; 2]) -> u64 {
        let class = below(class, self.classes()) as usize;
        let rows = &self.rows[self.starts[class] as usize..self.starts[class + 1] as usize];
        u64::from(rows[below(place, rows.len() as u64) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(codes: &[i32], classes: usize) -> Labels {
        Labels {
            categories: (0..classes).map(|class| format!("c{class}")).collect(),
            codes: codes.to_vec(),
            ..Labels::default()
        }
    }

    #[test]
    fn rows_of_a_class_are_found_and_others_left_out() {
        // Class 1 has no rows.
        let table = ClassTable::new(&labels(&[2, -1, 0, 2, 0, 2, -1], 3), "kind").unwrap();
        assert_eq!((table.classes(), table.left_out()), (2, 2));
        let half = 1u64 << 63;
        assert_eq!(table.draw([0, 0]), 2);
        assert_eq!(table.draw([0, half]), 4);
        assert_eq!(table.draw([half, 0]), 0);
        assert_eq!(table.draw([half, half]), 3);
        assert_eq!(table.draw([u64::MAX, u64::MAX]), 5);
    }

    #[test]
    fn no_class_at_all_is_an_error() {
        let error = ClassTable::new(&labels(&[-1, -1], 2), "kind").unwrap_err().to_string();
        assert_eq!(error, "classes in kind: none of the 2 rows has one, so no row can be drawn");
    }
}
