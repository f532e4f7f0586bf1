//! Networks that classify the rows of an array: an MLP over all values, a transformer over tokens.

use expctl_settings::Model;
use tch::nn::Init;
use tch::{Kind, TchError, Tensor, nn};

use crate::models::array::{ArrayInputs, ValueInputs};
use crate::models::layers::{Activation, linear};
use crate::models::{InputError, ModelError, ModelOutput, SizeError};

/// Code of the mode "sum" of libtorch's embedding bag.
const SUM: i64 = 0;

/// Sizes of an MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlpConfig {
    /// Values of a row.
    pub genes: i64,
    /// Channels of each hidden layer.
    pub hidden: i64,
    /// Hidden layers, at least one.
    pub layers: i64,
    /// Classes.
    pub classes: i64,
}

impl MlpConfig {
    /// The config of the settings `model`, over rows of `genes` values.
    pub fn from_model(model: &Model, genes: i64, classes: i64) -> Self {
        Self { genes, hidden: i64::from(model.hidden), layers: i64::from(model.layers), classes }
    }

    /// Number of parameters: (genes + 1) h + (layers − 1) (h + 1) h + (h + 1) classes.
    pub const fn parameters(&self) -> i64 {
        let Self { genes, hidden, layers, classes } = *self;
        (genes + 1) * hidden + (layers - 1) * (hidden + 1) * hidden + (hidden + 1) * classes
    }
}

/// Linear layers with ReLU between them, initialised as PyTorch's own.
///
/// The first layer has its weight as `[genes, hidden]`, so that a CSR batch reads it as an embedding bag: rows of the weight, weighted by
/// the values and summed, which costs as many products as there are values and makes no copy of them.
#[derive(Debug)]
pub struct Mlp {
    /// `[genes, hidden]`.
    weight: Tensor,
    /// `[hidden]`.
    bias: Tensor,
    rest: Vec<nn::Linear>,
}

impl Mlp {
    /// An MLP of layers `first`, `1`, `2`, …; the last one yields the classes.
    ///
    /// # Errors
    /// A size is not possible.
    pub fn new(vs: &nn::Path, config: &MlpConfig) -> Result<Self, ModelError> {
        let MlpConfig { genes, hidden, layers, classes } = *config;
        if genes < 1 || hidden < 1 || layers < 1 || classes < 1 {
            return Err(SizeError::Mlp { genes, hidden, layers, classes }.into());
        }
        let bound = 1.0 / (genes as f64).sqrt();
        let within = Init::Uniform { lo: -bound, up: bound };
        let first = vs / "first";
        let (weight, bias) = (first.var("weight", &[genes, hidden], within), first.var("bias", &[hidden], within));
        let rest = (1..=layers).map(|layer| {
            let outputs = if layer == layers { classes } else { hidden };
            nn::linear(vs / layer, hidden, outputs, nn::LinearConfig::default())
        });
        Ok(Self { weight, bias, rest: rest.collect() })
    }

    /// A value for each class, float32 `[B, classes]`.
    ///
    /// # Errors
    /// The rows have another number of genes, or libtorch fails.
    pub fn forward(&self, inputs: &ArrayInputs<'_>) -> Result<ModelOutput, ModelError> {
        let (genes, found) = (self.weight.size()[0], inputs.batch.columns as i64);
        if genes != found {
            return Err(InputError::RowWidth { expected: genes, found }.into());
        }
        let mut x = self.first(&inputs.values)?;
        for layer in &self.rest {
            x = linear(layer, &Activation::Relu.apply(&x)?)?;
        }
        Ok(ModelOutput { prediction: x, reconstruction: None })
    }

