use std::collections::BTreeMap;

use tch::{TchError, Tensor, no_grad};

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;
const EPSILON: f64 = 1e-8;

/// AdamW by PyTorch's formulas, in as many operations, with a state that can be kept: tch hides that of libtorch's own.
#[derive(Debug)]
pub struct AdamW {
    learning_rate: f64,
    weight_decay: f64,
    parameters: Vec<Parameter>,
}

#[derive(Debug)]
struct Parameter {
    name: String,
    tensor: Tensor,
    /// None until its first gradient.
    moments: Option<Moments>,
}

#[derive(Debug)]
struct Moments {
    steps: i64,
    mean: Tensor,
    square: Tensor,
}

impl AdamW {
    /// β = (0.9, 0.999), ε = 1e-8, as PyTorch has them.
    pub fn new(parameters: Vec<(String, Tensor)>, learning_rate: f64, weight_decay: f64) -> Self {
        let parameters =
            parameters.into_iter().map(|(name, tensor)| Parameter { name, tensor, moments: None }).collect();
        Self { learning_rate, weight_decay, parameters }
    }

    /// The learning rate of the steps from here on.
    pub fn set_learning_rate(&mut self, rate: f64) {
        self.learning_rate = rate;
    }

    /// Step every parameter that has a gradient.
    pub fn step(&mut self) -> Result<(), TchError> {
        let Self { learning_rate, weight_decay, parameters } = self;
        no_grad(|| parameters.iter_mut().try_for_each(|p| p.step(*learning_rate, *weight_decay)))
    }

    /// The state by name.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        let mut state = Vec::new();
        for Parameter { name, moments, .. } in &self.parameters {
            if let Some(Moments { steps, mean, square }) = moments {
                state.push((format!("adamw/steps/{name}"), Tensor::from_slice(&[*steps])));
                state.push((format!("adamw/mean/{name}"), mean.shallow_clone()));
                state.push((format!("adamw/square/{name}"), square.shallow_clone()));
            }
        }
        state
    }

    /// Take over a state.
    ///
    /// # Errors
    /// A tensor has another shape; the message names it.
    pub fn restore(&mut self, state: &BTreeMap<String, Tensor>) -> Result<(), String> {
        for Parameter { name, tensor, moments } in &mut self.parameters {
            let part = |part: &str| state.get(&format!("adamw/{part}/{name}"));
            let (Some(steps), Some(mean), Some(square)) = (part("steps"), part("mean"), part("square")) else {
                *moments = None;
                continue;
            };
            if mean.size() != tensor.size() || square.size() != tensor.size() || steps.numel() != 1 {
                return Err(format!("the optimizer's state of {name} has another shape"));
            }
            let steps = steps.int64_value(&[0]);
            *moments = Some(Moments { steps, mean: mean.copy(), square: square.copy() });
        }
        Ok(())
    }
}

impl Parameter {
    fn step(&mut self, learning_rate: f64, weight_decay: f64) -> Result<(), TchError> {
        let gradient = self.tensor.f_grad()?;
        if !gradient.defined() {
            return Ok(());
        }
        let Moments { steps, mean, square } = match &mut self.moments {
            Some(moments) => moments,
            none => {
                let zeros = || self.tensor.f_zeros_like();
                none.insert(Moments { steps: 0, mean: zeros()?, square: zeros()? })
            }
        };
        *steps += 1;
        let (steps, one) = (*steps as f64, 1.0);
        if weight_decay != 0.0 {
            let _ = self.tensor.f_mul_scalar_(one - learning_rate * weight_decay)?;
        }
        // m ← β₁ m + (1 − β₁) g and v ← β₂ v + (1 − β₂) g².
        let _ = mean.f_lerp_(&gradient, one - BETA1)?;
        let _ = square.f_lerp_(&gradient.f_square()?, one - BETA2)?;
        // p ← p − η/(1 − β₁ⁿ) · m / (√v / √(1 − β₂ⁿ) + ε); the factor goes into the denominator.
        let step_size = learning_rate / (one - BETA1.powf(steps));
        let mut denominator = square.f_sqrt()?;
        let _ = denominator.f_div_scalar_((one - BETA2.powf(steps)).sqrt())?;
        let _ = denominator.f_add_scalar_(EPSILON)?;
        let _ = denominator.f_div_scalar_(-step_size)?;
        let _ = self.tensor.f_addcdiv_(mean, &denominator)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::nn::{self, Init, OptimizerConfig};
    use tch::{Device, Kind};

    /// Two parameters, of which the second has a gradient in every other step only.
    fn model(vs: &nn::VarStore) -> [Tensor; 2] {
        tch::manual_seed(7);
        let init = Init::Randn { mean: 0.0, stdev: 0.1 };
        [vs.root().var("a", &[5, 3], init), vs.root().var("b", &[3], init)]
    }

    fn backward([a, b]: &[Tensor; 2], step: i64) {
        let x = (Tensor::arange(20, (Kind::Float, Device::Cpu)).view([4, 5]) + step).sin();
        let y = x.matmul(a);
        let y = if step % 2 == 0 { y * b } else { y };
        (y - 0.3).square().mean(Kind::Float).backward();
    }

    #[test]
    fn it_steps_as_libtorch_does() {
        for weight_decay in [0.0, 0.1] {
            let theirs = nn::VarStore::new(Device::Cpu);
            let reference = model(&theirs);
            let mut torch = nn::AdamW { wd: weight_decay, ..nn::AdamW::default() }.build(&theirs, 0.01).unwrap();
            let ours = nn::VarStore::new(Device::Cpu);
            let parameters = model(&ours);
            let start = parameters[0].copy();
            let mut adamw = AdamW::new(crate::models::named_parameters(&ours), 0.01, weight_decay);
            let mut zero = nn::sgd(0.0, 0.0, 0.0, false).build(&ours, 1.0).unwrap();
            for step in 0..20 {
                backward(&reference, step);
                torch.step();
                torch.zero_grad();
                backward(&parameters, step);
                adamw.step().unwrap();
                zero.zero_grad();
                for (a, b) in reference.iter().zip(&parameters) {
                    let far = (a - b).abs().max().double_value(&[]);
                    assert!(far <= 1e-7, "step {step}: {far}");
                }
            }
            assert!((&parameters[0] - start).abs().max().double_value(&[]) > 0.05, "they moved");
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
                adamw.step().unwrap();
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
        adamw.step().unwrap();
        let mut state: BTreeMap<String, Tensor> = adamw.state().into_iter().collect();
        state.insert("adamw/mean/b".into(), Tensor::zeros([4], (Kind::Float, Device::Cpu)));
        assert!(adamw.restore(&state).unwrap_err().contains("state of b"));
    }
}
