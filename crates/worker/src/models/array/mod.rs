//! Models over the rows of an array. Invariants: a batch is read where it lies, dense or CSR, and both forms of the same rows give the same
//! outputs but for rounding; outputs are a value for each class, float32 `[B, classes]`.

use cell_loader::{CellBatch, CellValues};
use tch::{Device, Kind, Tensor};

use crate::models::{DirectBuilder, ModelBatch, ModelError, ModelInputs, TensorBuilder, build_tensor};

mod classifiers;

pub use classifiers::{Mlp, MlpConfig, Transformer, TransformerConfig};

/// The inputs of a model for B rows of an array, as tensors on the device.
///
/// Invariant: where the device is the host, all tensors are views of the batch's own memory; they must not outlive it.
#[derive(Debug)]
pub struct ArrayInputs<'batch> {
    /// The values.
    pub values: ValueInputs,
    /// int64 `[B]`: class of each row in the first label column, -1 if unknown; `None` where the batch has no labels.
    pub classes: Option<Tensor>,
    /// B.
    pub batch_size: i64,
    /// The batch on the host.
    pub batch: &'batch CellBatch,
}

/// The values of a batch, in the form in which the batch has them.
#[derive(Debug)]
pub enum ValueInputs {
    /// float32 `[B, genes]`.
    Dense(Tensor),
    /// CSR.
    Sparse {
        /// int32 `[B + 1]`: where each row starts.
        crow: Tensor,
        /// int32 `[nnz]`: gene of each value.
        col: Tensor,
        /// float32 `[nnz]`.
        values: Tensor,
    },
    /// The genes that are tokens, at most T of each row.
    Tokens {
        /// int64 `[B, T]`: the gene; 0 for padding.
        genes: Tensor,
        /// float32 `[B, T]`: its value; 0 for padding.
        values: Tensor,
        /// bool `[B, T]`: false for padding.
        present: Tensor,
    },
}

impl<'batch> ArrayInputs<'batch> {
    /// Tensors of `batch` on `device`.
    ///
    /// # Errors
    /// The device has no memory.
    pub fn new(batch: &'batch CellBatch, device: Device) -> Result<Self, ModelError> {
        Self::from_builder(batch, None, &mut DirectBuilder::new(device))
    }

    /// Tensors of `batch`, made by `builder`; with `tokens`, those instead of the values.
    ///
    /// # Errors
    /// libtorch has no memory.
    pub fn from_builder(
        batch: &'batch CellBatch,
        tokens: Option<&'batch Tokens>,
        builder: &mut dyn TensorBuilder,
    ) -> Result<Self, ModelError> {
        let rows = batch.len() as i64;
        let values = match (tokens, &batch.values) {
            (Some(Tokens { width, genes, values, present }), _) => {
                let shape = [rows, *width as i64];
                ValueInputs::Tokens {
                    genes: build_tensor(builder, genes, &shape, Kind::Int64)?,
                    values: build_tensor(builder, values, &shape, Kind::Float)?,
                    present: build_tensor(builder, present, &shape, Kind::Bool)?,
                }
            }
            (None, CellValues::Dense(data)) => {
                ValueInputs::Dense(build_tensor(builder, data, &[rows, batch.columns as i64], Kind::Float)?)
            }
            (None, CellValues::Sparse { crow, col, values }) => ValueInputs::Sparse {
                crow: build_tensor(builder, crow, &[rows + 1], Kind::Int)?,
                col: build_tensor(builder, col, &[col.len() as i64], Kind::Int)?,
                values: build_tensor(builder, values, &[values.len() as i64], Kind::Float)?,
            },
        };
        let classes =
            batch.labels.first().map(|codes| build_tensor(builder, codes, &[rows], Kind::Int64)).transpose()?;
        Ok(Self { values, classes, batch_size: rows, batch })
    }
}

/// Rows of an array in the form that a model reads.
#[derive(Clone, Debug)]
pub struct RowBatch {
    /// The rows.
    pub rows: CellBatch,
    /// Tokens of the rows, for a model that reads tokens and no other values.
    pub tokens: Option<Tokens>,
}

