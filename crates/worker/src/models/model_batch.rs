use expctl_pipeline::array::ArrayBatch;
use expctl_pipeline::collate::Batch;
use tch::{Device, Tensor};

use super::array::ArrayInputs;
use super::{Inputs, ModelError};

/// What a model reads of one batch.
#[derive(Debug)]
pub enum ModelInputs<'batch> {
    /// Samples of a graph.
    Samples(Inputs<'batch>),
    /// Rows of an array.
    Rows(ArrayInputs<'batch>),
}

impl ModelInputs<'_> {
    /// What is predicted: float32 `[B]` of samples, int64 `[B]` of rows, where -1 is not known.
    ///
    /// # Errors
    /// The batch has no labels.
    pub fn labels(&self) -> Result<&Tensor, ModelError> {
        match self {
            Self::Samples(inputs) => Ok(&inputs.labels),
            Self::Rows(inputs) => inputs.classes.as_ref().ok_or_else(|| ModelError::Inputs("array.labels".to_owned())),
        }
    }
}

/// A batch of whatever a trial reads.
pub trait ModelBatch {
    /// Tensors of it; `masks` are those that the step made itself, `with_graphs` asks for the graph of each sample: both matter
    /// for samples of a graph alone.
    ///
    /// # Errors
    /// There is no room on the device.
    fn inputs(&self, masks: &[Tensor], with_graphs: bool, device: Device) -> Result<ModelInputs<'_>, ModelError>;

    /// Number of samples.
    fn samples(&self) -> u64;
}

impl ModelBatch for Batch {
    fn inputs(&self, masks: &[Tensor], with_graphs: bool, device: Device) -> Result<ModelInputs<'_>, ModelError> {
        Ok(ModelInputs::Samples(Inputs::of(self, masks, with_graphs, device)?))
    }

    fn samples(&self) -> u64 {
        self.common.len() as u64
    }
}

impl ModelBatch for ArrayBatch {
    fn inputs(&self, _: &[Tensor], _: bool, device: Device) -> Result<ModelInputs<'_>, ModelError> {
        Ok(ModelInputs::Rows(ArrayInputs::of(self, device)?))
    }

    fn samples(&self) -> u64 {
        self.len() as u64
    }
}
