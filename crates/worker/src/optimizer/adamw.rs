//! `AdamW` has the moments that libtorch's fused kernel updates, and names them by parameter for checkpoints.
//! Invariant: a parameter has moments from its first gradient on, so a restored optimizer continues with the same numbers.

use std::collections::BTreeMap;

use tch::{Kind, TchError, Tensor};
use torch_dist::{AdamwOptions, AdamwParameter, fused_adamw};

use crate::device::DeviceError;
use crate::state::StateError;

/// libtorch's fused AdamW, in one pass over parameters, gradients and moments, with a state that can be saved: tch hides the state of
/// libtorch's own class.
#[derive(Debug)]
pub struct AdamW {
    options: AdamwOptions,
    parameters: Vec<Parameter>,
}

#[derive(Debug)]
struct Parameter {
    name: String,
    tensor: Tensor,
    /// `None` until its first gradient.
    moments: Option<Moments>,
}

#[derive(Debug)]
struct Moments {
    /// float32 scalar, on the device of the others.
    steps: Tensor,
    mean: Tensor,
    square: Tensor,
}

impl AdamW {
    /// β = (0.9, 0.999), ε = 1e-8: the defaults of PyTorch.
    pub fn new(parameters: Vec<(String, Tensor)>, learning_rate: f64, weight_decay: f64) -> Self {
        let parameters =
            parameters.into_iter().map(|(name, tensor)| Parameter { name, tensor, moments: None }).collect();
        let options = AdamwOptions { learning_rate, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay };
        Self { options, parameters }
    }

    /// The learning rate of the steps from here on.
    pub fn set_learning_rate(&mut self, rate: f64) {
        self.options.learning_rate = rate;
    }

    /// Step every parameter that has a gradient, unless `overflow`, a float32 scalar on their device, is not 0.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn step(&mut self, overflow: Option<&Tensor>) -> Result<(), DeviceError> {
        let failed = |e: TchError| DeviceError::from_tch("step the parameters", &e);
        let mut gradients = Vec::with_capacity(self.parameters.len());
        for parameter in &mut self.parameters {
            gradients.push(parameter.gradient().map_err(failed)?);
        }
        let parts = self.parameters.iter().zip(&gradients).filter_map(|(parameter, gradient)| {
            let Moments { steps, mean, square } = parameter.moments.as_ref()?;
            Some(AdamwParameter { parameter: &parameter.tensor, gradient: gradient.as_ref()?, mean, square, steps })
        });
        let parts: Vec<AdamwParameter<'_>> = parts.collect();
        if parts.is_empty() { Ok(()) } else { Ok(fused_adamw(&parts, self.options, overflow)?) }
    }

    /// The state by name.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        let mut state = Vec::new();
        for Parameter { name, moments, .. } in &self.parameters {
            if let Some(Moments { steps, mean, square }) = moments {
                state.push((format!("adamw/steps/{name}"), steps.to_kind(Kind::Int64).view([1])));
                state.push((format!("adamw/mean/{name}"), mean.shallow_clone()));
                state.push((format!("adamw/square/{name}"), square.shallow_clone()));
            }
        }
        state
    }

    /// Restore a state.
    ///
    /// # Errors
    /// A tensor has another shape than its parameter.
    pub fn restore(&mut self, state: &BTreeMap<String, Tensor>) -> Result<(), StateError> {
        for Parameter { name, tensor, moments } in &mut self.parameters {
            let moment = |key: &str| state.get(&format!("adamw/{key}/{name}"));
            let (Some(steps), Some(mean), Some(square)) = (moment("steps"), moment("mean"), moment("square")) else {
                *moments = None;
                continue;
            };
            if mean.size() != tensor.size() || square.size() != tensor.size() || steps.numel() != 1 {
                return Err(StateError::MomentShape { name: name.clone() });
            }
            let restored = || -> Result<Moments, TchError> {
                let device = tensor.device();
                let on_device = |stored: &Tensor| stored.copy().f_to_device(device);
                Ok(Moments {
                    steps: on_device(&steps.f_to_kind(Kind::Float)?.f_view([] as [i64; 0])?)?,
                    mean: on_device(mean)?,
                    square: on_device(square)?,
                })
            };
            *moments = Some(restored().map_err(|source| StateError::Moments { name: name.clone(), source })?);
        }
        Ok(())
    }
}

