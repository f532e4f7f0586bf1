use expctl_record::Model;
use tch::nn::{self, Init};
use tch::{Kind, TchError, Tensor};

use super::{ArrayInputs, ValueInputs};
use crate::models::linear::{Activation, apply};
use crate::models::{ModelError, Output};

/// Added to variances.
const EPS: f64 = 1e-5;

/// Sizes of a transformer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransformerConfig {
    /// Genes that can be tokens.
    pub genes: i64,
    /// Channels; a multiple of `heads`.
    pub hidden: i64,
    /// Attention heads.
    pub heads: i64,
    /// Layers.
    pub layers: i64,
    /// The most tokens of a row, besides the one for the whole row.
    pub tokens: i64,
    /// Classes.
    pub classes: i64,
}

impl TransformerConfig {
    /// As `model` says, over rows of `genes` values.
    pub fn of(model: &Model, genes: i64, classes: i64) -> Self {
        let [hidden, heads, layers, tokens] = [model.hidden, model.heads, model.layers, model.tokens].map(i64::from);
        Self { genes, hidden, heads, layers, tokens, classes }
    }

    /// Number of parameters. Of a layer: two norms (4 h), attention (4 h² + 4 h), feed-forward to 4 h and back (8 h² + 5 h);
    /// besides, a vector for each gene and for the row, two layers for the values (2 h + h² + h), a norm and the head.
    pub const fn parameters(&self) -> i64 {
        let Self { genes, hidden: h, layers, classes, .. } = *self;
        (genes + 1) * h + (h * h + 3 * h) + layers * (12 * h * h + 13 * h) + 2 * h + (h + 1) * classes
    }
}

/// A transformer encoder over the genes that a cell expresses (pre-norm, GELU, no dropout), after scPRINT (Kalfon et al.
/// 2025): a token is the sum of a vector for its gene and an encoding of its value, and a further token for the cell is
/// what classes are told from. Here that vector is learned from scratch (scPRINT has it from a protein model), and there is
/// one head.
#[derive(Debug)]
pub struct Transformer {
    /// `[genes, h]`.
    genes: Tensor,
    /// `[1, 1, h]`: the token of the cell.
    cell: Tensor,
    value_in: nn::Linear,
    value_out: nn::Linear,
    layers: Vec<Layer>,
    norm: Norm,
    head: nn::Linear,
}

impl Transformer {
    /// A transformer with new parameters.
    ///
    /// # Errors
    /// A size is not possible.
    pub fn new(vs: &nn::Path, config: &TransformerConfig) -> Result<Self, ModelError> {
        let TransformerConfig { genes, hidden, heads, layers, tokens, classes } = *config;
        let least = [genes, hidden, heads, layers, tokens, classes].into_iter().min().unwrap_or_default();
        if least < 1 || hidden % heads != 0 {
            return Err(ModelError::Size(format!(
                "{genes} genes, {hidden} channels, {heads} heads, {layers} layers, {tokens} tokens and {classes} classes: \
                 at least 1 of each, and channels a multiple of heads"
            )));
        }
        let normal = Init::Randn { mean: 0.0, stdev: 0.02 };
        let linear = |name: &str, inputs, outputs| nn::linear(vs / name, inputs, outputs, nn::LinearConfig::default());
        Ok(Self {
            genes: (vs / "genes").var("weight", &[genes, hidden], normal),
            cell: vs.var("cell", &[1, 1, hidden], normal),
            value_in: linear("value_in", 1, hidden),
            value_out: linear("value_out", hidden, hidden),
            layers: (0..layers).map(|i| Layer::new(&(vs / i), hidden, heads)).collect(),
            norm: Norm::new(&(vs / "norm"), hidden),
            head: linear("head", hidden, classes),
        })
    }

