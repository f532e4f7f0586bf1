//! `graph.safetensors`: int64 `edge_index/<type>` `[2, E]` of each network, int64 `hyperedge_index/gpr` and
//! `hyperedge_index/rmr` `[2, E]`, float32 `stoichiometry/rmr` `[E]`.

use std::collections::HashMap;
use std::path::Path;

use graph_loader::{EdgeType, Metabolism};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::graph::manifest::BipartiteInfo;
use crate::graph::networks::{BuiltNetwork, GeneratedMetabolism};
use crate::{Damage, DatasetError, RequestError};

/// File name inside a data set.
pub const GRAPH_FILE: &str = "graph.safetensors";

/// Write all edges.
pub fn write(path: &Path, networks: &[BuiltNetwork], metabolism: &GeneratedMetabolism) -> Result<(), DatasetError> {
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
        .map_err(|e| DatasetError::damaged(path, e))?;
    let about = HashMap::from([("format".to_owned(), "expctl graph 1".to_owned())]);
    // Not `serialize_to_file`, which makes a file that only its owner may read, whatever the umask.
    let bytes = safetensors::serialize(views, Some(about)).map_err(|e| DatasetError::damaged(path, e))?;
    std::fs::write(path, bytes).map_err(DatasetError::io("write", path))
}

/// Read the edges of some networks between `genes` genes, in the order asked for.
pub fn read(path: &Path, edge_types: &[String], genes: usize) -> Result<Vec<EdgeType>, DatasetError> {
    // Not mapped: a file cut short by someone else just now would end the process with SIGBUS.
    let bytes = std::fs::read(path).map_err(DatasetError::io("read", path))?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|e| DatasetError::damaged(path, e))?;
    let mut found = Vec::with_capacity(edge_types.len());
    for name in edge_types {
        let Ok(tensor) = tensors.tensor(&format!("edge_index/{name}")) else {
            let names = tensors.names();
            let types = names.iter().filter_map(|name| name.strip_prefix("edge_index/"));
            let mut known: Vec<String> = types.map(str::to_owned).collect();
            known.sort_unstable();
            return Err(RequestError::UnknownEdgeType { name: name.clone(), path: path.to_owned(), known }.into());
        };
        let what = format!("edge_index/{name}");
        let edge_index = indices(path, &what, &tensor, [("gene", genes), ("gene", genes)])?;
        found.push(EdgeType { name: name.clone(), edge_index });
    }
    Ok(found)
}

/// Read reactions and metabolites, which `genes` genes catalyse.
pub fn read_metabolism(path: &Path, sizes: &BipartiteInfo, genes: usize) -> Result<Metabolism, DatasetError> {
    let bytes = std::fs::read(path).map_err(DatasetError::io("read", path))?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|e| DatasetError::damaged(path, e))?;
    let tensor = |name: &str| {
        tensors
            .tensor(name)
            .map_err(|e| DatasetError::damaged(path, Damage::Tensor { name: name.to_owned(), source: e }))
    };
    let (reactions, metabolites) = (sizes.reactions as usize, sizes.metabolites as usize);
    let pairs = |name: &str, ends| indices(path, name, &tensor(name)?, ends);
    let gpr = pairs("hyperedge_index/gpr", [("gene", genes), ("reaction", reactions)])?;
    let rmr = pairs("hyperedge_index/rmr", [("reaction", reactions), ("metabolite", metabolites)])?;
    for (name, of) in [("gpr", &gpr[gpr.len() / 2..]), ("rmr", &rmr[..rmr.len() / 2])] {
        if let Some(at) = of.windows(2).position(|pair| pair[0] > pair[1]) {
            let name = format!("hyperedge_index/{name}");
            let damage = Damage::ReactionOrder { name, at, reaction: of[at], next: of[at + 1] };
            return Err(DatasetError::damaged(path, damage));
        }
    }
    let coefficients = tensor("stoichiometry/rmr")?;
    if coefficients.dtype() != Dtype::F32 || coefficients.shape() != [rmr.len() / 2] {
        let (name, dtype, shape) =
            ("stoichiometry/rmr".to_owned(), coefficients.dtype(), coefficients.shape().to_vec());
        let expected = format!("F32 [{}]", rmr.len() / 2);
        return Err(DatasetError::damaged(path, Damage::TensorForm { name, dtype, shape, expected }));
    }
    let words = coefficients.data().as_chunks::<4>().0;
    let stoichiometry: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
    Ok(Metabolism { reactions, metabolites, gpr, rmr, stoichiometry })
}