impl Parameter {
    /// The gradient, if there is one; then the parameter has moments as well.
    fn gradient(&mut self) -> Result<Option<Tensor>, TchError> {
        let gradient = self.tensor.f_grad()?;
        if !gradient.defined() {
            return Ok(None);
        }
        if self.moments.is_none() {
            let zeros = || self.tensor.detach().f_zeros_like();
            let steps = Tensor::f_zeros([] as [i64; 0], (Kind::Float, self.tensor.device()))?;
            self.moments = Some(Moments { steps, mean: zeros()?, square: zeros()? });
        }
        Ok(Some(gradient))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_rounding::{NEIGHBOURS, assert_rounding, distance, floor, nudged, values};
    use tch::nn::{self, OptimizerConfig};
    use tch::{Device, Kind};

    /// Values that two parameters start with. Not drawn: tests beside this one draw, too.
    fn start() -> [Tensor; 2] {
        let values = |n: i64| (Tensor::arange(n, (Kind::Float, Device::Cpu)) * 1.7).sin() * 0.1;
        [values(15).view([5, 3]), values(3)]
    }

    /// Two parameters, of which the second has a gradient in every other step only.
    fn model(vs: &nn::VarStore) -> [Tensor; 2] {
        let [a, b] = start();
        [vs.root().var_copy("a", &a), vs.root().var_copy("b", &b)]
    }

    /// In the precision of the parameters, with inputs that float32 holds.
    fn backward([a, b]: &[Tensor; 2], step: i64) {
        let x = (Tensor::arange(20, (Kind::Float, Device::Cpu)).view([4, 5]) + step).sin().to_kind(a.kind());
        let y = x.matmul(a);
        let y = if step % 2 == 0 { y * b } else { y };
        (y - 0.3).square().mean(None).backward();
    }

    const STEPS: i64 = 20;

    /// All entries of both parameters after each step by libtorch's own class, in `kind`.
    fn by_libtorch(start: &[Tensor; 2], kind: Kind, weight_decay: f64) -> Vec<Vec<f64>> {
        let mut vs = nn::VarStore::new(Device::Cpu);
        let parameters = [("a", &start[0]), ("b", &start[1])].map(|(name, values)| vs.root().var_copy(name, values));
        // A store makes float32 variables, whatever it copies.
        vs.set_kind(kind);
        let mut torch = nn::AdamW { wd: weight_decay, ..nn::AdamW::default() }.build(&vs, 0.01).unwrap();
        let mut steps = Vec::new();
        for step in 0..STEPS {
            backward(&parameters, step);
            torch.step();
            torch.zero_grad();
            steps.push(parameters.iter().flat_map(values).collect());
        }
        steps
    }

    #[test]
    fn it_steps_as_libtorch_does() {
        for weight_decay in [0.0, 0.1] {
            let exact = by_libtorch(&start(), Kind::Double, weight_decay);
            let peers: Vec<Vec<f64>> = (0..NEIGHBOURS)
                .map(|neighbour| {
                    let near = start().map(|values| nudged(&values, neighbour));
                    let [single, double] =
                        [Kind::Float, Kind::Double].map(|kind| by_libtorch(&near, kind, weight_decay));
                    single.iter().zip(&double).map(|(single, double)| distance(single, double)).collect()
                })
                .collect();
            let vs = nn::VarStore::new(Device::Cpu);
            let parameters = model(&vs);
            let mut adamw = AdamW::new(crate::models::named_parameters(&vs), 0.01, weight_decay);
            let mut zero = nn::sgd(0.0, 0.0, 0.0, false).build(&vs, 1.0).unwrap();
            for step in 0..STEPS {
                backward(&parameters, step);
                adamw.step(None).unwrap();
                zero.zero_grad();
                let (got, at): (Vec<f64>, _) = (parameters.iter().flat_map(values).collect(), step as usize);
                let peers: Vec<f64> = peers.iter().map(|errors| errors[at]).collect();
                // Decay and step round a parameter once each.
                let floor = floor(&exact[at], 2 * (at + 1));
                assert_rounding(&format!("step {step}"), distance(&got, &exact[at]), &peers, floor);
            }
            assert!((&parameters[0] - &start()[0]).abs().max().double_value(&[]) > 0.05, "they moved");
        }
    }

    #[test]
    fn a_state_that_was_put_back_goes_on_bit_for_bit() {
        let run = |cut: Option<i64>| {
            let vs = nn::VarStore::new(Device::Cpu);
            let parameters = model(&vs);
            let mut adamw = AdamW::new(crate::models::named_parameters(&vs), 0.01, 0.1);
            let mut zero = nn::sgd(0.0, 0.0, 0.0, false).build(&vs, 1.0).unwrap();
            for step in 1..12 {
                if cut == Some(step) {
                    let state = adamw.state().into_iter().map(|(n, t)| (n, t.copy())).collect();
                    adamw = AdamW::new(crate::models::named_parameters(&vs), 0.01, 0.1);
                    adamw.restore(&state).unwrap();
                }
                backward(&parameters, step);
                adamw.step(None).unwrap();
                zero.zero_grad();
            }
            crate::models::parameters_digest(&crate::models::named_parameters(&vs)).unwrap()
        };
        let whole = run(None);
        // At step 2 the second parameter has no state yet.
        assert!([1, 2, 7].into_iter().all(|cut| run(Some(cut)) == whole));
    }

    #[test]
    fn a_state_of_another_shape_is_refused() {
        let vs = nn::VarStore::new(Device::Cpu);
        let parameters = model(&vs);
        let mut adamw = AdamW::new(crate::models::named_parameters(&vs), 0.01, 0.0);
        backward(&parameters, 0);
        adamw.step(None).unwrap();
        let mut state: BTreeMap<String, Tensor> = adamw.state().into_iter().collect();
        state.insert("adamw/mean/b".into(), Tensor::zeros([4], (Kind::Float, Device::Cpu)));
        assert!(adamw.restore(&state).unwrap_err().to_string().contains("state of b"));
    }
}
