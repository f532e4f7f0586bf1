//! `NativeGraphDataset` joins a store of records with its graph: both of a data set on disk, or a store with a graph that the program
//! passes as bytes.
//! Invariant: a graph from outside is checked in full before a loader uses it, because the loaders index with its numbers.

use std::iter::repeat_n;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anndata_io::{AnnDataError, ArrayStore, Form, Labels, ReadRows};
use expctl_datasets::DatasetError;
use expctl_datasets::graph::{Dataset, DatasetRecords, SampleGenes, choose_samples};
use expctl_settings::{Pipeline, Processor, Select, Split, StoreKind};
use graph_loader::{
    CellGraph, EdgeType, GraphError, LmdbReader, LmdbStore, Metabolism, ReadRecord, RecordDecoder, Records, Sample,
    StoreDecoder,
};
use pyo3::prelude::*;

use crate::dlpack::NativeTensor;
use crate::error::{BindingError, GraphProblem, dataset_error, graph_error};
use crate::fork::Running;
use crate::interruptible::interruptible;
use crate::warnings;

/// Samples that perturb genes of one graph: a store of records, and the graph.
#[pyclass(name = "GraphDataset", module = "expctl._native", frozen)]
pub struct NativeGraphDataset {
    pub records: Arc<dyn Records>,
    pub graph: Arc<CellGraph>,
    samples: u64,
    /// Mean and standard deviation of all labels, if the data set says so.
    label_statistics: Option<(f64, f64)>,
    /// The file of the records.
    file: PathBuf,
}

/// The word of `words` that is `asked`.
fn word<T: Copy>(words: &[T], name: fn(T) -> &'static str, what: &'static str, asked: &str) -> Result<T, BindingError> {
    let known = || words.iter().map(|word| name(*word)).collect::<Vec<_>>().join(", ");
    let found = words.iter().copied().find(|word| name(*word) == asked);
    found.ok_or_else(|| BindingError::UnknownWord { what, asked: asked.to_owned(), known: known() })
}

/// The JSON records of a store for a graph that somebody else has.
struct JsonRecords {
    store: LmdbStore,
    decoder: StoreDecoder,
}

struct JsonReader<'r>(LmdbReader<'r>);

impl Records for JsonRecords {
    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, GraphError> {
        Ok(Box::new(JsonReader(self.store.reader()?)))
    }

    fn decode(&self, index: u64, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), GraphError> {
        self.decoder.decode(index, bytes, range, sample)
    }
}

impl ReadRecord for JsonReader<'_> {
    fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, GraphError> {
        self.0.read(index, out)
    }

    fn unchanged(&self) -> Result<(), GraphError> {
        self.0.unchanged()
    }
}

/// Numbers from their bytes in the order of this machine.
fn numbers<T, const N: usize>(what: &str, bytes: &[u8], from: fn([u8; N]) -> T) -> Result<Vec<T>, BindingError> {
    let (numbers, rest) = bytes.as_chunks::<N>();
    if rest.is_empty() {
        return Ok(numbers.iter().map(|number| from(*number)).collect());
    }
    let problem = GraphProblem::Bytes { bytes: bytes.len(), each: N };
    Err(BindingError::Graph { what: what.to_owned(), problem })
}

/// int64 `[2, E]` whose first row is below `sources` and whose second is below `targets`.
fn edges(what: &str, bytes: &[u8], sources: usize, targets: usize) -> Result<Vec<i64>, BindingError> {
    let refused = |problem| BindingError::Graph { what: what.to_owned(), problem };
    let index = numbers(what, bytes, i64::from_ne_bytes)?;
    if index.len() % 2 == 1 {
        return Err(refused(GraphProblem::OddLength { numbers: index.len() }));
    }
    let (from, to) = index.split_at(index.len() / 2);
    for (ends, nodes) in [(from, sources), (to, targets)] {
        let strange = ends.iter().find(|end| usize::try_from(**end).map_or(true, |end| end >= nodes));
        if let Some(node) = strange {
            return Err(refused(GraphProblem::Node { node: *node, nodes }));
        }
    }
    Ok(index)
}

/// Check that edges ascend by reaction, as the loaders need them.
fn check_ascending(what: &str, reactions: &[i64]) -> Result<(), BindingError> {
    match reactions.is_sorted() {
        true => Ok(()),
        false => Err(BindingError::Graph { what: what.to_owned(), problem: GraphProblem::ReactionOrder }),
    }
}