    /// float32 `[B, hidden]`.
    fn first(&self, values: &ValueInputs) -> Result<Tensor, ModelError> {
        match values {
            ValueInputs::Dense(rows) => Ok(self.bias.f_addmm(rows, &self.weight)?),
            ValueInputs::Sparse { crow, col, values } => {
                let (sums, ..) =
                    Tensor::f_embedding_bag(&self.weight, col, crow, false, SUM, false, Some(values), true)?;
                Ok(sums.f_add(&self.bias)?)
            }
            ValueInputs::Tokens { .. } => Err(InputError::NoValues.into()),
        }
    }
}

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
    /// Maximum number of tokens of a row, besides the one for the whole row.
    pub tokens: i64,
    /// Classes.
    pub classes: i64,
}

impl TransformerConfig {
    /// The config of the settings `model`, over rows of `genes` values.
    pub fn from_model(model: &Model, genes: i64, classes: i64) -> Self {
        let [hidden, heads, layers, tokens] = [model.hidden, model.heads, model.layers, model.tokens].map(i64::from);
        Self { genes, hidden, heads, layers, tokens, classes }
    }

    /// Number of parameters. In a layer: two norms (4 h), attention (4 h² + 4 h), feed-forward to 4 h and back (8 h² + 5 h);
    /// besides, a vector for each gene and for the row, two layers for the values (2 h + h² + h), a norm and the head.
    pub const fn parameters(&self) -> i64 {
        let Self { genes, hidden: h, layers, classes, .. } = *self;
        (genes + 1) * h + (h * h + 3 * h) + layers * (12 * h * h + 13 * h) + 2 * h + (h + 1) * classes
    }
}

/// A transformer encoder over the genes that a cell expresses (pre-norm, GELU, no dropout), after scPRINT (Kalfon et al.
/// 2025): a token is the sum of a vector for its gene and an encoding of its value, and a further token for the cell is what the classes are
/// predicted from. Here the vector of a gene is learned from scratch (scPRINT has it from a protein model), and there is one head.
#[derive(Debug)]
pub struct Transformer {
    /// `[genes, h]`.
    genes: Tensor,
    /// `[1, 1, h]`: the token of the cell.
    cell: Tensor,
    value_in: nn::Linear,
    value_out: nn::Linear,
    layers: Vec<TransformerLayer>,
    norm: LayerNorm,
    head: nn::Linear,
}

impl Transformer {
    /// A transformer with new parameters.
    ///
    /// # Errors
    /// A size is not possible.
    pub fn new(vs: &nn::Path, config: &TransformerConfig) -> Result<Self, ModelError> {
        let TransformerConfig { genes, hidden, heads, layers, tokens, classes } = *config;
        let smallest = [genes, hidden, heads, layers, tokens, classes].into_iter().min().unwrap_or_default();
        if smallest < 1 || hidden % heads != 0 {
            return Err(SizeError::Transformer { genes, hidden, heads, layers, tokens, classes }.into());
        }
        let normal = Init::Randn { mean: 0.0, stdev: 0.02 };
        let new_linear =
            |name: &str, inputs, outputs| nn::linear(vs / name, inputs, outputs, nn::LinearConfig::default());
        Ok(Self {
            genes: (vs / "genes").var("weight", &[genes, hidden], normal),
            cell: vs.var("cell", &[1, 1, hidden], normal),
            value_in: new_linear("value_in", 1, hidden),
            value_out: new_linear("value_out", hidden, hidden),
            layers: (0..layers).map(|i| TransformerLayer::new(&(vs / i), hidden, heads)).collect(),
            norm: LayerNorm::new(&(vs / "norm"), hidden),
            head: new_linear("head", hidden, classes),
        })
    }

