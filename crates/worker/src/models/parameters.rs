use tch::{Tensor, nn};

/// All trained parameters with their names, in the order of the names: the same order on every rank.
pub fn named_parameters(vs: &nn::VarStore) -> Vec<(String, Tensor)> {
    let mut named: Vec<_> = vs.variables().into_iter().filter(|(_, tensor)| tensor.requires_grad()).collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}

/// All that the model computes with, by name, in the order of the names: its trained parameters, those that are not, and
/// buffers such as the statistics of a normalisation.
pub fn named_variables(vs: &nn::VarStore) -> Vec<(String, Tensor)> {
    let mut named: Vec<_> = vs.variables().into_iter().collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}

/// blake3, in hexadecimal, over names, shapes and bytes of parameters: equal exactly if every bit is equal.
///
/// # Errors
/// A parameter cannot be copied to the host.
pub fn parameters_digest(parameters: &[(String, Tensor)]) -> Result<String, tch::TchError> {
    let mut hasher = blake3::Hasher::new();
    let mut bytes = Vec::new();
    for (name, tensor) in parameters {
        let count = tensor.numel();
        bytes.resize(count * tensor.kind().elt_size_in_bytes(), 0);
        tensor.detach().f_to_device(tch::Device::Cpu)?.f_contiguous()?.f_copy_data_u8(&mut bytes, count)?;
        hasher.update(format!("{name} {:?} {:?}\n", tensor.kind(), tensor.size()).as_bytes()).update(&bytes);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_changes_the_digest() {
        let tensor = Tensor::from_slice(&[1.0f32, 0.0]);
        let digest = |t: &Tensor| parameters_digest(&[("p".to_owned(), t.shallow_clone())]).unwrap();
        let before = digest(&tensor);
        assert_eq!(before, digest(&tensor.copy()));
        assert_ne!(before, digest(&Tensor::from_slice(&[1.0f32, -0.0])));
        assert_ne!(before, digest(&tensor.view([2, 1])));
    }
}
