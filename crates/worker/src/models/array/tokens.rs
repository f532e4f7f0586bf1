use cell_loader::{CellBatch, CellValues};

/// The genes that a transformer reads of each row: those with a value other than 0, or, of more than `limit`, the ones with the
/// largest values, of equal ones the first. Rows are padded to the longest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tokens {
    /// Places of a row, T.
    pub width: usize,
    /// int64 `[B, T]`: the gene, ascending; 0 where there is none.
    pub genes: Vec<i64>,
    /// float32 `[B, T]`: its value; 0 where there is none.
    pub values: Vec<f32>,
    /// bool `[B, T]`: whether there is one.
    pub there: Vec<bool>,
}

impl Tokens {
    /// Of all rows of `batch`, at most `limit` of each.
    pub fn of(batch: &CellBatch, limit: usize) -> Self {
        let mut tokens = Self::default();
        tokens.set(batch, limit);
        tokens
    }

    /// Become those of `batch`, in the memory that they have.
    pub fn set(&mut self, batch: &CellBatch, limit: usize) {
        let mut rows: Vec<Vec<(i64, f32)>> = Vec::with_capacity(batch.len());
        for row in 0..batch.len() {
            let mut tokens: Vec<(i64, f32)> = match &batch.values {
                CellValues::Dense(data) => {
                    let row = data[row * batch.columns..][..batch.columns].iter();
                    row.zip(0i64..).filter(|(value, _)| **value != 0.0).map(|(value, gene)| (gene, *value)).collect()
                }
                CellValues::Sparse { crow, col, values } => {
                    let range = crow[row] as usize..crow[row + 1] as usize;
                    let row = col[range.clone()].iter().zip(&values[range]).filter(|(_, value)| **value != 0.0);
                    row.map(|(gene, value)| (i64::from(*gene), *value)).collect()
                }
            };
            if tokens.len() > limit {
                tokens.select_nth_unstable_by(limit, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
                tokens.truncate(limit);
                tokens.sort_unstable_by_key(|(gene, _)| *gene);
            }
            rows.push(tokens);
        }
        let width = rows.iter().map(Vec::len).max().unwrap_or(0);
        let Self { width: places, genes, values, there } = self;
        *places = width;
        genes.clear();
        values.clear();
        there.clear();
        for row in &rows {
            genes.extend(row.iter().map(|(gene, _)| gene));
            values.extend(row.iter().map(|(_, value)| value));
            there.resize(genes.len(), true);
            let end = there.len() + width - row.len();
            genes.resize(end, 0);
            values.resize(end, 0.0);
            there.resize(end, false);
        }
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        let Self { genes, values, there, .. } = self;
        (size_of_val(genes.as_slice()) + size_of_val(values.as_slice()) + size_of_val(there.as_slice())) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_taken_in_the_order_of_the_genes() {
        let data = vec![0.0, 5.0, 1.0, 3.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0];
        let dense = CellBatch { rows: vec![0, 1], columns: 5, values: CellValues::Dense(data), labels: Vec::new() };
        let mut tokens = Tokens::of(&dense, 3);
        assert_eq!((tokens.width, &tokens.genes[..]), (3, &[1i64, 2, 3, 2, 0, 0][..]));
        assert_eq!(tokens.values, [5.0, 1.0, 3.0, 2.0, 0.0, 0.0]);
        assert_eq!(tokens.there, [true, true, true, true, false, false]);
        let (crow, col) = (vec![0, 4, 6], vec![1, 2, 3, 4, 0, 2]);
        let values = CellValues::Sparse { crow, col, values: vec![5.0, 1.0, 3.0, 1.0, 0.0, 2.0] };
        assert_eq!(Tokens::of(&CellBatch { values, ..dense.clone() }, 3), tokens, "a stored 0 is no token");
        assert_eq!(Tokens::of(&dense, 4).width, 4);
        let empty = CellBatch { values: CellValues::Dense(vec![0.0; 10]), ..dense };
        assert_eq!((Tokens::of(&empty, 3), tokens.bytes()), (Tokens::default(), 6 * (8 + 4 + 1)));
        tokens.set(&empty, 3);
        assert_eq!(tokens, Tokens::default(), "the memory has been used before");
    }
}
