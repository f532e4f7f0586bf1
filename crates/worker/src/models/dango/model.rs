use tch::{Tensor, nn};

use super::DangoConfig;
use super::graph::Graph;
use super::init::{NORMAL, xavier_linear};
use super::meta::MetaEmbedding;
use super::reconstruction::Reconstruction;
use super::sage::SageConv;
use crate::models::hyper_sagnn::{HyperSagnn, Make};
use crate::models::linear::Activation;
use crate::models::{EdgeList, ModelError, Output};

/// What belongs to one edge type.
#[derive(Debug)]
struct Encoder {
    graph: Graph,
    first: SageConv,
    second: SageConv,
    reconstruction: Reconstruction,
}

/// The DANGO model.
#[derive(Debug)]
pub struct Dango {
    embedding: Tensor,
    encoders: Vec<Encoder>,
    meta: MetaEmbedding,
    hyper_sagnn: HyperSagnn,
    absent_weight: f64,
}

impl Dango {
    /// Build the model; its parameters go into `vs`, drawn from libtorch's generator (call [`tch::manual_seed`] before).
    ///
    /// # Errors
    /// A size is not possible, or an edge names a gene that does not exist.
    pub fn new(vs: &nn::Path, config: &DangoConfig, graphs: &[EdgeList]) -> Result<Self, ModelError> {
        config.check(graphs)?;
        let DangoConfig { num_genes, hidden, heads, layers, absent_weight } = *config;
        let encoders = graphs
            .iter()
            .enumerate()
            .map(|(i, list)| {
                let vs = vs / "encoders" / i;
                Ok(Encoder {
                    graph: Graph::new(list, num_genes, absent_weight != 1.0, vs.device())?,
                    first: SageConv::new(&vs / "conv1", hidden),
                    second: SageConv::new(&vs / "conv2", hidden),
                    reconstruction: Reconstruction::new(&vs / "reconstruction", hidden, num_genes),
                })
            })
            .collect::<Result<_, ModelError>>()?;
        let make = Make { activation: Activation::Relu, moves_lone_gene: true, linear: &xavier_linear };
        Ok(Self {
            embedding: vs.var("embedding", &[num_genes, hidden], NORMAL),
            encoders,
            meta: MetaEmbedding::new(vs / "meta", hidden),
            hyper_sagnn: HyperSagnn::new(&(vs / "hyper_sagnn"), hidden, heads, layers, make),
            absent_weight,
        })
    }

    /// Predict the interaction of the genes perturbed in each of `batch` samples.
    ///
    /// `genes` int64 `[Σk]` are the perturbed genes of all samples, `sample` int64 `[Σk]` says which sample each belongs
    /// to, ascending. The reconstruction loss does not depend on them; it is left out unless `reconstruct` is set, and
    /// the reconstruction heads then get no gradient.
    ///
    /// # Errors
    /// A gene is out of range, `sample` holds a number that is not below `batch` or is not as long as `genes`, or libtorch
    /// has no memory.
    pub fn forward(
        &self,
        genes: &Tensor,
        sample: &Tensor,
        batch: i64,
        reconstruct: bool,
    ) -> Result<Output, ModelError> {
        let mut embeddings = Vec::with_capacity(self.encoders.len());
        let mut losses = Vec::new();
        for encoder in &self.encoders {
            let h = encoder.first.forward(&self.embedding, &encoder.graph.mean_of_sources)?.relu();
            let h = encoder.second.forward(&h, &encoder.graph.mean_of_sources)?.relu();
            if reconstruct {
                losses.push(encoder.reconstruction.loss(&h, &encoder.graph, self.absent_weight)?);
            }
            // Only the perturbed genes go on, so only theirs are weighed: the same values, N / Σk times cheaper.
            embeddings.push(h.f_index_select(0, genes)?);
        }
        let genes = self.meta.forward(&Tensor::f_stack(&embeddings, 1)?);
        Ok(Output {
            prediction: self.hyper_sagnn.forward(&genes, sample, batch)?,
            reconstruction: if reconstruct { Some(Tensor::f_stack(&losses, 0)?.mean(tch::Kind::Float)) } else { None },
        })
    }
}
