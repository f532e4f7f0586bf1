//! `NativeGraphForm` says which arrays the batches of a graph have, and under which names. `GraphForm::each_array` fixes their order.

use std::fmt;
use std::sync::Arc;

use graph_loader::{Assembler, Batch, CellGraph, Collation, GraphBatchOptions, GraphError, Layout, Processor};
use pyo3::prelude::*;

use crate::dlpack::ArrayView;
use crate::error::{BindingError, graph_error};
use crate::fork::Running;
use crate::graph_dataset::NativeGraphDataset;

/// What a batch of B samples of a graph holds beside genes and labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphForm {
    /// Nothing.
    Ids,
    /// For each mask the positions of its False entries.
    Removed,
    /// For each mask a bit per entry.
    Packed,
    /// For each mask a byte per entry.
    Masks,
    /// What PyTorch Geometric makes of the published lazy samples: a graph for each sample, and masks.
    Pyg,
    /// What it makes of the published samples without edges.
    Perturbation,
}

/// A batch of samples of a graph.
pub struct SampleBatch {
    pub batch: Batch,
    /// int64 `[B]`: number of each sample in the store.
    pub index: Vec<u64>,
    pub form: GraphForm,
    pub graph: Arc<CellGraph>,
}

impl SampleBatch {
    /// A batch without samples.
    pub fn empty(form: GraphForm, graph: &Arc<CellGraph>, assembler: &Assembler) -> Self {
        Self { batch: assembler.empty(), index: Vec::new(), form, graph: Arc::clone(graph) }
    }
}

impl GraphForm {
    const ALL: [(&'static str, Self); 6] = [
        ("ids", Self::Ids),
        ("removed", Self::Removed),
        ("packed", Self::Packed),
        ("masks", Self::Masks),
        ("pyg", Self::Pyg),
        ("perturbation", Self::Perturbation),
    ];

    fn parse(name: &str) -> Result<Self, BindingError> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, form)| *form).ok_or_else(|| BindingError::UnknownForm { form: name.to_owned() })
    }

    fn options(self, follow_batch: Vec<String>) -> GraphBatchOptions {
        let processor = match self {
            Self::Ids => Processor::Ids,
            Self::Removed => Processor::Shared,
            Self::Packed => Processor::Packed,
            Self::Masks | Self::Pyg => Processor::Lazy,
            Self::Perturbation => Processor::Perturbation,
        };
        let options = GraphBatchOptions { follow_batch, ..GraphBatchOptions::new(processor) };
        match self {
            Self::Masks => GraphBatchOptions { collation: Collation::SharedIndex, ..options },
            _ => options,
        }
    }

    /// Pass on each array of a batch with its name, in an order that is the same for all batches of a form and a graph.
    ///
    /// Masks are those of each edge type in its order, then, with metabolism, of `reaction`, `gpr` and `rmr`.
    pub fn each_array(
        self,
        graph: &CellGraph,
        batch: &mut SampleBatch,
        mut each: impl FnMut(fmt::Arguments<'_>, ArrayView),
    ) {
        let SampleBatch { batch, index, .. } = batch;
        let common = &mut batch.common;
        let samples = common.labels.len();
        each(format_args!("genes"), ArrayView::of(&mut common.genes));
        each(format_args!("gene_sample"), ArrayView::of(&mut common.gene_sample));
        each(format_args!("gene_ptr"), ArrayView::of(&mut common.gene_ptr));
        each(format_args!("labels"), ArrayView::of(&mut common.labels));
        each(format_args!("p_values"), ArrayView::of(&mut common.p_values));
        each(format_args!("index"), ArrayView::of(index));
        let types = || graph.edge_types.iter().map(|edges| edges.name.as_str());
        let metabolic = || graph.metabolism.iter().flat_map(|_| ["reaction", "gpr", "rmr"]);
        let names = types().chain(metabolic());
        match &mut batch.layout {
            Layout::Ids => {}
            Layout::Shared { removed } => {
                for (name, lists) in names.zip(removed) {
                    each(format_args!("removed/{name}/positions"), ArrayView::of(&mut lists.positions));
                    each(format_args!("removed/{name}/ptr"), ArrayView::of(&mut lists.ptr));
                }
            }
            Layout::Packed { masks } => {
                for (name, mask) in names.zip(masks) {
                    let words = mask.entries.div_ceil(64);
                    let bits = ArrayView::bytes_of_words(&mut mask.words, samples, words);
                    each(format_args!("masks/{name}"), bits);
                }
            }
            Layout::Graphs(graphs) if self == Self::Masks => {
                let mut rows = |name: &str, mask: &mut Vec<u8>| {
                    let entries = mask.len() / samples.max(1);
                    each(format_args!("masks/{name}"), ArrayView::matrix(mask, samples, entries));
                };
                for (name, edges) in types().zip(&mut graphs.edges) {
                    rows(name, &mut edges.mask);
                }
                if let Some(metabolism) = &mut graphs.metabolism {
                    rows("reaction", &mut metabolism.reactions.kept);
                    rows("gpr", &mut metabolism.gpr.mask);
                    rows("rmr", &mut metabolism.rmr.mask);
                }
            }
            Layout::Graphs(graphs) => {
                each_node_array("gene", &mut graphs.genes, &mut each);
                each_phenotype_array(&mut graphs.phenotype, &mut each);
                each(format_args!("gene/x_batch"), ArrayView::of(&mut graphs.x.batch));
                each(format_args!("gene/x_ptr"), ArrayView::of(&mut graphs.x.ptr));
                for (name, edges) in types().zip(&mut graphs.edges) {
                    each_edge_array(name, edges, &mut each);
                }
                if let Some(metabolism) = &mut graphs.metabolism {
                    each_node_array("reaction", &mut metabolism.reactions, &mut each);
                    each(format_args!("reaction/w_growth"), ArrayView::of(&mut metabolism.w_growth));
                    each_node_array("metabolite", &mut metabolism.metabolites, &mut each);
                    each_edge_array("gpr", &mut metabolism.gpr, &mut each);
                    each_edge_array("rmr", &mut metabolism.rmr, &mut each);
                    let stoichiometry = ArrayView::of(&mut metabolism.stoichiometry);
                    each(format_args!("edges/rmr/stoichiometry"), stoichiometry);
                }
            }
            Layout::Perturbation { genes, phenotype } => {
                each_node_array("gene", genes, &mut each);
                each_phenotype_array(phenotype, &mut each);
            }
        }
    }
}