impl RowBatch {
    /// `rows` for a model that reads at most `max_tokens` tokens of each, or with `None` all values.
    pub fn new(rows: CellBatch, max_tokens: Option<usize>) -> Self {
        let tokens = max_tokens.map(|max_tokens| Tokens::from_batch(&rows, max_tokens));
        Self { rows, tokens }
    }

    /// Memory of the batch, bytes.
    pub fn bytes(&self) -> u64 {
        self.rows.bytes() + self.tokens.as_ref().map_or(0, Tokens::bytes)
    }
}

impl ModelBatch for RowBatch {
    fn inputs_from(
        &self,
        _: &[Tensor],
        _: bool,
        builder: &mut dyn TensorBuilder,
    ) -> Result<ModelInputs<'_>, ModelError> {
        Ok(ModelInputs::Rows(ArrayInputs::from_builder(&self.rows, self.tokens.as_ref(), builder)?))
    }

    fn samples(&self) -> u64 {
        self.rows.samples()
    }
}

/// The genes that a transformer reads of each row: those with a value other than 0, or, of more than the limit, the ones with the largest
/// values, of equal ones the first. Rows are padded to the longest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tokens {
    /// Tokens of a row, T.
    pub width: usize,
    /// int64 `[B, T]`: the gene, ascending; 0 for padding.
    pub genes: Vec<i64>,
    /// float32 `[B, T]`: its value; 0 for padding.
    pub values: Vec<f32>,
    /// bool `[B, T]`: false for padding.
    pub present: Vec<bool>,
}

impl Tokens {
    /// The tokens of all rows of `batch`, at most `max_tokens` of each.
    pub fn from_batch(batch: &CellBatch, max_tokens: usize) -> Self {
        let mut tokens = Self::default();
        tokens.set(batch, max_tokens);
        tokens
    }

    /// Replace the tokens by those of `batch`, in the same memory.
    pub fn set(&mut self, batch: &CellBatch, max_tokens: usize) {
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
            if tokens.len() > max_tokens {
                tokens.select_nth_unstable_by(max_tokens, |a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
                tokens.truncate(max_tokens);
                tokens.sort_unstable_by_key(|(gene, _)| *gene);
            }
            rows.push(tokens);
        }
        let width = rows.iter().map(Vec::len).max().unwrap_or(0);
        let Self { width: row_width, genes, values, present } = self;
        *row_width = width;
        genes.clear();
        values.clear();
        present.clear();
        for row in &rows {
            genes.extend(row.iter().map(|(gene, _)| gene));
            values.extend(row.iter().map(|(_, value)| value));
            present.resize(genes.len(), true);
            let end = present.len() + width - row.len();
            genes.resize(end, 0);
            values.resize(end, 0.0);
            present.resize(end, false);
        }
    }

    /// Memory of the tokens, bytes.
    pub fn bytes(&self) -> u64 {
        let Self { genes, values, present, .. } = self;
        (size_of_val(genes.as_slice()) + size_of_val(values.as_slice()) + size_of_val(present.as_slice())) as u64
    }
}

#[cfg(test)]
mod tests {
    use cell_loader::CellValues;
    use tch::{Device, Kind};

    use super::*;

