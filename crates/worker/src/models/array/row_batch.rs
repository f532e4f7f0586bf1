use cell_loader::CellBatch;
use tch::Tensor;

use super::{ArrayInputs, Tokens};
use crate::models::{ModelBatch, ModelError, ModelInputs, Place};

/// Rows of an array in the form that a model reads.
#[derive(Clone, Debug)]
pub struct RowBatch {
    /// The rows.
    pub rows: CellBatch,
    /// Their tokens, for a model that reads them and no other values.
    pub tokens: Option<Tokens>,
}

impl RowBatch {
    /// `rows` for a model that reads at most `limit` tokens of each; without a limit for one that reads all values.
    pub fn of(rows: CellBatch, limit: Option<usize>) -> Self {
        let tokens = limit.map(|limit| Tokens::of(&rows, limit));
        Self { rows, tokens }
    }

    /// Bytes of all that is in memory.
    pub fn bytes(&self) -> u64 {
        self.rows.bytes() + self.tokens.as_ref().map_or(0, Tokens::bytes)
    }
}

impl ModelBatch for RowBatch {
    fn placed(&self, _: &[Tensor], _: bool, place: &mut dyn Place) -> Result<ModelInputs<'_>, ModelError> {
        Ok(ModelInputs::Rows(ArrayInputs::placed(&self.rows, self.tokens.as_ref(), place)?))
    }

    fn samples(&self) -> u64 {
        self.rows.samples()
    }
}

#[cfg(test)]
mod tests {
    use cell_loader::CellValues;
    use tch::{Device, Kind};

    use super::*;
    use crate::models::array::ValueInputs;

    #[test]
    fn of_tokens_nothing_else_goes_to_the_device() {
        /// Counts bytes.
        struct Sent(usize);
        impl Place for Sent {
            fn place(&mut self, bytes: &[u8], _: &[i64], _: Kind) -> Result<Tensor, tch::TchError> {
                self.0 += bytes.len();
                Ok(Tensor::new())
            }
        }
        let values = CellValues::Dense(vec![0.0, 5.0, 1.0, 3.0, 0.0, 0.0, 2.0, 0.0]);
        let rows = CellBatch { rows: vec![0, 1], columns: 4, values, labels: vec![vec![1, 0]] };
        let batch = RowBatch::of(rows.clone(), Some(2));
        let mut sent = Sent(0);
        batch.placed(&[], false, &mut sent).unwrap();
        // Two tokens of each of two rows, and a class: int64, float32 and a byte; int64.
        assert_eq!(sent.0, 4 * (8 + 4 + 1) + 2 * 8);
        assert_eq!(batch.bytes(), rows.bytes() + 4 * 13);
        let ModelInputs::Rows(inputs) = batch.inputs(&[], false, Device::Cpu).unwrap() else { unreachable!() };
        let ValueInputs::Tokens { genes, values, there } = &inputs.values else { unreachable!() };
        assert_eq!(Vec::<i64>::try_from(genes.flatten(0, -1)).unwrap(), [1, 3, 2, 0]);
        assert_eq!(Vec::<f32>::try_from(values.flatten(0, -1)).unwrap(), [5.0, 3.0, 2.0, 0.0]);
        assert_eq!(Vec::<bool>::try_from(there.flatten(0, -1)).unwrap(), [true, true, true, false]);
        let ModelInputs::Rows(whole) = rows.inputs(&[], false, Device::Cpu).unwrap() else { unreachable!() };
        assert!(matches!(whole.values, ValueInputs::Dense(_)));
    }
}
