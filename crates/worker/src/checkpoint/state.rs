use std::collections::BTreeMap;
use std::path::Path;

use expctl_record::RecordError;
use tch::Tensor;

/// Write tensors by name to `path`, in the safetensors format.
pub fn write_state(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), RecordError> {
    let whole: Vec<(&str, Tensor)> =
        tensors.iter().map(|(n, t)| (n.as_str(), t.detach().to_device(tch::Device::Cpu).contiguous())).collect();
    Tensor::write_safetensors(&whole, path).map_err(|e| {
        let source = std::io::Error::other(e.to_string());
        RecordError::Io { action: "write", path: path.to_owned(), source }
    })
}

/// The tensors in `path`, by name.
pub fn read_state(path: &Path) -> Result<BTreeMap<String, Tensor>, RecordError> {
    let tensors = Tensor::read_safetensors(path)
        .map_err(|e| RecordError::Checkpoint { path: path.to_owned(), reason: e.to_string() })?;
    Ok(tensors.into_iter().collect())
}
