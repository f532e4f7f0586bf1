use expctl_dist::Removed;
use tch::{Device, TchError, Tensor};

use super::removed::{BatchRemoved, removed};

/// The rows of the first layer: one for each gene, as the wild type has it, and behind them one for each gene and sample
/// that a removed edge leads into. All other samples' rows are equal to the gene's.
#[derive(Debug)]
pub(super) struct FirstLayer {
    /// int64 `[D]`: the gene of each row behind the first N.
    pub copied: Tensor,
    /// What the rows lose, to rows `[N]`.
    pub removed: Removed,
    /// float32 `[N + D]`: of how many rows of the batch each is one.
    pub weights: Tensor,
    /// int64 `[N · B]`: the row of each gene and sample.
    pub row_of: Tensor,
}

impl FirstLayer {
    pub fn of(batch: &BatchRemoved, device: Device) -> Result<Self, TchError> {
        let (genes, samples) = (batch.genes, batch.batch);
        let mut row_of: Vec<i64> = (0..genes * samples).map(|i| (i / samples) as i64).collect();
        let mut weights = vec![samples as f32; genes];
        let mut copied = Vec::new();
        for gone in batch.edges.iter().flatten() {
            let row = &mut row_of[gone.target as usize * samples + gone.sample as usize];
            if (*row as usize) < genes {
                *row = (genes + copied.len()) as i64;
                weights[gone.target as usize] -= 1.0;
                copied.push(i64::from(gone.target));
            }
        }
        weights.resize(genes + copied.len(), 1.0);
        let rows = weights.len();
        let removed = removed(&batch.edges, device, |t, gone| {
            let row = row_of[gone.target as usize * samples + gone.sample as usize];
            ((t * rows) as i64 + row, i64::from(gone.source))
        })?;
        Ok(Self {
            copied: Tensor::f_from_slice(&copied)?.f_to_device(device)?,
            removed,
            weights: Tensor::f_from_slice(&weights)?.f_to_device(device)?,
            row_of: Tensor::f_from_slice(&row_of)?.f_to_device(device)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::removed::Gone;
    use super::*;
    use tch::Kind;

    #[test]
    fn every_row_of_the_batch_is_counted_once() {
        let gone = |source, target, sample| Gone { source, target, sample };
        let edges = vec![vec![gone(0, 1, 0), gone(2, 1, 0), gone(0, 2, 1)], vec![gone(1, 1, 1), gone(1, 1, 0)]];
        let kept = Tensor::ones([4, 2], (Kind::Bool, Device::Cpu));
        let batch = BatchRemoved { edges, kept, genes: 4, batch: 2 };
        let first = FirstLayer::of(&batch, Device::Cpu).unwrap();
        let list = |t: &Tensor| Vec::<i64>::try_from(t).unwrap();
        assert_eq!(list(&first.copied), [1, 2, 1]);
        assert_eq!(Vec::<f32>::try_from(&first.weights).unwrap(), [2.0, 0.0, 1.0, 2.0, 1.0, 1.0, 1.0]);
        assert_eq!(list(&first.row_of), [0, 0, 4, 6, 2, 5, 3, 3]);
        assert_eq!(list(&first.removed.into), [4, 4, 5, 7 + 6, 7 + 4]);
        assert_eq!(list(&first.removed.from), [0, 2, 0, 1, 1]);
    }
}
