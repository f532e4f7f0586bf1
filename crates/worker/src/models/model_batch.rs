use cell_loader::CellBatch;
use graph_loader::Batch;
use tch::{Device, Tensor};

use super::array::ArrayInputs;
use super::{Direct, Inputs, ModelError, Place};

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
    /// Tensors of it where `place` puts them; `masks` are those that the step made itself, `with_graphs` asks for the graph of each
    /// sample, or the edges that it lacks: both matter for samples of a graph alone.
    ///
    /// # Errors
    /// There is no room on the device.
    fn placed(&self, masks: &[Tensor], with_graphs: bool, place: &mut dyn Place)
    -> Result<ModelInputs<'_>, ModelError>;

    /// The same on `device`.
    ///
    /// # Errors
    /// There is no room on the device.
    fn inputs(&self, masks: &[Tensor], with_graphs: bool, device: Device) -> Result<ModelInputs<'_>, ModelError> {
        self.placed(masks, with_graphs, &mut Direct::to(device))
    }

    /// Number of samples.
    fn samples(&self) -> u64;
}

impl ModelBatch for Batch {
    fn placed(
        &self,
        masks: &[Tensor],
        with_graphs: bool,
        place: &mut dyn Place,
    ) -> Result<ModelInputs<'_>, ModelError> {
        Ok(ModelInputs::Samples(Inputs::placed(self, masks, with_graphs, place)?))
    }

    fn samples(&self) -> u64 {
        self.common.len() as u64
    }
}

impl ModelBatch for CellBatch {
    fn placed(&self, _: &[Tensor], _: bool, place: &mut dyn Place) -> Result<ModelInputs<'_>, ModelError> {
        Ok(ModelInputs::Rows(ArrayInputs::placed(self, None, place)?))
    }

    fn samples(&self) -> u64 {
        self.len() as u64
    }
}
