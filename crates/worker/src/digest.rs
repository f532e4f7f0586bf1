use tch::{Tensor, nn};

/// blake3 over names and bytes of all parameters, in the order of their names, as 16 hexadecimal digits.
pub fn of_parameters(vs: &nn::VarStore) -> String {
    let mut parameters: Vec<(String, Tensor)> = vs.variables().into_iter().collect();
    parameters.sort_by(|a, b| a.0.cmp(&b.0));
    let mut hasher = blake3::Hasher::new();
    for (name, tensor) in parameters {
        hasher.update(name.as_bytes());
        let flat = tensor.detach().contiguous().view([-1]);
        let mut values = vec![0f32; flat.numel()];
        flat.copy_data(&mut values, flat.numel());
        for value in values {
            hasher.update(&value.to_le_bytes());
        }
    }
    hasher.finalize().to_hex()[..16].to_owned()
}
