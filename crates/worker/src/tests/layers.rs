//! Every layer of DANGO and of the lazy model against Python scripts that rebuild it from the formulas. A script gets its cases (inputs,
//! outputs, gradients) in one file.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use expctl_rounding::{NEIGHBOURS, RATIO};
use expctl_settings::{Aggregation as Join, Implementation, LocalHead, Norm};
use graph_loader::{Batch, CellGraph, EdgeType, Processor, Sample};
use tch::{Device, Kind, Tensor, nn};
use test_support::{Requirement, skip};

use crate::models::dango::{
    Dango, DangoConfig, DangoGraph, MetaEmbedding, ReconstructionHead, SageConv, xavier_linear,
};
use crate::models::layers::{Activation, HyperSagnn, HyperSagnnOptions};
use crate::models::lazy::layers::{
    Aggregation, ChannelNorm, Convolution, GeluMlp, LazyParameters, Preprocessor, Readout,
};
use crate::models::lazy::replicated::MaskedEdges;
use crate::models::lazy::{Lazy, LazyConfig};
use crate::models::{EdgeList, SampleInputs};
use crate::tests::collate;

/// Exit code of PyTorch's set-up where no wheel fits this Python.
const NO_PYTORCH: i32 = 3;

/// libtorch has one generator for the process, and tests run side by side.
static GENERATOR: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Cases that are gathered for a script.
struct Cases {
    kind: Kind,
    tensors: Vec<(String, Tensor)>,
}

impl Cases {
    /// No cases yet; all are computed in `kind`.
    const fn new(kind: Kind) -> Self {
        Self { kind, tensors: Vec::new() }
    }

    /// Compute a case, as `tests/python/compare_layers.py` describes it. `make` builds a layer in the store; then its
    /// parameters are shifted, so that biases are not 0 and norms not 1. `run` computes with it and the named inputs, which
    /// are differentiated too; `constants` are for the script alone.
    fn add<L>(
        &mut self,
        name: &str,
        inputs: &[(&str, &[i64])],
        constants: Vec<(String, Tensor)>,
        make: impl FnOnce(&nn::Path) -> L,
        run: impl FnOnce(&L, &[Tensor]) -> Tensor,
    ) {
        let _alone = GENERATOR.lock();
        tch::manual_seed(7);
        let mut vs = nn::VarStore::new(Device::Cpu);
        let layer = make(&vs.root());
        vs.set_kind(self.kind);
        let float = (self.kind, Device::Cpu);
        let mut leaves: Vec<(String, Tensor)> = vs.variables().into_iter().collect();
        leaves.sort_by(|a, b| a.0.cmp(&b.0));
        tch::no_grad(|| {
            for (_, parameter) in &mut leaves {
                let shift = Tensor::randn(parameter.size(), float) * 0.1;
                let _ = parameter.g_add_(&shift);
            }
        });
        let inputs =
            inputs.iter().map(|(name, size)| ((*name).to_owned(), Tensor::randn(*size, float).set_requires_grad(true)));
        let inputs: Vec<(String, Tensor)> = inputs.collect();
        let values: Vec<Tensor> = inputs.iter().map(|(_, tensor)| tensor.shallow_clone()).collect();
        let out = run(&layer, &values);
        let weight = Tensor::randn(out.size(), float);
        (&out * &weight).sum(self.kind).backward();
        for (leaf, tensor) in leaves.into_iter().chain(inputs) {
            let grad = tensor.grad();
            if grad.defined() {
                self.tensors.push((format!("{name}/grad/{leaf}"), grad));
            }
            self.tensors.push((format!("{name}/leaf/{leaf}"), tensor.detach()));
        }
        self.tensors.extend(constants.into_iter().map(|(of, tensor)| (format!("{name}/const/{of}"), tensor)));
        self.tensors.extend([(format!("{name}/out"), out.detach()), (format!("{name}/weight"), weight)]);
    }

