use std::collections::BTreeMap;
use std::path::Path;

use expctl_record::RecordError;
use tch::Tensor;

use super::Progress;
use crate::checkpoint::read_state;
use crate::trainer::Trainer;

/// In a file of a whole state, the names of what the model computes with start with this.
const MODEL: &str = "model/";

/// Start from the file `path`: with its weights alone, or, if it is the state of a training run, behind its last epoch.
///
/// # Errors
/// It cannot be read, or is of another model; the message names the file, the parameter and both shapes. The trainer is as it
/// was then.
pub(crate) fn start_from(path: &Path, trainer: &mut Trainer) -> Result<Progress, RecordError> {
    let refuse = |reason: String| RecordError::Checkpoint { path: path.to_owned(), reason };
    let state = read_state(path)?;
    let whole = state.keys().any(|name| name.starts_with(MODEL));
    let weights: BTreeMap<&str, &Tensor> = match whole {
        true => state.iter().filter_map(|(name, tensor)| Some((name.strip_prefix(MODEL)?, tensor))).collect(),
        false => state.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect(),
    };
    compare(&weights, &trainer.weights()).map_err(refuse)?;
    if !whole {
        trainer.load_weights(&state).map_err(refuse)?;
        return Ok(Progress::default());
    }
    let progress = Progress::after(&state).ok_or_else(|| {
        refuse("it is a state in the middle of an epoch: give a last.safetensors or a best.safetensors".to_owned())
    })?;
    trainer.restore(&state).map_err(refuse)?;
    Ok(progress)
}

/// Whether `found` are weights of the model that has these.
fn compare(found: &BTreeMap<&str, &Tensor>, own: &[(String, Tensor)]) -> Result<(), String> {
    for (name, tensor) in own {
        let Some(kept) = found.get(name.as_str()) else {
            return Err(format!(
                "it is of another model: parameter {name} {:?} is not in it, but {} others are",
                tensor.size(),
                found.len()
            ));
        };
        if (kept.size(), kept.kind()) != (tensor.size(), tensor.kind()) {
            let of = |tensor: &Tensor| format!("{:?} {:?}", tensor.kind(), tensor.size());
            let (kept, tensor) = (of(kept), of(tensor));
            return Err(format!("it is of another model: parameter {name} is {kept} in it, here {tensor}"));
        }
    }
    match found.iter().find(|(name, _)| !own.iter().any(|(known, _)| known == *name)) {
        Some((name, tensor)) => {
            Err(format!("it is of another model: parameter {name} {:?} is in it, and not in this one", tensor.size()))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    #[test]
    fn another_model_is_told_by_name_and_both_shapes() {
        let tensor = |shape: &[i64]| Tensor::zeros(shape, (Kind::Float, Device::Cpu));
        let own = [("a".to_owned(), tensor(&[2, 3])), ("b".to_owned(), tensor(&[4]))];
        let (same, other, b) = (tensor(&[2, 3]), tensor(&[3, 3]), tensor(&[4]));
        let mut found = BTreeMap::from([("a", &same), ("b", &b)]);
        assert_eq!(compare(&found, &own), Ok(()));
        found.insert("c", &b);
        assert!(compare(&found, &own).unwrap_err().contains("parameter c [4] is in it"));
        found = BTreeMap::from([("a", &other), ("b", &b)]);
        let message = compare(&found, &own).unwrap_err();
        assert!(message.contains("parameter a is Float [3, 3] in it, here Float [2, 3]"), "{message}");
        found.remove("b");
        found.insert("a", &same);
        assert!(compare(&found, &own).unwrap_err().contains("parameter b [4] is not in it"));
    }
}
