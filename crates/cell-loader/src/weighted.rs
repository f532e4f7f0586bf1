//! Draws with replacement in constant time a row: `AliasTable` by weight, `ClassTable` with the same probability for each class.

use anndata_io::Labels;

use crate::error::{CellError, WeightsProblem};
use crate::permutation::below;

/// Alias table: draws `0..n` by weight, each in constant time.
///
/// Source: Walker, "An efficient method for generating discrete random variables with general distributions", ACM TOMS 3
/// (1977); built in linear time after Vose, IEEE Transactions on Software Engineering 17 (1991). 8 bytes a row, and 12 while it is
/// built. Chances are exact to 2⁻³² of the mean chance; a row of weight 0 is never drawn.
#[derive(Clone, Debug)]
pub struct AliasTable {
    /// For each column, in the high half how often it is itself, out of 2³², and in the low half which row it is otherwise.
    columns: Vec<u64>,
}

impl AliasTable {
    /// A table of these weights; `column` is what they are called in errors.
    ///
    /// # Errors
    /// A weight is NaN, negative or infinite (the error names it and its row), all are 0, there are none, or more than 2³².
    pub fn new(weights: Vec<f64>, column: &str) -> Result<Self, CellError> {
        let n = weights.len();
        let invalid = |problem| Err(CellError::Weights { column: column.to_owned(), problem });
        if u32::try_from(n).is_err() {
            return invalid(WeightsProblem::TooMany { rows: n });
        }
        // NaN is not within the range either.
        if let Some(row) = weights.iter().position(|weight| !(0.0..f64::INFINITY).contains(weight)) {
            let weight = weights[row];
            return invalid(match weight.is_nan() {
                true => WeightsProblem::Missing { row },
                false => WeightsProblem::OutOfRange { row, weight },
            });
        }
        if weights.iter().all(|weight| *weight == 0.0) {
            return invalid(WeightsProblem::AllZero { rows: n });
        }
        Ok(Self::from_checked(weights))
    }

    /// A table of at most 2³² weights that are finite, not negative, and not all 0.
    pub fn from_checked(mut scaled: Vec<f64>) -> Self {
        let n = scaled.len() as u32;
        let largest = scaled.iter().copied().fold(0.0, f64::max);
        let heaviest = scaled.iter().rposition(|weight| *weight == largest).unwrap_or(0) as u32;
        // Divided first: the sum of huge weights is no number.
        let sum: f64 = scaled.iter().map(|weight| weight / largest).sum();
        // Two lists of rows whose column has no content yet: their first rows, and the next one of each row.
        let (mut small, mut large) = (n, n);
        let mut next = Vec::with_capacity(scaled.len());
        for (row, weight) in (0..n).zip(&mut scaled) {
            if *weight > 0.0 {
                // Not 0 by rounding, which stands for rows that are never drawn.
                *weight = (*weight / largest / sum * f64::from(n)).max(f64::MIN_POSITIVE);
            }
            let list = if *weight < 1.0 { &mut small } else { &mut large };
            next.push(*list);
            *list = row;
        }
        // A column has the bits of its row's weight until it is given its content: the memory of the weights is that of the table.
        let mut columns: Vec<u64> = scaled.into_iter().map(f64::to_bits).collect();
        while small < n && large < n {
            let (few, many) = (small, large);
            small = next[few as usize];
            let of_few = f64::from_bits(columns[few as usize]);
            let of_many = f64::from_bits(columns[many as usize]);
            columns[few as usize] = column(share(of_few), many);
            // The rest of `many` after the column of `few` took its part. In this order the sum does not cancel.
            let rest = ((of_many + of_few) - 1.0).max(f64::MIN_POSITIVE);
            columns[many as usize] = rest.to_bits();
            if rest < 1.0 {
                large = next[many as usize];
                next[many as usize] = small;
                small = many;
            }
        }
        for mut row in [small, large] {
            while row < n {
                // What is left has a chance of 1 up to rounding; a row of weight 0 must not be among it.
                let is_drawn = f64::from_bits(columns[row as usize]) > 0.0;
                columns[row as usize] = if is_drawn { column(u32::MAX, row) } else { column(0, heaviest) };
                row = next[row as usize];
            }
        }
        Self { columns }
    }

    /// Number of rows, n.
    pub fn len(&self) -> u64 {
        self.columns.len() as u64
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        (self.columns.capacity() * size_of::<u64>()) as u64
    }

    /// No rows.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The row that two random words give.
    pub(crate) fn draw(&self, [slot, chance]: [u64; 2]) -> u64 {
        self.pick(below(slot, self.len()), (chance >> 32) as u32)
    }

    /// The row that one random word of 32 bits gives. For short tables: chances are exact to n 2⁻³² of the mean chance.
    pub fn draw_short(&self, word: u32) -> u64 {
        let slot = u64::from(word) * self.len();
        self.pick(slot >> 32, slot as u32)
    }

    fn pick(&self, column: u64, chance: u32) -> u64 {
        let content = self.columns[column as usize];
        let (share, other) = ((content >> 32) as u32, content as u32);
        // Without a branch, which could not be foretold and would keep the processor from fetching the next columns meanwhile.
        let own = u64::from(chance < share).wrapping_neg();
        (column & own) | (u64::from(other) & !own)
    }
}

/// Content of a column that is itself `share` times out of 2³², and else the row `other`.
fn column(share: u32, other: u32) -> u64 {
    u64::from(share) << 32 | u64::from(other)
}

/// A chance below 1, out of 2³².
fn share(chance: f64) -> u32 {
    // `as` stays within the type's range.
    (chance.max(0.0) * 4_294_967_296.0).round() as u32
}