    /// Have `tests/python/SCRIPT` rebuild all cases with PyTorch, and bound the rounding errors.
    fn check_with(self, script: &str) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let setup =
            Command::new("bash").arg(root.join("scripts/torch_python.sh")).stderr(Stdio::inherit()).output().unwrap();
        if setup.status.code() == Some(NO_PYTORCH) {
            skip(Requirement::Other, format_args!("{script} needs PyTorch in Python; no wheel fits this Python"));
            return;
        }
        assert!(setup.status.success(), "scripts/torch_python.sh failed");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cases.safetensors");
        Tensor::write_safetensors(&self.tensors, &file).unwrap();
        let answer = Command::new(String::from_utf8(setup.stdout).unwrap().trim())
            .args([&root.join("tests/python").join(script), &file])
            .args([RATIO.to_string(), NEIGHBOURS.to_string()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&answer.stdout);
        assert!(answer.status.success(), "{said}{}", String::from_utf8_lossy(&answer.stderr));
    }
}

/// One whole number as a constant of a case.
fn number(name: &str, value: i64) -> (String, Tensor) {
    (name.to_owned(), Tensor::from_slice(&[value]))
}

/// Whole numbers as a constant of a case.
fn numbers(name: &str, values: &[i64]) -> (String, Tensor) {
    (name.to_owned(), Tensor::from_slice(values))
}

// Nothing leads to gene 3, 0 → 1 is listed twice, 2 has a self-loop.
const SOURCES: [i64; 7] = [0, 0, 4, 2, 3, 1, 5];
const TARGETS: [i64; 7] = [1, 1, 1, 2, 0, 4, 6];
const GENES: i64 = 7;

fn list(name: &str) -> EdgeList<'_> {
    EdgeList { name, sources: &SOURCES, targets: &TARGETS }
}

fn index() -> (String, Tensor) {
    ("index".to_owned(), Tensor::from_slice(&[SOURCES, TARGETS].concat()).view([2, -1]))
}

#[test]
fn every_layer_of_dango_is_what_its_formula_says() {
    let mut cases = Cases::new(Kind::Float);
    let graph = DangoGraph::new(&list("t"), GENES, true, Device::Cpu).unwrap();
    let sage = |vs: &nn::Path| SageConv::new(vs / "conv", 8);
    cases.add("sage", &[("x", &[GENES, 8])], vec![index()], sage, |layer, x| {
        layer.forward(&x[0], &graph.mean_of_sources).unwrap()
    });
    let meta = |vs: &nn::Path| MetaEmbedding::new(vs / "meta", 8);
    cases.add("meta", &[("x", &[5, 3, 8])], Vec::new(), meta, |layer, x| layer.forward(&x[0]));
    for (variant, lambda) in [("published", 1.0), ("tenth", 0.1)] {
        let weight = ("lambda".to_owned(), Tensor::from_slice(&[lambda]));
        let make = |vs: &nn::Path| ReconstructionHead::new(vs / "reconstruction", 8, GENES);
        let name = format!("reconstruction:{variant}");
        cases.add(&name, &[("x", &[GENES, 8])], vec![index(), weight], make, |layer, x| {
            layer.loss(&x[0], &graph, lambda).unwrap()
        });
    }
    let sample = [0i64, 0, 0, 1, 2, 2, 3, 3, 3, 3];
    let constants = vec![numbers("sample", &sample), number("batch", 4)];
    let sample = Tensor::from_slice(&sample);
    let make = |vs: &nn::Path| {
        let options = HyperSagnnOptions { activation: Activation::Relu, moves_lone_gene: true, linear: &xavier_linear };
        HyperSagnn::new(&(vs / "hyper_sagnn"), 8, 2, 2, options)
    };
    cases.add("hyper_sagnn", &[("x", &[10, 8])], constants, make, |layer, x| layer.forward(&x[0], &sample, 4).unwrap());

    let config = DangoConfig { hidden: 8, heads: 2, ..DangoConfig::published(GENES) };
    let (genes, sample) = ([4i64, 2, 6, 5, 0, 1], [0i64, 0, 0, 1, 2, 2]);
    let constants = vec![index(), numbers("genes", &genes), numbers("sample", &sample), number("batch", 3)];
    let [genes, sample] = [genes, sample].map(|values| Tensor::from_slice(&values));
    let make = |vs: &nn::Path| Dango::new(vs, &config, &[list("a"), list("b")]).unwrap();
    cases.add("model", &[], constants, make, |model, _| {
        let output = model.forward(&genes, &sample, 3, true).unwrap();
        Tensor::cat(&[output.prediction, output.reconstruction.unwrap().unsqueeze(0)], 0)
    });
    cases.check_with("dango_layers.py");
}