/// Names and the bytes of int64 `[2, E]`.
type EdgeBytes = Vec<(String, Vec<u8>)>;
/// Reactions, metabolites, and the bytes of gpr and rmr (int64 `[2, E]`) and of the stoichiometry (float32).
type MetabolismBytes = (usize, usize, Vec<u8>, Vec<u8>, Vec<u8>);

fn checked_graph(
    genes: Vec<String>,
    edge_types: EdgeBytes,
    metabolism: Option<MetabolismBytes>,
) -> Result<CellGraph, BindingError> {
    if let Some(pair) = genes.windows(2).find(|pair| pair[0] >= pair[1]) {
        let problem = GraphProblem::GeneOrder { first: pair[0].clone(), second: pair[1].clone() };
        return Err(BindingError::Graph { what: "gene".to_owned(), problem });
    }
    let count = genes.len();
    let of_type =
        |(name, bytes): (String, Vec<u8>)| Ok(EdgeType { edge_index: edges(&name, &bytes, count, count)?, name });
    let edge_types = edge_types.into_iter().map(of_type).collect::<Result<_, BindingError>>()?;
    let with_reactions = |(reactions, metabolites, gpr, rmr, stoichiometry): MetabolismBytes| {
        let metabolism = Metabolism {
            reactions,
            metabolites,
            gpr: edges("gpr", &gpr, count, reactions)?,
            rmr: edges("rmr", &rmr, reactions, metabolites)?,
            stoichiometry: numbers("stoichiometry", &stoichiometry, f32::from_ne_bytes)?,
        };
        check_ascending("gpr", metabolism.gpr_reactions())?;
        check_ascending("rmr", metabolism.rmr_reactions())?;
        let (found, edges) = (metabolism.stoichiometry.len(), metabolism.num_rmr());
        if found != edges {
            let problem = GraphProblem::Stoichiometry { found, edges };
            return Err(BindingError::Graph { what: "rmr".to_owned(), problem });
        }
        Ok(metabolism)
    };
    let metabolism = metabolism.map(with_reactions).transpose()?;
    Ok(CellGraph { genes, edge_types, metabolism })
}

#[pymethods]
impl NativeGraphDataset {
    /// Open a data set that `expctl data build` made. Without `edge_types` it has all networks.
    #[new]
    #[pyo3(signature = (folder, *, store, edge_types, metabolism))]
    fn new(
        py: Python<'_>,
        folder: PathBuf,
        store: &str,
        edge_types: Option<Vec<String>>,
        metabolism: bool,
    ) -> PyResult<Self> {
        let store = word(&StoreKind::ALL, StoreKind::name, "store", store)?;
        let open = move |_: &AtomicBool| -> Result<Self, DatasetError> {
            let dataset = Dataset::open(&folder)?;
            let manifest = dataset.manifest();
            let all = || manifest.networks.iter().map(|network| network.name.clone()).collect();
            // The processor of the pipeline decides neither the graph nor the records.
            let pipeline =
                Pipeline { store, metabolism, ..Pipeline::new(Processor::Ids, edge_types.unwrap_or_else(all)) };
            let graph = Arc::new(dataset.graph_of(&pipeline)?);
            let records = DatasetRecords::open(&dataset, &pipeline)?;
            let samples = records.len();
            let label_statistics = Some((manifest.samples.label_mean, manifest.samples.label_sd));
            let file = dataset.store_file(store);
            Ok(Self { records: Arc::new(records), graph, samples, label_statistics, file })
        };
        let dataset = interruptible(py, open)?.map_err(dataset_error)?;
        warnings::emit(py)?;
        Ok(dataset)
    }

