//! Tests of private items: layers against the scripts that rebuild them in PyTorch, and steps on a GPU, or as on one.

mod dango_layers;
mod fake_gpu;
mod gpu;
mod layer_cases;
mod lazy_layers;