const TYPES: [&str; 3] = ["a", "b", "c"];
const SAMPLES: [&[i64]; 4] = [&[4, 9, 2], &[7], &[5, 0], &[1, 2, 3, 10]];

fn small() -> LazyConfig {
    LazyConfig { hidden: 8, layers: 2, convolution_layers: 3, heads: 2, ..LazyConfig::published(12) }
}

#[test]
fn every_layer_of_the_lazy_model_is_what_its_formula_says() {
    let mut cases = Cases::new(Kind::Float);
    let config = small();
    for (variant, over) in [("graph", Norm::Graph), ("node", Norm::Node)] {
        let of_nodes = || vec![number("of_nodes", i64::from(over == Norm::Node))];
        let name = format!("norm:{variant}");
        cases.add(
            &name,
            &[("x", &[12, 8])],
            of_nodes(),
            |vs| ChannelNorm::new(&(vs / "norm"), over, 8),
            |norm, x| norm.forward(&x[0]).unwrap(),
        );
        let with = LazyConfig { preprocessor_norm: over, ..config };
        let make = |vs: &tch::nn::Path| Preprocessor::new(vs, &with);
        let name = format!("preprocessor:{variant}");
        cases.add(&name, &[("x", &[12, 8])], of_nodes(), make, |layer, x| layer.forward(&x[0]).unwrap());
    }
    // 3 → 5 is listed twice, 0 → 5 is masked, 2 has a self-loop, nothing leads to 7.
    let index = Tensor::from_slice2(&[[3i64, 3, 0, 2, 1, 4], [5, 5, 5, 2, 0, 1]]);
    let mask = Tensor::from_slice(&[true, true, false, true, true, true]);
    let constants = vec![("index".to_owned(), index.copy()), ("mask".to_owned(), mask.copy())];
    let edges = MaskedEdges { index, mask: Some(mask.unsqueeze(1)) };
    cases.add(
        "convolution",
        &[("x", &[8, 8])],
        constants,
        |vs| Convolution::new(vs, &config),
        |layer, x| layer.forward(&edges.sums(&x[0]).unwrap(), &x[0]).unwrap(),
    );
    let make = |vs: &tch::nn::Path| Aggregation::new(vs, &config, &TYPES);
    cases.add("pairwise", &[("x", &[3, 12, 8])], Vec::new(), make, |layer, x| layer.forward(&x[0].unbind(0)).unwrap());
    cases.add(
        "global_head",
        &[("x", &[5, 8])],
        Vec::new(),
        |vs| GeluMlp::new(&(vs / "head"), &[8, 8, 1]),
        |layer, x| layer.forward(&x[0]).unwrap().squeeze_dim(1),
    );
    let sample = [0i64, 0, 0, 1, 2, 2, 3, 3, 3, 3];
    let constants = || vec![numbers("sample", &sample), number("batch", 4)];
    let sample = Tensor::from_slice(&sample);
    cases.add(
        "readout",
        &[("x", &[10, 8])],
        constants(),
        |vs| Readout::new(vs, 8),
        |layer, x| layer.forward(&x[0], &sample, 4).unwrap(),
    );
    cases.add(
        "local_head",
        &[("x", &[10, 8])],
        constants(),
        |vs| LazyParameters::local_head(vs, &config),
        |head, x| head.forward(&x[0], &sample, 4).unwrap(),
    );
    cases.check_with("lazy_layers.py");
}

