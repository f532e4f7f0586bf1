//! `samples.safetensors`: int32 `genes` `[Σk]`, the perturbed genes of all samples, and int64 `ptr` `[N + 1]`, where each
//! sample's start.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::Dataset;
use crate::PipelineError;

/// File name inside a data set.
pub(crate) const SAMPLES_FILE: &str = "samples.safetensors";

/// The perturbed genes of every sample of a data set, without its records: 4 MB where those are gigabytes of JSON.
///
/// Invariant: `ptr` starts with 0, never falls, and ends with the length of `genes`; the genes of a sample ascend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleGenes {
    genes: Vec<i32>,
    ptr: Vec<i64>,
}

impl SampleGenes {
    /// From each sample's genes, ascending.
    pub fn new<'a>(samples: impl IntoIterator<Item = &'a [i32]>) -> Self {
        let mut all = Self { genes: Vec::new(), ptr: vec![0] };
        for genes in samples {
            all.genes.extend_from_slice(genes);
            all.ptr.push(all.genes.len() as i64);
        }
        all
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.ptr.len().saturating_sub(1) as u64
    }

    /// No samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Genes of sample `index`, which is below [`Self::len`], ascending.
    pub fn of(&self, index: u64) -> &[i32] {
        let index = index as usize;
        &self.genes[self.ptr[index] as usize..self.ptr[index + 1] as usize]
    }

    /// Write the file.
    pub(crate) fn write(&self, path: &Path) -> Result<(), PipelineError> {
        let genes: Vec<u8> = self.genes.iter().flat_map(|gene| gene.to_le_bytes()).collect();
        let ptr: Vec<u8> = self.ptr.iter().flat_map(|at| at.to_le_bytes()).collect();
        let view = |dtype, len, bytes| TensorView::new(dtype, vec![len], bytes);
        let bytes = view(Dtype::I32, self.genes.len(), &genes)
            .and_then(|genes| Ok([("genes", genes), ("ptr", view(Dtype::I64, self.ptr.len(), &ptr)?)]))
            .and_then(|views| {
                let about = HashMap::from([("format".to_owned(), "expctl samples 1".to_owned())]);
                safetensors::serialize(views, Some(about))
            })
            .map_err(|e| PipelineError::damaged(path, e))?;
        std::fs::write(path, bytes).map_err(PipelineError::io("write", path))
    }

    /// Read the file of a data set with this many genes.
    fn read(path: &Path, num_genes: u64) -> Result<Self, PipelineError> {
        let bytes = std::fs::read(path).map_err(PipelineError::io("read", path))?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|e| PipelineError::damaged(path, e))?;
        let data = |name: &str, dtype| {
            let tensor = tensors.tensor(name).map_err(|e| PipelineError::damaged(path, format!("{name}: {e}")))?;
            if tensor.dtype() != dtype || tensor.shape().len() != 1 {
                return Err(PipelineError::damaged(path, format!("{name} is not a list of {dtype:?}")));
            }
            Ok(tensor.data())
        };
        let genes: Vec<i32> =
            data("genes", Dtype::I32)?.as_chunks::<4>().0.iter().map(|word| i32::from_le_bytes(*word)).collect();
        let ptr: Vec<i64> =
            data("ptr", Dtype::I64)?.as_chunks::<8>().0.iter().map(|word| i64::from_le_bytes(*word)).collect();
        if ptr.first() != Some(&0) || ptr.last() != Some(&(genes.len() as i64)) || !ptr.is_sorted() {
            return Err(PipelineError::damaged(path, "ptr does not divide genes"));
        }
        let all = Self { genes, ptr };
        for index in 0..all.len() {
            let genes = all.of(index);
            let known = |gene: &i32| u64::try_from(*gene).is_ok_and(|gene| gene < num_genes);
            if !genes.iter().all(known) || !genes.windows(2).all(|pair| pair[0] < pair[1]) {
                let reason = format!("sample {index}: {genes:?} are not ascending genes below {num_genes}");
                return Err(PipelineError::damaged(path, reason));
            }
        }
        Ok(all)
    }
}

impl Dataset {
    /// The perturbed genes of every sample.
    ///
    /// # Errors
    /// The file is missing or damaged, or has another number of samples than the manifest says.
    pub fn sample_genes(&self) -> Result<SampleGenes, PipelineError> {
        let path = self.folder().join(SAMPLES_FILE);
        let all = SampleGenes::read(&path, self.manifest().genes.count).map_err(|e| self.advise(e))?;
        let expected = self.manifest().samples.count;
        if all.len() != expected {
            let reason = format!("{} samples, but the manifest says {expected}", all.len());
            return Err(self.advise(PipelineError::damaged(&path, reason)));
        }
        Ok(all)
    }
}