    #[test]
    fn a_batch_is_seen_as_it_lies_in_memory() {
        let dense = CellBatch {
            rows: vec![4, 9],
            columns: 3,
            values: CellValues::Dense(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
            labels: vec![vec![1, -1]],
        };
        let inputs = ArrayInputs::new(&dense, Device::Cpu).unwrap();
        let (ValueInputs::Dense(seen), CellValues::Dense(data)) = (&inputs.values, &dense.values) else {
            unreachable!()
        };
        assert_eq!((seen.size(), seen.double_value(&[1, 0])), (vec![2, 3], 3.0));
        assert_eq!(seen.data_ptr() as usize, data.as_ptr() as usize);
        assert_eq!(inputs.classes.unwrap().int64_value(&[1]), -1);
        let (crow, col, values) = (vec![0, 1, 1], vec![2], vec![7.0]);
        let values = CellValues::Sparse { crow, col, values };
        let sparse = CellBatch { values, labels: Vec::new(), ..dense };
        let inputs = ArrayInputs::new(&sparse, Device::Cpu).unwrap();
        let (ValueInputs::Sparse { values, .. }, CellValues::Sparse { values: data, .. }) =
            (&inputs.values, &sparse.values)
        else {
            unreachable!()
        };
        assert_eq!(values.data_ptr() as usize, data.as_ptr() as usize);
        assert!(inputs.classes.is_none());
    }

    #[test]
    fn of_tokens_nothing_else_goes_to_the_device() {
        /// Counts bytes.
        struct Sent(usize);
        impl TensorBuilder for Sent {
            fn build(&mut self, bytes: &[u8], _: &[i64], _: Kind) -> Result<Tensor, tch::TchError> {
                self.0 += bytes.len();
                Ok(Tensor::new())
            }
        }
        let values = CellValues::Dense(vec![0.0, 5.0, 1.0, 3.0, 0.0, 0.0, 2.0, 0.0]);
        let rows = CellBatch { rows: vec![0, 1], columns: 4, values, labels: vec![vec![1, 0]] };
        let batch = RowBatch::new(rows.clone(), Some(2));
        let mut sent = Sent(0);
        batch.inputs_from(&[], false, &mut sent).unwrap();
        // Two tokens of each of two rows, and a class: int64, float32 and a byte; int64.
        assert_eq!(sent.0, 4 * (8 + 4 + 1) + 2 * 8);
        assert_eq!(batch.bytes(), rows.bytes() + 4 * 13);
        let ModelInputs::Rows(inputs) = batch.inputs(&[], false, Device::Cpu).unwrap() else { unreachable!() };
        let ValueInputs::Tokens { genes, values, present } = &inputs.values else { unreachable!() };
        assert_eq!(Vec::<i64>::try_from(genes.flatten(0, -1)).unwrap(), [1, 3, 2, 0]);
        assert_eq!(Vec::<f32>::try_from(values.flatten(0, -1)).unwrap(), [5.0, 3.0, 2.0, 0.0]);
        assert_eq!(Vec::<bool>::try_from(present.flatten(0, -1)).unwrap(), [true, true, true, false]);
        let ModelInputs::Rows(whole) = rows.inputs(&[], false, Device::Cpu).unwrap() else { unreachable!() };
        assert!(matches!(whole.values, ValueInputs::Dense(_)));
    }

    #[test]
    fn the_largest_are_taken_in_the_order_of_the_genes() {
        let data = vec![0.0, 5.0, 1.0, 3.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0];
        let dense = CellBatch { rows: vec![0, 1], columns: 5, values: CellValues::Dense(data), labels: Vec::new() };
        let mut tokens = Tokens::from_batch(&dense, 3);
        assert_eq!((tokens.width, &tokens.genes[..]), (3, &[1i64, 2, 3, 2, 0, 0][..]));
        assert_eq!(tokens.values, [5.0, 1.0, 3.0, 2.0, 0.0, 0.0]);
        assert_eq!(tokens.present, [true, true, true, true, false, false]);
        let (crow, col) = (vec![0, 4, 6], vec![1, 2, 3, 4, 0, 2]);
        let values = CellValues::Sparse { crow, col, values: vec![5.0, 1.0, 3.0, 1.0, 0.0, 2.0] };
        assert_eq!(Tokens::from_batch(&CellBatch { values, ..dense.clone() }, 3), tokens, "a stored 0 is no token");
        assert_eq!(Tokens::from_batch(&dense, 4).width, 4);
        let empty = CellBatch { values: CellValues::Dense(vec![0.0; 10]), ..dense };
        assert_eq!((Tokens::from_batch(&empty, 3), tokens.bytes()), (Tokens::default(), 6 * (8 + 4 + 1)));
        tokens.set(&empty, 3);
        assert_eq!(tokens, Tokens::default(), "the memory has been used before");
    }
}