/// The int64 `[2, E]` of a tensor with at least one edge, each row with what it counts and how many of them there are.
fn indices(
    path: &Path,
    name: &str,
    tensor: &TensorView<'_>,
    rows: [(&'static str, usize); 2],
) -> Result<Vec<i64>, DatasetError> {
    let owned = || name.to_owned();
    let edges = match tensor.shape() {
        [2, edges] if tensor.dtype() == Dtype::I64 => *edges,
        shape => {
            let (dtype, shape, expected) = (tensor.dtype(), shape.to_vec(), "I64 [2, E]".to_owned());
            let damage = Damage::TensorForm { name: owned(), dtype, shape, expected };
            return Err(DatasetError::damaged(path, damage));
        }
    };
    if edges == 0 {
        return Err(DatasetError::damaged(path, Damage::NoEdges(owned())));
    }
    let words = tensor.data().as_chunks::<8>().0;
    let values: Vec<i64> = words.iter().map(|word| i64::from_le_bytes(*word)).collect();
    for (row, (ends, (node, count))) in values.chunks_exact(edges).zip(rows).enumerate() {
        if let Some(column) = ends.iter().position(|value| !(0..count as i64).contains(value)) {
            let damage = Damage::EdgeEnd { name: owned(), row, column, node, value: ends[column], count };
            return Err(DatasetError::damaged(path, damage));
        }
    }
    Ok(values)
}

/// Shape of each tensor, for verification.
pub fn shapes(path: &Path) -> Result<HashMap<String, Vec<usize>>, DatasetError> {
    let bytes = std::fs::read(path).map_err(DatasetError::io("read", path))?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|e| DatasetError::damaged(path, e))?;
    Ok(tensors.iter().map(|(name, tensor)| (name.to_owned(), tensor.shape().to_vec())).collect())
}

fn bytes_of(values: &[i64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * 8);
    for value in values {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: BipartiteInfo = BipartiteInfo {
        reactions: 2,
        reactions_with_genes: 2,
        metabolites: 2,
        gpr: 2,
        rmr: 2,
        class: crate::manifest::DataOrigin::Generated,
    };

    /// A file of three genes with one tensor replaced; returns what reading all of it says.
    fn read_with(name: &str, dtype: Dtype, shape: &[usize], data: Vec<u8>) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(GRAPH_FILE);
        let mut tensors = [
            ("edge_index/a", Dtype::I64, vec![2, 3], bytes_of(&[0, 1, 2, 2, 1, 0])),
            ("hyperedge_index/gpr", Dtype::I64, vec![2, 2], bytes_of(&[0, 2, 0, 1])),
            ("hyperedge_index/rmr", Dtype::I64, vec![2, 2], bytes_of(&[0, 1, 1, 0])),
            ("stoichiometry/rmr", Dtype::F32, vec![2], vec![0; 8]),
        ];
        if let Some(tensor) = tensors.iter_mut().find(|tensor| tensor.0 == name) {
            *tensor = (tensor.0, dtype, shape.to_vec(), data);
        }
        let views = tensors
            .iter()
            .map(|(name, dtype, shape, data)| (*name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
        std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
        let found = read(&path, &["a".to_owned()], 3).and_then(|_| read_metabolism(&path, &SIZES, 3));
        found.map(drop).map_err(|e| {
            let text = e.to_string();
            text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text).to_owned()
        })
    }

    #[test]
    fn what_cannot_be_is_named_with_its_place() {
        assert_eq!(read_with("", Dtype::I64, &[], Vec::new()), Ok(()));
        let says = |name: &str, shape: &[usize], values: &[i64]| {
            read_with(name, Dtype::I64, shape, bytes_of(values)).unwrap_err()
        };
        assert_eq!(says("edge_index/a", &[2, 1], &[0, 3]), "edge_index/a[1, 0]: gene 3 is not one of 3");
        assert_eq!(says("edge_index/a", &[2, 2], &[0, -1, 0, 0]), "edge_index/a[0, 1]: gene -1 is not one of 3");
        assert_eq!(says("edge_index/a", &[2, 0], &[]), "edge_index/a has no edges");
        assert_eq!(says("edge_index/a", &[4], &[0; 4]), "edge_index/a is I64 [4], not I64 [2, E]");
        assert_eq!(
            says("hyperedge_index/gpr", &[2, 2], &[0, 1, 0, 2]),
            "hyperedge_index/gpr[1, 1]: reaction 2 is not one of 2"
        );
        assert_eq!(
            says("hyperedge_index/rmr", &[2, 2], &[1, 0, 0, 0]),
            "hyperedge_index/rmr: reaction 1 at 0 is followed by 0"
        );
        let wrong_type = read_with("edge_index/a", Dtype::F64, &[2, 1], vec![0; 16]).unwrap_err();
        assert_eq!(wrong_type, "edge_index/a is F64 [2, 1], not I64 [2, E]");
        let too_few = read_with("stoichiometry/rmr", Dtype::F32, &[1], vec![0; 4]).unwrap_err();
        assert_eq!(too_few, "stoichiometry/rmr is F32 [1], not F32 [2]");
    }

    #[test]
    fn a_file_that_is_cut_short_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(GRAPH_FILE);
        let edges = bytes_of(&[0; 20_000]);
        let view = TensorView::new(Dtype::I64, vec![2, 10_000], &edges).unwrap();
        let whole = safetensors::serialize([("edge_index/a", view)], None).unwrap();
        std::fs::write(&path, &whole).unwrap();
        read(&path, &["a".to_owned()], 1).unwrap();
        for length in [0, 7, 8, 50, 4096, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = read(&path, &["a".to_owned()], 1).unwrap_err();
            assert!(matches!(error, DatasetError::Damaged { .. }), "{error}");
            assert!(shapes(&path).is_err());
        }
    }
}
