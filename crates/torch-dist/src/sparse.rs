//! `SparseMatrix` multiplies a constant float32 matrix in CSR form with dense ones: a sum over the edges of a graph is such a product.

use tch::{Device, Kind, Tensor};

use crate::ffi::bridge;
use crate::group::address;
use crate::{Autocast, DistError};

/// A constant sparse matrix, float32, to multiply with dense ones on any device; gradients flow into the dense side only.
///
/// It stores its transpose too, so that a backward pass costs one more product and no conversion.
#[derive(Debug)]
pub struct SparseMatrix {
    matrix: Tensor,
    transposed: Tensor,
    entries: usize,
}

/// One entry of a sparse matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatrixEntry {
    /// Row, from 0.
    pub row: u32,
    /// Column, from 0.
    pub column: u32,
    /// Value.
    pub value: f32,
}

impl SparseMatrix {
    /// A matrix `[rows, columns]` on `device`. Entries at the same place add up.
    ///
    /// # Errors
    /// An entry lies outside, or libtorch has no memory for it.
    pub fn new(rows: u32, columns: u32, mut entries: Vec<MatrixEntry>, device: Device) -> Result<Self, DistError> {
        let fail = |e: &tch::TchError| DistError::from_tch("build a sparse matrix", e);
        bridge::quiet();
        if let Some(e) = entries.iter().find(|e| e.row >= rows || e.column >= columns) {
            return Err(DistError::EntryOutside { row: e.row, column: e.column, rows, columns });
        }
        entries.sort_unstable_by_key(|e| (e.row, e.column));
        entries.dedup_by(|next, first| {
            let is_same = (next.row, next.column) == (first.row, first.column);
            if is_same {
                first.value += next.value;
            }
            is_same
        });
        let matrix = csr(rows, columns, &entries, device).map_err(|e| fail(&e))?;
        for e in &mut entries {
            std::mem::swap(&mut e.row, &mut e.column);
        }
        entries.sort_unstable_by_key(|e| (e.row, e.column));
        let transposed = csr(columns, rows, &entries, device).map_err(|e| fail(&e))?;
        Ok(Self { matrix, transposed, entries: entries.len() })
    }

    /// Number of entries, those at the same place counted once.
    pub const fn num_entries(&self) -> usize {
        self.entries
    }

    /// The product with `dense`, float32 or bfloat16 `[columns, n]`: float32 `[rows, n]`, whether autocast is on or not. With a float64 `dense` it
    /// is float64, for comparisons: the matrix is then converted each time.
    ///
    /// # Errors
    /// Shape, dtype or device of `dense` do not fit.
    pub fn matmul(&self, dense: &Tensor) -> Result<Tensor, DistError> {
        let as_kind =
            |t: &Tensor, kind| t.f_to_kind(kind).map_err(|e| DistError::from_tch("convert for a sparse product", &e));
        let _float32 = Autocast::paused(dense.device());
        match dense.kind() {
            // There are no sparse products of bfloat16, and a sum over a thousand neighbours is not for eight bits.
            Kind::BFloat16 => product(&self.matrix, &self.transposed, &as_kind(dense, Kind::Float)?),
            Kind::Double => {
                product(&as_kind(&self.matrix, Kind::Double)?, &as_kind(&self.transposed, Kind::Double)?, dense)
            }
            _ => product(&self.matrix, &self.transposed, dense),
        }
    }
}

fn product(matrix: &Tensor, transposed: &Tensor, dense: &Tensor) -> Result<Tensor, DistError> {
    let product = bridge::sparse_matmul(address(matrix), address(transposed), address(dense))
        .map_err(DistError::torch("sparse product"))?;
    // SAFETY: the bridge returns a new `at::Tensor` that nothing else refers to; tch deletes it.
    Ok(unsafe { Tensor::from_ptr(product as *mut _) })
}

