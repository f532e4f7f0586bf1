use tch::nn::{self, Init};

/// Linear layer as PyTorch Geometric initialises it: uniform within 1/√fan_in, weight and bias.
pub(super) fn uniform_linear(vs: nn::Path, inputs: i64, outputs: i64, bias: bool) -> nn::Linear {
    let bound = 1.0 / (inputs as f64).sqrt();
    let within = Init::Uniform { lo: -bound, up: bound };
    nn::linear(vs, inputs, outputs, nn::LinearConfig { ws_init: within, bs_init: Some(within), bias })
}

/// Linear layer with Xavier-uniform weights at ReLU's gain √2, and zero bias.
pub(super) fn xavier_linear(vs: nn::Path, inputs: i64, outputs: i64) -> nn::Linear {
    let bound = 2f64.sqrt() * (6.0 / (inputs + outputs) as f64).sqrt();
    let config = nn::LinearConfig {
        ws_init: Init::Uniform { lo: -bound, up: bound },
        bs_init: Some(Init::Const(0.0)),
        bias: true,
    };
    nn::linear(vs, inputs, outputs, config)
}

/// Normal with mean 0 and standard deviation 0.1.
pub(super) const NORMAL: Init = Init::Randn { mean: 0.0, stdev: 0.1 };