fn each_node_array(name: &str, nodes: &mut graph_loader::Nodes, each: &mut impl FnMut(fmt::Arguments<'_>, ArrayView)) {
    each(format_args!("{name}/mask"), ArrayView::of(&mut nodes.kept));
    each(format_args!("{name}/pert_mask"), ArrayView::of(&mut nodes.perturbed));
    each(format_args!("{name}/batch"), ArrayView::of(&mut nodes.batch));
    each(format_args!("{name}/ptr"), ArrayView::of(&mut nodes.ptr));
}

fn each_edge_array(name: &str, edges: &mut graph_loader::Edges, each: &mut impl FnMut(fmt::Arguments<'_>, ArrayView)) {
    let columns = edges.edge_index.len() / 2;
    each(format_args!("edges/{name}/edge_index"), ArrayView::matrix(&mut edges.edge_index, 2, columns));
    each(format_args!("edges/{name}/mask"), ArrayView::of(&mut edges.mask));
    each(format_args!("edges/{name}/num_edges"), ArrayView::of(&mut edges.num_edges));
}

fn each_phenotype_array(phenotype: &mut graph_loader::Phenotype, each: &mut impl FnMut(fmt::Arguments<'_>, ArrayView)) {
    each(format_args!("gene/phenotype_type_indices"), ArrayView::of(&mut phenotype.type_indices));
    each(format_args!("gene/phenotype_sample_indices"), ArrayView::of(&mut phenotype.sample_indices));
    each(format_args!("gene/phenotype_stat_type_indices"), ArrayView::of(&mut phenotype.stat_type_indices));
    each(format_args!("gene/phenotype_stat_sample_indices"), ArrayView::of(&mut phenotype.stat_sample_indices));
}

/// What batches hold, with the tables that they are made from: for each gene the list of its edges. They are built here, once, and
/// all streams share them.
#[pyclass(name = "GraphForm", module = "expctl._native", frozen)]
pub struct NativeGraphForm {
    pub form: GraphForm,
    pub graph: Arc<CellGraph>,
    pub assembler: Assembler,
}

#[pymethods]
impl NativeGraphForm {
    /// A form of batches of `dataset`: `ids`, `removed`, `packed`, `masks`, `pyg` or `perturbation`. `follow_batch` is of `pyg`.
    #[new]
    #[pyo3(signature = (dataset, form, *, follow_batch))]
    fn new(py: Python<'_>, dataset: &NativeGraphDataset, form: &str, follow_batch: Vec<String>) -> PyResult<Self> {
        let form = GraphForm::parse(form)?;
        let _running = Running::begin()?;
        let graph = Arc::clone(&dataset.graph);
        let build = || -> Result<Assembler, GraphError> {
            Assembler::new(&form.options(follow_batch), Arc::clone(&dataset.graph))
        };
        let assembler = py.detach(build).map_err(graph_error)?;
        Ok(Self { form, graph, assembler })
    }

    /// Names of the arrays of a batch, in order.
    fn arrays(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut batch = SampleBatch::empty(self.form, &self.graph, &self.assembler);
        self.form.each_array(&self.graph, &mut batch, |name, _| names.push(name.to_string()));
        names
    }
}
