use anndata_io::{AnnDataError, ArrayStore, CsrView, Form, Labels, ReadRows, Resident};

/// Rows in memory, all of as many values, at columns as even as can be.
#[derive(Debug)]
pub struct Memory {
    indptr: Vec<u64>,
    indices: Vec<i32>,
    data: Vec<f32>,
    genes: Vec<String>,
}

impl Memory {
    pub fn new(rows: usize, genes: usize, values: usize) -> Self {
        let gap = genes.checked_div(values).unwrap_or(1);
        let column = |place: usize| {
            let (row, number) = (place / values, place % values);
            let shift = (row.wrapping_mul(0x9E37_79B9) ^ number.wrapping_mul(0x85EB_CA6B)) >> 5;
            (number * gap + shift % gap) as i32
        };
        Self {
            indptr: (0..=rows).map(|row| (row * values) as u64).collect(),
            indices: (0..rows * values).map(column).collect(),
            data: (0..rows * values).map(|place| (place % 50 + 1) as f32).collect(),
            genes: (0..genes).map(|gene| gene.to_string()).collect(),
        }
    }

    /// All values, as bytes.
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.data)
    }
}

impl ArrayStore for Memory {
    fn len(&self) -> u64 {
        self.indptr.len() as u64 - 1
    }

    fn genes(&self) -> &[String] {
        &self.genes
    }

    fn form(&self) -> Form {
        Form::Sparse
    }

    fn stored_bytes(&self) -> u64 {
        0
    }

    /// Of any name: a hundred classes, one behind the other.
    fn labels(&self, _: &str) -> Result<Labels, AnnDataError> {
        let class = |row: u64| (row * 100 / self.len()) as i32;
        Ok(Labels {
            categories: (0..100).map(|class| class.to_string()).collect(),
            codes: (0..self.len()).map(class).collect(),
            ..Labels::default()
        })
    }

    fn numbers(&self, _: &str) -> Result<Vec<f64>, AnnDataError> {
        Ok((0..self.len()).map(|row| (row % 17) as f64).collect())
    }

    fn resident(&self) -> Option<Resident<'_>> {
        Some(Resident::Csr(CsrView { indptr: &self.indptr, indices: &self.indices, data: &self.data }))
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Err(AnnDataError::Other("all rows are in memory".into()))
    }
}