    /// Open an LMDB store of JSON records, `folder/data.mdb`, for a graph with these genes and edges, which are the bytes of int64
    /// `[2, E]`. The metabolism is its numbers of reactions and metabolites and the bytes of gpr, rmr and stoichiometry.
    #[staticmethod]
    #[pyo3(signature = (folder, *, genes, edge_types, metabolism))]
    fn of_lmdb(
        py: Python<'_>,
        folder: PathBuf,
        genes: Vec<String>,
        edge_types: EdgeBytes,
        metabolism: Option<MetabolismBytes>,
    ) -> PyResult<Self> {
        let _running = Running::begin()?;
        let graph = Arc::new(py.detach(|| checked_graph(genes, edge_types, metabolism))?);
        let open = move |_: &AtomicBool| -> Result<Self, GraphError> {
            let store = LmdbStore::open(&folder)?;
            let decoder = StoreDecoder::json(&folder, RecordDecoder::new(&folder, graph.genes.clone()));
            let samples = store.len();
            let records = Arc::new(JsonRecords { store, decoder });
            let file = folder.join("data.mdb");
            Ok(Self { records, graph, samples, label_statistics: None, file })
        };
        let dataset = interruptible(py, open)?.map_err(graph_error)?;
        warnings::emit(py)?;
        Ok(dataset)
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.samples).unwrap_or(usize::MAX)
    }

    /// Names of the genes, ascending.
    #[getter]
    fn genes(&self) -> Vec<String> {
        self.graph.genes.clone()
    }

    /// Number of genes.
    #[getter]
    fn num_genes(&self) -> usize {
        self.graph.num_genes()
    }

    /// Names of the edge types, in order, and their numbers of edges.
    #[getter]
    fn edge_types(&self) -> Vec<(String, usize)> {
        self.graph.edge_types.iter().map(|edges| (edges.name.clone(), edges.num_edges())).collect()
    }

    /// Numbers of reactions, metabolites, gpr and rmr edges; `None` without metabolism.
    #[getter]
    fn metabolism(&self) -> Option<(usize, usize, usize, usize)> {
        let metabolism = self.graph.metabolism.as_ref();
        metabolism.map(|all| (all.reactions, all.metabolites, all.num_gpr(), all.num_rmr()))
    }

    /// Mean and standard deviation of all labels, if the data set says so.
    #[getter]
    fn label_statistics(&self) -> Option<(f64, f64)> {
        self.label_statistics
    }

    /// Path of the file of the records.
    #[getter]
    fn file(&self) -> PathBuf {
        self.file.clone()
    }

    /// int64 `[2, E]`: a copy of the edges of the type with this index; of `gpr` and `rmr`, which come after the edge types.
    fn edge_index(&self, index: usize) -> PyResult<NativeTensor> {
        let types = &self.graph.edge_types;
        let metabolic = self.graph.metabolism.as_ref();
        let edges = match types.get(index) {
            Some(edges) => Some(&edges.edge_index),
            None => match index - types.len() {
                0 => metabolic.map(|all| &all.gpr),
                1 => metabolic.map(|all| &all.rmr),
                _ => None,
            },
        };
        let arrays = types.len() + if metabolic.is_some() { 2 } else { 0 };
        let edges = edges.ok_or(BindingError::NoArray { index, arrays })?;
        Ok(NativeTensor::owned_matrix(edges.clone(), 2))
    }

    /// float32 `[E]` of rmr; `None` without metabolism.
    fn stoichiometry(&self) -> Option<NativeTensor> {
        self.graph.metabolism.as_ref().map(|all| NativeTensor::owned(all.stoichiometry.clone()))
    }

    /// int64, ascending: the samples of a split, `all`, `train`, `val` or `test`, as trials of expctl have it.
    #[pyo3(signature = (split, *, seed))]
    fn split(&self, split: &str, seed: u64) -> PyResult<NativeTensor> {
        let split = word(&Split::ALL, Split::name, "split", split)?;
        // Of a split it does not matter which genes the samples perturb.
        let samples = SampleGenes::new(repeat_n(&[][..], self.__len__()));
        let selection = choose_samples(&samples, &Select { split, seed, ..Select::default() }, |_| false);
        let mut chosen: Vec<u64> = (0..selection.len()).collect();
        selection.to_records(&mut chosen);
        Ok(NativeTensor::owned(chosen))
    }
}

/// The samples of a graph, as rows that a sampler draws.
#[derive(Debug)]
pub struct SampleRows(u64);

impl SampleRows {
    pub fn of(dataset: &NativeGraphDataset) -> Self {
        Self(dataset.samples)
    }

    fn nothing<T>() -> Result<T, AnnDataError> {
        Err(AnnDataError::Other("samples of a graph have no columns of obs and no values".into()))
    }
}

impl ArrayStore for SampleRows {
    fn len(&self) -> u64 {
        self.0
    }

    fn genes(&self) -> &[String] {
        &[]
    }

    fn form(&self) -> Form {
        Form::Dense
    }

    fn stored_bytes(&self) -> u64 {
        0
    }

    fn labels(&self, _: &str) -> Result<Labels, AnnDataError> {
        Self::nothing()
    }

    fn numbers(&self, _: &str) -> Result<Vec<f64>, AnnDataError> {
        Self::nothing()
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Self::nothing()
    }
}
