//! `graph.safetensors`: int64 `edge_index/<type>` `[2, E]` of each network, int64 `hyperedge_index/gpr` and
//! `hyperedge_index/rmr` `[2, E]`, float32 `stoichiometry/rmr` `[E]`.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::BipartiteInfo;
use super::metabolism::Metabolism;
use super::networks::BuiltNetwork;
use crate::PipelineError;
use crate::graph::{self, EdgeType};

/// File name inside a data set.
pub(crate) const GRAPH_FILE: &str = "graph.safetensors";

/// Write all edges.
pub(crate) fn write(path: &Path, networks: &[BuiltNetwork], metabolism: &Metabolism) -> Result<(), PipelineError> {
    let mut tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
    for network in networks {
        let edges = network.edge_index.len() / 2;
        let name = format!("edge_index/{}", network.name);
        tensors.push((name, Dtype::I64, vec![2, edges], bytes_of(&network.edge_index)));
    }
    for (name, index) in [("gpr", &metabolism.gpr), ("rmr", &metabolism.rmr)] {
        tensors.push((format!("hyperedge_index/{name}"), Dtype::I64, vec![2, index.len() / 2], bytes_of(index)));
    }
    let stoichiometry: Vec<u8> = metabolism.stoichiometry.iter().flat_map(|s| s.to_le_bytes()).collect();
    tensors.push(("stoichiometry/rmr".to_owned(), Dtype::F32, vec![metabolism.stoichiometry.len()], stoichiometry));

    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| Ok((name.as_str(), TensorView::new(*dtype, shape.clone(), bytes)?)))
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
        .map_err(|e| PipelineError::damaged(path, e))?;
    let about = HashMap::from([("format".to_owned(), "expctl graph 1".to_owned())]);
    // Not `serialize_to_file`, which makes a file that only its owner may read, whatever the umask.
    let bytes = safetensors::serialize(views, Some(about)).map_err(|e| PipelineError::damaged(path, e))?;
    std::fs::write(path, bytes).map_err(PipelineError::io("write", path))
}

/// Read the edges of some networks, in the order asked for.
pub(crate) fn read(path: &Path, edge_types: &[String]) -> Result<Vec<EdgeType>, PipelineError> {
    let file = std::fs::File::open(path).map_err(PipelineError::io("read", path))?;
    // SAFETY: a built data set is never written to again; a file cut short by someone else would end the process with
    // SIGBUS, as it does for every reader of the LMDB store beside it.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(PipelineError::io("map", path))?;
    let tensors = SafeTensors::deserialize(&map).map_err(|e| PipelineError::damaged(path, e))?;
    let mut found = Vec::with_capacity(edge_types.len());
    for name in edge_types {
        let Ok(tensor) = tensors.tensor(&format!("edge_index/{name}")) else {
            let mut known: Vec<&str> = tensors.names().iter().filter_map(|n| n.strip_prefix("edge_index/")).collect();
            known.sort_unstable();
            return Err(PipelineError::Invalid(format!(
                "no edge type `{name}` in {}; it has {}",
                path.display(),
                known.join(", ")
            )));
        };
        if tensor.dtype() != Dtype::I64 || !matches!(tensor.shape(), [2, _]) {
            return Err(PipelineError::damaged(path, format!("edge_index/{name} is not int64 [2, E]")));
        }
        let (words, _) = tensor.data().as_chunks::<8>();
        let edge_index = words.iter().map(|word| i64::from_le_bytes(*word)).collect();
        found.push(EdgeType { name: name.clone(), edge_index });
    }
    Ok(found)
}

/// Read reactions and metabolites.
pub(crate) fn read_metabolism(path: &Path, sizes: &BipartiteInfo) -> Result<graph::Metabolism, PipelineError> {
    let file = std::fs::File::open(path).map_err(PipelineError::io("read", path))?;
    // SAFETY: as in `read`.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(PipelineError::io("map", path))?;
    let tensors = SafeTensors::deserialize(&map).map_err(|e| PipelineError::damaged(path, e))?;
    let words = |name: &str| -> Result<Vec<i64>, PipelineError> {
        let tensor = tensors.tensor(name).map_err(|e| PipelineError::damaged(path, e))?;
        if tensor.dtype() != Dtype::I64 || !matches!(tensor.shape(), [2, _]) {
            return Err(PipelineError::damaged(path, format!("{name} is not int64 [2, E]")));
        }
        Ok(tensor.data().as_chunks::<8>().0.iter().map(|word| i64::from_le_bytes(*word)).collect())
    };
    let (gpr, rmr) = (words("hyperedge_index/gpr")?, words("hyperedge_index/rmr")?);
    let tensor = tensors.tensor("stoichiometry/rmr").map_err(|e| PipelineError::damaged(path, e))?;
    let stoichiometry: Vec<f32> =
        tensor.data().as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
    if tensor.dtype() != Dtype::F32 || stoichiometry.len() != rmr.len() / 2 {
        return Err(PipelineError::damaged(path, "stoichiometry/rmr is not float32 [E] with the E of rmr"));
    }
    let (reactions, metabolites) = (sizes.reactions as usize, sizes.metabolites as usize);
    Ok(graph::Metabolism { reactions, metabolites, gpr, rmr, stoichiometry })
}

/// Shape of each tensor, for verification.
pub(crate) fn shapes(path: &Path) -> Result<HashMap<String, Vec<usize>>, PipelineError> {
    let file = std::fs::File::open(path).map_err(PipelineError::io("read", path))?;
    // SAFETY: as in `read`.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(PipelineError::io("map", path))?;
    let tensors = SafeTensors::deserialize(&map).map_err(|e| PipelineError::damaged(path, e))?;
    Ok(tensors.iter().map(|(name, tensor)| (name.to_owned(), tensor.shape().to_vec())).collect())
}

fn bytes_of(values: &[i64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * 8);
    for value in values {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes
}
