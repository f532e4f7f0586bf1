use expctl_record::{Implementation, LocalHead};
use tch::{Device, TchError, Tensor, nn};

use super::config::LazyConfig;
use super::parameters::Parameters;
use super::replicated::Replicated;
use super::shared::{Operations, Shared};
use crate::models::wide::wide;
use crate::models::{EdgeList, Inputs, ModelError, Output};

/// The lazy model.
#[derive(Debug)]
pub struct Lazy {
    config: LazyConfig,
    parameters: Parameters,
    encoder: Encoder,
}

/// How graphs are encoded.
#[derive(Debug)]
enum Encoder {
    Replicated(Replicated),
    Shared(Shared),
    Operations(Operations),
}

/// What an encoder makes of the wild type and of a batch of B samples.
#[derive(Debug)]
pub(super) struct Encoded {
    /// float32 `[N, h]`: the wild type's genes.
    pub(super) genes: Tensor,
    /// float32 `[1, h]`: the readout of the wild type.
    pub(super) wild_type: Tensor,
    /// float32 `[B, h]`: the readouts of the samples.
    pub(super) samples: Tensor,
}

impl Lazy {
    /// Build the model; its parameters go into `vs`, drawn from libtorch's generator (call [`tch::manual_seed`] before).
    /// `graphs` are the edge types that it reads; `places` says where each stands among those of a batch. What computes is
    /// [`Implementation::running`] on the device of `vs`.
    ///
    /// # Errors
    /// A size is not possible, an edge names a gene that does not exist, or there is no memory.
    pub fn new(
        vs: &nn::Path,
        config: &LazyConfig,
        implementation: Implementation,
        graphs: &[EdgeList],
        places: &[usize],
    ) -> Result<Self, ModelError> {
        config.check(graphs)?;
        let types: Vec<&str> = graphs.iter().map(|list| list.name).collect();
        let parameters = Parameters::new(vs, config, &types);
        let (genes, device) = (config.num_genes, vs.device());
        let encoder = match implementation.running(device == Device::Cpu) {
            Implementation::Replicated => Encoder::Replicated(Replicated::new(graphs, places, device)?),
            Implementation::Shared => Encoder::Shared(Shared::new(graphs, places, genes)?),
            Implementation::Operations => Encoder::Operations(Operations::new(graphs, places, genes, device)?),
        };
        Ok(Self { config: *config, parameters, encoder })
    }

    /// Whether some parameters get no gradient: those of a local head whose term is 0.
    pub fn leaves_out(&self) -> bool {
        self.config.local_head == LocalHead::Zero
    }

    /// Predictions for a batch. Its memory is read, never written.
    ///
    /// # Errors
    /// The batch does not have what the implementation reads, a gene is out of range, or libtorch has no memory.
    pub fn forward(&self, inputs: &Inputs<'_>) -> Result<Output, ModelError> {
        let encoded = self.encode(inputs)?;
        Ok(Output { prediction: self.predict(&encoded, inputs)?, reconstruction: None })
    }

    pub(super) fn encode(&self, inputs: &Inputs<'_>) -> Result<Encoded, ModelError> {
        match &self.encoder {
            Encoder::Replicated(replicated) => replicated.forward(&self.parameters, inputs),
            Encoder::Shared(shared) => shared.forward(&self.parameters, inputs),
            Encoder::Operations(operations) => operations.forward(&self.parameters, inputs),
        }
    }

    /// The heads: float32 `[B]`, float64 where the parameters are.
    pub(super) fn predict(&self, encoded: &Encoded, inputs: &Inputs<'_>) -> Result<Tensor, TchError> {
        let apart = encoded.wild_type.f_sub(&encoded.samples)?;
        let global = wide(&self.parameters.global_head.forward(&apart)?.f_squeeze_dim(1)?)?;
        let Some(head) = &self.parameters.local_head else { return Ok(global) };
        let batch = inputs.batch_size;
        let rows = || encoded.genes.f_index_select(0, &inputs.genes);
        let global = global.f_mul_scalar(0.5)?;
        let local = match self.config.local_head {
            LocalHead::Full => head.forward(&rows()?, &inputs.gene_sample, batch)?,
            LocalHead::Pooled => head.forward(&rows()?, &inputs.gene_sample.f_zeros_like()?, batch)?,
            LocalHead::Zero | LocalHead::None => return Ok(global),
        };
        global.f_add(&local.f_mul_scalar(0.5)?)
    }
}