    /// A value for each class, float32 `[B, classes]`.
    ///
    /// # Errors
    /// The rows have another number of genes or are not given by their tokens, or libtorch fails.
    pub fn forward(&self, inputs: &ArrayInputs<'_>) -> Result<ModelOutput, ModelError> {
        let (genes, found) = (self.genes.size()[0], inputs.batch.columns as i64);
        if genes != found {
            return Err(InputError::RowWidth { expected: genes, found }.into());
        }
        let ValueInputs::Tokens { genes, values, present } = &inputs.values else {
            return Err(InputError::NoTokens.into());
        };
        let (rows, device) = (inputs.batch_size, self.genes.device());
        let values = values.f_unsqueeze(2)?;
        let value = linear(&self.value_out, &Activation::Relu.apply(&linear(&self.value_in, &values)?)?)?;
        let embedded = Tensor::f_embedding(&self.genes, genes, -1, false, false)?.f_add(&value)?;
        let cell = self.cell.f_expand([rows, 1, -1], false)?;
        let mut x = Tensor::f_cat(&[cell, embedded], 1)?;
        let whole = Tensor::f_ones([rows, 1], (Kind::Bool, device))?;
        // [B, 1, 1, T + 1]: padding is not attended to.
        let attended = Tensor::f_cat(&[&whole, present], 1)?.f_unsqueeze(1)?.f_unsqueeze(1)?;
        for layer in &self.layers {
            x = layer.forward(&x, &attended)?;
        }
        let cell = self.norm.forward(&x.f_select(1, 0)?)?;
        Ok(ModelOutput { prediction: linear(&self.head, &cell)?, reconstruction: None })
    }
}

/// Attention over the tokens of a row, then two layers on each token.
#[derive(Debug)]
struct TransformerLayer {
    attention_norm: LayerNorm,
    /// Queries, keys and values.
    qkv: nn::Linear,
    out: nn::Linear,
    forward_norm: LayerNorm,
    expand: nn::Linear,
    contract: nn::Linear,
    heads: i64,
}

impl TransformerLayer {
    fn new(vs: &nn::Path, hidden: i64, heads: i64) -> Self {
        let new_linear =
            |name: &str, inputs, outputs| nn::linear(vs / name, inputs, outputs, nn::LinearConfig::default());
        Self {
            attention_norm: LayerNorm::new(&(vs / "attention_norm"), hidden),
            qkv: new_linear("qkv", hidden, 3 * hidden),
            out: new_linear("out", hidden, hidden),
            forward_norm: LayerNorm::new(&(vs / "forward_norm"), hidden),
            expand: new_linear("wide", hidden, 4 * hidden),
            contract: new_linear("narrow", 4 * hidden, hidden),
            heads,
        }
    }

    /// `x` float32 `[B, n, h]`; `attended` bool `[B, 1, 1, n]`.
    fn forward(&self, x: &Tensor, attended: &Tensor) -> Result<Tensor, TchError> {
        let size = x.size();
        let (rows, n, hidden) = (size[0], size[1], size[2]);
        let qkv = linear(&self.qkv, &self.attention_norm.forward(x)?)?;
        let parts = qkv.f_view([rows, n, 3, self.heads, hidden / self.heads])?.f_permute([2, 0, 3, 1, 4])?;
        let [query, key, value] = [parts.f_select(0, 0)?, parts.f_select(0, 1)?, parts.f_select(0, 2)?];
        let mixed = Tensor::f_scaled_dot_product_attention(
            &query,
            &key,
            &value,
            Some(attended),
            0.0,
            false,
            None::<f64>,
            false,
        )?;
        let mixed = mixed.f_permute([0, 2, 1, 3])?.f_reshape([rows, n, hidden])?;
        let x = x.f_add(&linear(&self.out, &mixed)?)?;
        let inner = Activation::Gelu.apply(&linear(&self.expand, &self.forward_norm.forward(&x)?)?)?;
        x.f_add(&linear(&self.contract, &inner)?)
    }
}

/// Mean 0 and variance 1 over the channels, then a weight and a bias for each.
#[derive(Debug)]
struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
}

impl LayerNorm {
    fn new(vs: &nn::Path, hidden: i64) -> Self {
        let weight = vs.var("weight", &[hidden], Init::Const(1.0));
        Self { weight, bias: vs.var("bias", &[hidden], Init::Const(0.0)) }
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor, TchError> {
        x.f_layer_norm(self.weight.size(), Some(&self.weight), Some(&self.bias), EPS, false)
    }
}