#[test]
fn the_whole_model_is_what_its_formulas_say() {
    // In double precision, where a term that is slightly wrong shows: gradients are small differences of large terms.
    let mut cases = Cases::new(Kind::Double);
    let (batch, graph) = batch();
    let nodes = LazyConfig { norm: Norm::Node, preprocessor_norm: Norm::Node, ..small() };
    let without = LazyConfig { aggregation_norm: false, local_head: LocalHead::Zero, ..small() };
    let profiled = LazyConfig { aggregation: Join::Sum, local_head: LocalHead::None, ..small() };
    let mean = LazyConfig { aggregation: Join::Mean, local_head: LocalHead::Pooled, ..small() };
    let variants = [("published", small()), ("nodes", nodes), ("065", without), ("profiled", profiled), ("mean", mean)];
    for (variant, config) in variants {
        let make = |vs: &tch::nn::Path| {
            let lists = graph.edge_types.iter();
            let lists: Vec<EdgeList> = lists.map(EdgeList::from).collect();
            Lazy::new(vs, &config, Implementation::Replicated, &lists, &[0, 1, 2]).unwrap()
        };
        let inputs = SampleInputs::new(&batch, &[], true, Device::Cpu).unwrap();
        let constants = constants(&config, &batch, &graph);
        cases.add(&format!("model:{variant}"), &[], constants, make, |model, _| {
            model.forward(&inputs).unwrap().prediction
        });
    }
    cases.check_with("lazy_layers.py");
}

fn constants(config: &LazyConfig, batch: &Batch, graph: &CellGraph) -> Vec<(String, Tensor)> {
    let joins = [Join::PairwiseInteraction, Join::Sum, Join::Mean];
    let heads = [LocalHead::Full, LocalHead::Pooled, LocalHead::Zero, LocalHead::None];
    let index = |found: Option<usize>| found.unwrap() as i64;
    let mut all = vec![
        numbers("genes", &batch.common.genes),
        numbers("gene_sample", &batch.common.gene_sample),
        number("batch", batch.common.len() as i64),
        number("of_nodes", i64::from(config.norm == Norm::Node)),
        number("preprocessor_of_nodes", i64::from(config.preprocessor_norm == Norm::Node)),
        number("aggregation", index(joins.iter().position(|join| *join == config.aggregation))),
        number("normalised", i64::from(config.normalises_aggregate())),
        number("local_head", index(heads.iter().position(|head| *head == config.local_head))),
        number("heads", config.heads),
    ];
    for (i, edges) in graph.edge_types.iter().enumerate() {
        let index = Tensor::from_slice(&edges.edge_index).view([2, -1]);
        all.extend([(format!("index.{}", edges.name), index), number(&format!("place.{}", edges.name), i as i64)]);
    }
    all
}

/// A batch as the loader makes it, of a graph with self-loops, repeated edges and an isolated gene.
fn batch() -> (Batch, Arc<CellGraph>) {
    let edge_types = (0i64..).zip(TYPES).map(|(t, name)| {
        let sources = (0..25).map(|i| (i * i + t) % 11).chain(0..12);
        let targets = (0..25).map(|i| (i * 7 + t * 3) % 11).chain(0..12);
        EdgeType { name: name.to_owned(), edge_index: sources.chain(targets).collect() }
    });
    let genes = (0..12).map(|gene| format!("G{gene:02}")).collect();
    let graph = Arc::new(CellGraph { genes, edge_types: edge_types.collect(), metabolism: None });
    let samples = SAMPLES.map(|genes| Sample { genes: genes.to_vec(), ..Sample::default() });
    (collate(Processor::Lazy, &graph, &samples), graph)
}