/// CSR tensor of sorted entries. The indices are int32, which is what the product's kernel (MKL) takes without a copy.
fn csr(rows: u32, columns: u32, entries: &[MatrixEntry], device: Device) -> Result<Tensor, tch::TchError> {
    let mut starts = vec![0i32; rows as usize + 1];
    for e in entries {
        starts[e.row as usize + 1] += 1;
    }
    for i in 1..starts.len() {
        starts[i] += starts[i - 1];
    }
    let column_indices: Vec<i32> = entries.iter().map(|e| e.column.cast_signed()).collect();
    let values: Vec<f32> = entries.iter().map(|e| e.value).collect();
    Tensor::f_sparse_csr_tensor_crow_col_value_size(
        &Tensor::f_from_slice(&starts)?.f_to_device(device)?,
        &Tensor::f_from_slice(&column_indices)?.f_to_device(device)?,
        &Tensor::f_from_slice(&values)?.f_to_device(device)?,
        [i64::from(rows), i64::from(columns)],
        (Kind::Float, device),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_rounding::{gamma, values};

    #[test]
    fn product_and_gradient_equal_the_dense_ones() {
        let mut entries =
            vec![MatrixEntry { row: 0, column: 3, value: 2.0 }, MatrixEntry { row: 0, column: 3, value: 0.5 }];
        entries.extend((0..40).map(|i| MatrixEntry { row: i * 7 % 5, column: i * 3 % 8, value: i as f32 / 10.0 }));
        let mut flat = vec![0f32; 40];
        for e in &entries {
            flat[(e.row * 8 + e.column) as usize] += e.value;
        }
        // In double precision, as what follows: the truth.
        let dense = Tensor::from_slice(&flat).view([5, 8]).to_kind(Kind::Double);
        let sparse = SparseMatrix::new(5, 8, entries, Device::Cpu).unwrap();
        let weight = Tensor::randn([5, 6], (Kind::Float, Device::Cpu));
        let start = Tensor::randn([8, 6], (Kind::Float, Device::Cpu));
        let run = |kind: Kind, product: &dyn Fn(&Tensor) -> Tensor| {
            let x = start.to_kind(kind).copy().set_requires_grad(true);
            let y = product(&x);
            (&y * weight.to_kind(kind)).sum(kind).backward();
            (y.detach(), x.grad())
        };
        let (y, gradient) = run(Kind::Float, &|x| sparse.matmul(x).unwrap());
        let (y_dense, gradient_dense) = run(Kind::Double, &|x| dense.matmul(x));
        // A value is the sum of two entries at most; with it as a factor, a row sums 8 products and a column 5.
        let close = |got: &Tensor, exact: &Tensor, sizes: &Tensor, roundings: u32| {
            let bounds = values(&(sizes * gamma(roundings)));
            let errors = values(&(got - exact).abs());
            assert!(errors.iter().zip(&bounds).all(|(error, bound)| error <= bound), "{errors:?} {bounds:?}");
        };
        let [start, weight] = [&start, &weight].map(|tensor| tensor.to_kind(Kind::Double).abs());
        close(&y, &y_dense, &dense.abs().matmul(&start), 2 + 8);
        close(&gradient, &gradient_dense, &dense.abs().tr().matmul(&weight), 2 + 5);
        // In double precision nothing but the values themselves, which are sums in float32, is rounded to float32.
        let (y, gradient) = run(Kind::Double, &|x| sparse.matmul(x).unwrap());
        assert!(y.kind() == Kind::Double && gradient.kind() == Kind::Double);
        close(&y, &y_dense, &dense.abs().matmul(&start), 2);
        close(&gradient, &gradient_dense, &dense.abs().tr().matmul(&weight), 2);
    }

    #[test]
    fn misfits_are_errors() {
        let entry = MatrixEntry { row: 5, column: 0, value: 1.0 };
        let error = SparseMatrix::new(5, 8, vec![entry], Device::Cpu).unwrap_err();
        assert_eq!(error.to_string(), "build a sparse matrix: entry (5, 0) lies outside of [5, 8]");
        let empty = SparseMatrix::new(5, 8, Vec::new(), Device::Cpu).unwrap();
        assert!(empty.matmul(&Tensor::zeros([7, 2], (Kind::Float, Device::Cpu))).is_err());
    }
}
