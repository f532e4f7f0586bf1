use expctl_settings::Model;
use tch::Tensor;
use tch::nn::{self, Init};

use crate::models::array::{ArrayInputs, ValueInputs};
use crate::models::layers::{Activation, linear};
use crate::models::{ModelError, Output};

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
    /// As `model` says, over rows of `genes` values.
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
            return Err(ModelError::Size(format!(
                "{genes} genes, {hidden} channels, {layers} hidden layers and {classes} classes: at least 1 of each"
            )));
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
    pub fn forward(&self, inputs: &ArrayInputs<'_>) -> Result<Output, ModelError> {
        let (genes, found) = (self.weight.size()[0], inputs.batch.columns as i64);
        if genes != found {
            return Err(ModelError::Inputs(format!("rows of {genes} genes, not of {found}")));
        }
        let mut x = self.first(&inputs.values)?;
        for layer in &self.rest {
            x = linear(layer, &Activation::Relu.apply(&x)?)?;
        }
        Ok(Output { prediction: x, reconstruction: None })
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
            ValueInputs::Tokens { .. } => Err(ModelError::Inputs("all values of a row, not its tokens".to_owned())),
        }
    }
}
