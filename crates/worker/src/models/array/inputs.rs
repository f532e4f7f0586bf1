use cell_loader::{CellBatch, CellValues};
use tch::{Device, Kind, Tensor};

use super::Tokens;
use crate::models::ModelError;
use crate::models::place::{Direct, Place, placed};

/// What models read of one batch of B rows of an array, as tensors on the device.
///
/// Invariant: where the device is the host, all of it is a view of the batch's own memory; it must not outlive it.
#[derive(Debug)]
pub struct ArrayInputs<'batch> {
    /// The values.
    pub values: ValueInputs,
    /// int64 `[B]`: class of each row in the first label column, -1 for those without; none where the batch has no labels.
    pub classes: Option<Tensor>,
    /// B.
    pub batch_size: i64,
    /// The batch, for what is not done with tensors.
    pub batch: &'batch CellBatch,
}

/// The values of a batch, in the form that it has them in.
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
    /// The genes that are tokens, T of each row at most.
    Tokens {
        /// int64 `[B, T]`: the gene; 0 where there is none.
        genes: Tensor,
        /// float32 `[B, T]`: its value; 0 where there is none.
        values: Tensor,
        /// bool `[B, T]`: whether there is one.
        there: Tensor,
    },
}

impl<'batch> ArrayInputs<'batch> {
    /// Tensors of `batch`.
    ///
    /// # Errors
    /// There is no room on the device.
    pub fn of(batch: &'batch CellBatch, device: Device) -> Result<Self, ModelError> {
        Self::placed(batch, None, &mut Direct::to(device))
    }

    /// The same, with the tensors where `place` puts them; those of `tokens`, if there are any, in the place of the values.
    ///
    /// # Errors
    /// There is no room.
    pub fn placed(
        batch: &'batch CellBatch,
        tokens: Option<&'batch Tokens>,
        place: &mut dyn Place,
    ) -> Result<Self, ModelError> {
        let rows = batch.len() as i64;
        let values = match (tokens, &batch.values) {
            (Some(Tokens { width, genes, values, there }), _) => {
                let shape = [rows, *width as i64];
                ValueInputs::Tokens {
                    genes: placed(place, genes, &shape, Kind::Int64)?,
                    values: placed(place, values, &shape, Kind::Float)?,
                    there: placed(place, there, &shape, Kind::Bool)?,
                }
            }
            (None, CellValues::Dense(data)) => {
                ValueInputs::Dense(placed(place, data, &[rows, batch.columns as i64], Kind::Float)?)
            }
            (None, CellValues::Sparse { crow, col, values }) => ValueInputs::Sparse {
                crow: placed(place, crow, &[rows + 1], Kind::Int)?,
                col: placed(place, col, &[col.len() as i64], Kind::Int)?,
                values: placed(place, values, &[values.len() as i64], Kind::Float)?,
            },
        };
        let classes = batch.labels.first().map(|codes| placed(place, codes, &[rows], Kind::Int64)).transpose()?;
        Ok(Self { values, classes, batch_size: rows, batch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_seen_as_it_lies_in_memory() {
        let dense = CellBatch {
            rows: vec![4, 9],
            columns: 3,
            values: CellValues::Dense(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
            labels: vec![vec![1, -1]],
        };
        let inputs = ArrayInputs::of(&dense, Device::Cpu).unwrap();
        let (ValueInputs::Dense(seen), CellValues::Dense(data)) = (&inputs.values, &dense.values) else {
            unreachable!()
        };
        assert_eq!((seen.size(), seen.double_value(&[1, 0])), (vec![2, 3], 3.0));
        assert_eq!(seen.data_ptr() as usize, data.as_ptr() as usize);
        assert_eq!(inputs.classes.unwrap().int64_value(&[1]), -1);
        let (crow, col, values) = (vec![0, 1, 1], vec![2], vec![7.0]);
        let values = CellValues::Sparse { crow, col, values };
        let sparse = CellBatch { values, labels: Vec::new(), ..dense };
        let inputs = ArrayInputs::of(&sparse, Device::Cpu).unwrap();
        let (ValueInputs::Sparse { values, .. }, CellValues::Sparse { values: data, .. }) =
            (&inputs.values, &sparse.values)
        else {
            unreachable!()
        };
        assert_eq!(values.data_ptr() as usize, data.as_ptr() as usize);
        assert!(inputs.classes.is_none());
    }
}