    /// A value for each class, float32 `[B, classes]`.
    ///
    /// # Errors
    /// The rows have another number of genes or are not given by their tokens, or libtorch refuses.
    pub fn forward(&self, inputs: &ArrayInputs<'_>) -> Result<Output, ModelError> {
        let (genes, found) = (self.genes.size()[0], inputs.batch.columns as i64);
        if genes != found {
            return Err(ModelError::Inputs(format!("rows of {genes} genes, not of {found}")));
        }
        let ValueInputs::Tokens { genes, values, there } = &inputs.values else {
            return Err(ModelError::Inputs("the tokens of each row".to_owned()));
        };
        let (rows, device) = (inputs.batch_size, self.genes.device());
        let values = values.f_unsqueeze(2)?;
        let value = apply(&self.value_out, &Activation::Relu.apply(&apply(&self.value_in, &values)?)?)?;
        let embedded = Tensor::f_embedding(&self.genes, genes, -1, false, false)?.f_add(&value)?;
        let cell = self.cell.f_expand([rows, 1, -1], false)?;
        let mut x = Tensor::f_cat(&[cell, embedded], 1)?;
        let whole = Tensor::f_ones([rows, 1], (Kind::Bool, device))?;
        // [B, 1, 1, T + 1]: every token sees those that are there.
        let seen = Tensor::f_cat(&[&whole, there], 1)?.f_unsqueeze(1)?.f_unsqueeze(1)?;
        for layer in &self.layers {
            x = layer.forward(&x, &seen)?;
        }
        let cell = self.norm.forward(&x.f_select(1, 0)?)?;
        Ok(Output { prediction: apply(&self.head, &cell)?, reconstruction: None })
    }
}

/// Attention over the tokens of a row, then two layers on each of them.
#[derive(Debug)]
struct Layer {
    attention_norm: Norm,
    /// Queries, keys and values.
    qkv: nn::Linear,
    out: nn::Linear,
    forward_norm: Norm,
    wide: nn::Linear,
    narrow: nn::Linear,
    heads: i64,
}

impl Layer {
    fn new(vs: &nn::Path, hidden: i64, heads: i64) -> Self {
        let linear = |name: &str, inputs, outputs| nn::linear(vs / name, inputs, outputs, nn::LinearConfig::default());
        Self {
            attention_norm: Norm::new(&(vs / "attention_norm"), hidden),
            qkv: linear("qkv", hidden, 3 * hidden),
            out: linear("out", hidden, hidden),
            forward_norm: Norm::new(&(vs / "forward_norm"), hidden),
            wide: linear("wide", hidden, 4 * hidden),
            narrow: linear("narrow", 4 * hidden, hidden),
            heads,
        }
    }

    /// `x` float32 `[B, n, h]`; `seen` bool `[B, 1, 1, n]`.
    fn forward(&self, x: &Tensor, seen: &Tensor) -> Result<Tensor, TchError> {
        let size = x.size();
        let (rows, n, hidden) = (size[0], size[1], size[2]);
        let qkv = apply(&self.qkv, &self.attention_norm.forward(x)?)?;
        let parts = qkv.f_view([rows, n, 3, self.heads, hidden / self.heads])?.f_permute([2, 0, 3, 1, 4])?;
        let [query, key, value] = [parts.f_select(0, 0)?, parts.f_select(0, 1)?, parts.f_select(0, 2)?];
        let mixed =
            Tensor::f_scaled_dot_product_attention(&query, &key, &value, Some(seen), 0.0, false, None::<f64>, false)?;
        let mixed = mixed.f_permute([0, 2, 1, 3])?.f_reshape([rows, n, hidden])?;
        let x = x.f_add(&apply(&self.out, &mixed)?)?;
        let inner = Activation::Gelu.apply(&apply(&self.wide, &self.forward_norm.forward(&x)?)?)?;
        x.f_add(&apply(&self.narrow, &inner)?)
    }
}

/// Mean 0 and variance 1 over the channels, then a weight and a bias for each.
#[derive(Debug)]
struct Norm {
    weight: Tensor,
    bias: Tensor,
}

impl Norm {
    fn new(vs: &nn::Path, hidden: i64) -> Self {
        let weight = vs.var("weight", &[hidden], Init::Const(1.0));
        Self { weight, bias: vs.var("bias", &[hidden], Init::Const(0.0)) }
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor, TchError> {
        x.f_layer_norm(self.weight.size(), Some(&self.weight), Some(&self.bias), EPS, false)
    }
}
