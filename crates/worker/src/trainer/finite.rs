use tch::{Device, Kind, Tensor};

use super::TrainError;

/// Whether all values of all floating-point tensors are finite; to ask before they are written to a file. What a schedule
/// has not seen yet may be infinite (its best figure): it is left out. A device is waited for once, however many tensors it has.
///
/// # Errors
/// [`TrainError::NotFinite`] names the first tensor that is not, or libtorch refuses.
pub fn all_finite(tensors: &[(String, Tensor)]) -> Result<(), TrainError> {
    let mut of_devices: Vec<Checks> = Vec::new();
    for (place, (name, tensor)) in tensors.iter().enumerate() {
        if name.starts_with("schedule/") || !tensor.is_floating_point() || tensor.numel() == 0 {
            continue;
        }
        // NaN is the extreme of whatever has one.
        let (values, device) = (tensor.f_detach()?, tensor.device());
        let extremes = Tensor::f_stack(&[values.f_min()?, values.f_max()?], 0)?.f_to_kind(Kind::Double)?;
        match of_devices.iter_mut().find(|checks| checks.device == device) {
            Some(checks) => checks.add(place, extremes),
            None => of_devices.push(Checks { device, places: vec![place], extremes: vec![extremes] }),
        }
    }
    let mut first: Option<usize> = None;
    for checks in &of_devices {
        first = first.into_iter().chain(checks.first_wrong()?).min();
    }
    match first.and_then(|place| tensors.get(place)) {
        None => Ok(()),
        Some((name, _)) => Err(TrainError::NotFinite { name: name.clone() }),
    }
}

/// The smallest and the largest value of each tensor of a device.
struct Checks {
    device: Device,
    /// Which tensors they are.
    places: Vec<usize>,
    /// float64 `[2]` each.
    extremes: Vec<Tensor>,
}

impl Checks {
    fn add(&mut self, place: usize, extremes: Tensor) {
        self.places.push(place);
        self.extremes.push(extremes);
    }

    /// The first tensor with a value that is not finite.
    fn first_wrong(&self) -> Result<Option<usize>, TrainError> {
        let values = Vec::<f64>::try_from(Tensor::f_cat(&self.extremes, 0)?.f_to_device(Device::Cpu)?)?;
        let wrong = values.chunks(2).position(|extremes| !extremes.iter().all(|value| value.is_finite()));
        Ok(wrong.and_then(|position| self.places.get(position).copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tensor_is_named() {
        let named = |name: &str, values: &[f32]| (name.to_owned(), Tensor::from_slice(values));
        let steps = ("adamw/steps/a".to_owned(), Tensor::from_slice(&[3i64]));
        let best = named("schedule/plateau/loss", &[f32::INFINITY]);
        let empty = named("sinkhorn/0/labels", &[]);
        let fine = [named("model/a", &[1.0, -3e38]), steps, best, empty];
        all_finite(&fine).unwrap();
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = all_finite(&[named("model/a", &[0.0]), named("model/b", &[1.0, wrong, 2.0])]).unwrap_err();
            assert!(error.to_string().starts_with("model/b has values that are not finite"), "{error}");
            let both = all_finite(&[named("model/b", &[wrong]), named("model/a", &[0.0]), named("model/c", &[wrong])]);
            assert!(both.unwrap_err().to_string().starts_with("model/b has values"), "the first is named");
        }
    }
}