/// Draws a class, all with the same probability, then one of its rows, all with the same probability. Rows without a class
/// and classes without rows are never drawn. 4 bytes a row.
#[derive(Clone, Debug)]
pub struct ClassTable {
    /// Rows of all classes, class by class.
    rows: Vec<u32>,
    /// Start in `rows` of each class that has rows, and the end.
    starts: Vec<u32>,
    left_out: u64,
}

impl ClassTable {
    /// A table of these classes; `column` is what they are called in errors.
    ///
    /// # Errors
    /// No row has a class, or there are more than 2³² rows.
    pub fn new(labels: &Labels, column: &str) -> Result<Self, CellError> {
        let n = labels.codes.len();
        if u32::try_from(n).is_err() {
            return Err(CellError::TooManyRows { column: column.to_owned(), rows: n });
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
            return Err(CellError::NoClasses { column: column.to_owned(), rows: n });
        }
        let mut rows = vec![0; end as usize];
        for (row, code) in labels.codes.iter().enumerate() {
            if let Some(slot) = usize::try_from(*code).ok().and_then(|code| next.get_mut(code)) {
                rows[*slot as usize] = row as u32;
                *slot += 1;
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
    pub(crate) fn draw(&self, [class, slot]: [u64; 2]) -> u64 {
        let class = below(class, self.classes()) as usize;
        let rows = &self.rows[self.starts[class] as usize..self.starts[class + 1] as usize];
        u64::from(rows[below(slot, rows.len() as u64) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The chance of each row, from the table itself.
    fn chances(table: &AliasTable) -> Vec<f64> {
        let n = table.columns.len();
        let mut chances = vec![0.0; n];
        for (row, content) in table.columns.iter().enumerate() {
            let own = (content >> 32) as f64 / 4_294_967_296.0;
            chances[row] += own / n as f64;
            chances[*content as u32 as usize] += (1.0 - own) / n as f64;
        }
        chances
    }

    proptest! {
        #[test]
        fn chances_are_the_weights(weights in proptest::collection::vec(prop_oneof![Just(0.0), 0.0..1e6f64, 0.0..1e-3f64], 1..300)) {
            prop_assume!(weights.iter().any(|weight| *weight > 0.0));
            let sum: f64 = weights.iter().sum();
            for (chance, weight) in chances(&AliasTable::new(weights.clone(), "w").unwrap()).iter().zip(&weights) {
                prop_assert!((chance - weight / sum).abs() < 1e-8, "{} {}", chance, weight / sum);
                prop_assert!(*weight > 0.0 || *chance == 0.0);
            }
        }
    }

    /// Words that are evenly spaced meet each number as often as it weighs, but for one at each of the two borders of a column.
    #[test]
    fn one_word_is_enough_for_short_tables() {
        let weights = [3.0, 0.0, 1.0, 0.5, 5.5];
        let table = AliasTable::from_checked(weights.to_vec());
        let mut met = [0.0; 5];
        (0..1u32 << 16).for_each(|word| met[table.draw_short(word << 16) as usize] += 1.0);
        for (met, weight) in met.iter().zip(weights) {
            assert!((met - weight / 10.0 * 65_536.0).abs() <= 10.0, "{met} of {weight}");
        }
        assert_eq!(met[1], 0.0);
    }

    /// Records were made with these draws, so that other tables of the same chances will not do.
    #[test]
    fn a_table_is_what_it_always_was() {
        let table = AliasTable::from_checked(vec![3.0, 0.0, 1.0, 0.5, 5.5]);
        let quarters = [3u32 << 30, 1 << 30, 1 << 31, 0, u32::MAX];
        let drawn = |column: u64| quarters.map(|chance| table.pick(column, chance));
        // Scaled to a mean of 1 they are 1.5, 0, 0.5, 0.25 and 2.75. Small ones are taken from the last on, and so are large ones.
        assert_eq!(drawn(3), [4, 4, 4, 3, 4]);
        assert_eq!(drawn(2), [4, 2, 4, 2, 4]);
        assert_eq!(drawn(1), [4; 5]);
        assert_eq!(drawn(4), [0, 4, 0, 4, 0]);
        assert_eq!(drawn(0), [0; 5]);
    }

    #[test]
    fn a_row_takes_eight_bytes() {
        let table = AliasTable::from_checked((0..5000).map(f64::from).collect());
        assert_eq!(table.bytes(), 8 * 5000);
    }

    #[test]
    fn huge_and_tiny_weights_are_fine() {
        let table = AliasTable::new(vec![f64::MAX, f64::MAX, 0.0], "w").unwrap();
        assert!(chances(&table).iter().zip([0.5, 0.5, 0.0]).all(|(a, b)| (a - b).abs() < 1e-9));
        let table = AliasTable::new(vec![f64::MIN_POSITIVE / 8.0, 0.0], "w").unwrap();
        assert_eq!(chances(&table)[1], 0.0);
    }

    #[test]
    fn what_is_no_weight_is_named() {
        for (weights, expected) in [
            (&[1.0, f64::NAN][..], "weights in w: row 1 has none, or NaN; give each row a number of 0 or more"),
            (&[1.0, 0.0, -2.5], "weights in w: row 2 has -2.5; a weight is a finite number of 0 or more"),
            (&[f64::INFINITY], "weights in w: row 0 has inf; a weight is a finite number of 0 or more"),
            (&[0.0, -0.0], "weights in w: all 2 are 0; at least one must be more"),
            (&[], "weights in w: all 0 are 0; at least one must be more"),
        ] {
            assert_eq!(AliasTable::new(weights.to_vec(), "w").unwrap_err().to_string(), expected);
        }
    }

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
