//! DANGO as a whole, and TorchScript modules as models: what fits is trained, what does not is refused by name.

use std::path::{Path, PathBuf};

use expctl_rounding::{RATIO, assert_rounding, at_neighbours, floor, norm, values};
use expctl_worker::models::dango::{Dango, DangoConfig};
use expctl_worker::models::torchscript::ScriptModel;
use expctl_worker::models::{EdgeList, ModelError, SampleInputs, named_parameters, named_variables, parameters_digest};
use graph_loader::{Batch, Common, Layout};
use tch::{Device, Kind, Tensor, nn};
use torch_dist::ScriptModule;

use crate::support::generator;

const TYPES: [&str; 6] = ["neighborhood", "fusion", "cooccurence", "coexpression", "experimental", "database"];

fn small() -> DangoConfig {
    DangoConfig { num_genes: 30, hidden: 8, heads: 2, layers: 2, absent_weight: 1.0 }
}

fn edges(seed: i64, genes: i64, count: i64) -> (Vec<i64>, Vec<i64>) {
    ((0..count).map(|i| (i * i + seed) % genes).collect(), (0..count).map(|i| (i * 7 + seed * 3) % genes).collect())
}

fn build(config: &DangoConfig, seed: i64, types: usize) -> (nn::VarStore, Dango) {
    let _alone = generator();
    tch::manual_seed(seed);
    let vs = nn::VarStore::new(Device::Cpu);
    let lists: Vec<_> = (0..types).map(|i| edges(i as i64, config.num_genes, 90)).collect();
    let graphs: Vec<EdgeList> =
        lists.iter().zip(TYPES).map(|((s, t), name)| EdgeList { name, sources: s, targets: t }).collect();
    let model = Dango::new(&vs.root(), config, &graphs).unwrap();
    (vs, model)
}

#[test]
fn the_published_model_has_3138270_parameters() {
    let (vs, _) = build(&DangoConfig::published(6607), 0, 6);
    let parameters = named_parameters(&vs);
    let count: usize = parameters.iter().map(|(_, p)| p.numel()).sum();
    assert_eq!(count, 3_138_270);
    let part =
        |of: &str| -> usize { parameters.iter().filter(|(n, _)| n.starts_with(of)).map(|(_, p)| p.numel()).sum() };
    assert_eq!(part("embedding"), 422_848);
    assert_eq!(part("encoders.3.conv1") + part("encoders.3.conv2"), 16_512);
    assert_eq!(part("encoders.3.reconstruction"), 429_455);
    assert_eq!(part("meta"), 2_113);
    assert_eq!(part("hyper_sagnn.static"), 4_160);
    assert_eq!(part("hyper_sagnn.attention1"), 16_641);
    assert_eq!(part("hyper_sagnn.prediction"), 65);
    let embedding = &parameters.iter().find(|(n, _)| n == "embedding").unwrap().1;
    // The standard error of that of 422,848 draws is 0.0001.
    assert!((embedding.std(true).double_value(&[]) - 0.1).abs() < 1e-3);
}

#[test]
fn a_seed_determines_every_bit() {
    let digest = |seed| parameters_digest(&named_parameters(&build(&small(), seed, 2).0)).unwrap();
    assert_eq!(digest(7), digest(7));
    assert_ne!(digest(7), digest(8));
}

#[test]
fn a_sample_is_scored_alone_as_in_a_batch() {
    let (vs, model) = build(&small(), 1, 3);
    let genes = Tensor::from_slice(&[4i64, 9, 2, 17, 17, 5, 0]);
    let sample = Tensor::from_slice(&[0i64, 0, 0, 1, 2, 2, 2]);
    let in_batch = || values(&model.forward(&genes, &sample, 4, false).unwrap().prediction);
    let all = in_batch();
    assert_eq!(all[3], 0.0, "a sample without genes");
    let alone = [0..3, 3..4, 4..7].map(|range| {
        let part = genes.slice(0, range.start, range.end, 1);
        model.forward(&part, &Tensor::zeros_like(&part), 1, false).unwrap().prediction.double_value(&[0])
    });
    let near = at_neighbours(&vs, in_batch);
    for (i, alone) in alone.into_iter().enumerate() {
        let peers: Vec<f64> = near.iter().map(|near| near[i] - all[i]).collect();
        assert_rounding(&format!("sample {i}"), (all[i] - alone).abs(), &peers, floor(&[alone], 8));
    }
    let peers: Vec<f64> = near.iter().map(|near| near[0] - all[0]).collect();
    assert!((all[0] - all[2]).abs() > RATIO * norm(&peers), "{all:?}: samples are told apart");
}

#[test]
fn every_parameter_gets_a_finite_gradient_even_beside_a_single_gene() {
    let (vs, model) = build(&small(), 2, 3);
    let output =
        model.forward(&Tensor::from_slice(&[3i64, 8, 21, 11]), &Tensor::from_slice(&[0i64, 1, 1, 1]), 2, true).unwrap();
    let loss = output.prediction.square().sum(Kind::Float) + output.reconstruction.unwrap();
    loss.backward();
    for (name, p) in named_parameters(&vs) {
        assert!(p.grad().defined(), "{name}");
        assert!(p.grad().isfinite().all().int64_value(&[]) == 1, "{name}");
    }
}

#[test]
fn without_reconstruction_the_heads_stay_out() {
    let (vs, model) = build(&small(), 2, 2);
    let output = model.forward(&Tensor::from_slice(&[3i64, 8]), &Tensor::from_slice(&[0i64, 0]), 1, false).unwrap();
    assert!(output.reconstruction.is_none());
    output.prediction.sum(Kind::Float).backward();
    for (name, p) in named_parameters(&vs) {
        assert_eq!(p.grad().defined(), !name.contains("reconstruction"), "{name}");
    }
}

#[test]
fn impossible_models_are_refused() {
    let vs = nn::VarStore::new(Device::Cpu);
    let refuse = |config: DangoConfig, graphs: &[EdgeList]| -> String {
        let error: ModelError = Dango::new(&vs.root(), &config, graphs).unwrap_err();
        error.to_string()
    };
    let good = EdgeList { name: "fusion", sources: &[1], targets: &[2] };
    assert_eq!(
        refuse(DangoConfig { heads: 3, ..small() }, &[good]),
        "impossible model size: 8 channels cannot be split among 3 heads"
    );
    assert_eq!(refuse(small(), &[]), "impossible model size: no edge types");
    assert_eq!(
        refuse(small(), &[EdgeList { targets: &[30], ..good }]),
        "edge type fusion: gene 30 is not among 30 genes"
    );
    assert_eq!(refuse(small(), &[EdgeList { targets: &[], ..good }]), "edge type fusion: 1 sources and 0 targets");
}

/// A weight for each of ten genes, summed over a sample.
const SUM: &str = "
def forward(self, genes, gene_sample, batch_size: int):
    return torch.zeros([batch_size]).index_add(0, gene_sample, self.weight[genes])
";

fn module(dir: &Path, source: &str, parameters: bool) -> PathBuf {
    let weight = ("weight".to_owned(), Tensor::arange(10, (Kind::Float, Device::Cpu)));
    let parameters = if parameters { vec![weight] } else { Vec::new() };
    let path = dir.join("module.pt");
    ScriptModule::define(&parameters, source).unwrap().save(&path).unwrap();
    path
}

fn batch() -> Batch {
    let common = Common {
        genes: vec![1, 2, 5],
        gene_sample: vec![0, 0, 1],
        gene_ptr: vec![0, 2, 3],
        labels: vec![0.5, 1.0],
        p_values: vec![0.1, 0.1],
    };
    Batch { common, layout: Layout::Shared { removed: Vec::new() } }
}

const INPUTS: [&str; 3] = ["genes", "gene_sample", "batch_size"];

fn load(path: &Path, inputs: &[&str], vs: &nn::VarStore) -> Result<ScriptModel, String> {
    let inputs: Vec<String> = inputs.iter().map(|i| (*i).to_owned()).collect();
    ScriptModel::load(path.to_str().unwrap(), &inputs, &["physical"], &vs.root()).map_err(|e| e.to_string())
}

#[test]
fn its_parameters_are_trained_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = module(dir.path(), SUM, true);
    let vs = nn::VarStore::new(Device::Cpu);
    let script = load(&path, &INPUTS, &vs).unwrap();
    let batch = batch();
    let inputs = SampleInputs::new(&batch, &[], false, Device::Cpu).unwrap();
    let predict = || Vec::<f32>::try_from(script.forward(&inputs).unwrap().prediction).unwrap();
    assert_eq!(predict(), [3.0, 5.0]);
    let parameters = named_parameters(&vs);
    assert_eq!(parameters.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["weight"]);
    script.forward(&inputs).unwrap().prediction.sum(Kind::Float).backward();
    let gradient = Vec::<f32>::try_from(parameters[0].1.grad()).unwrap();
    assert_eq!(gradient[..6], [0.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
    tch::no_grad(|| _ = parameters[0].1.shallow_clone().fill_(2.0));
    assert_eq!(predict(), [4.0, 2.0]);
    assert_eq!(named_variables(&vs).len(), 1);
}

#[test]
fn what_does_not_fit_is_refused_and_the_file_named() {
    let dir = tempfile::tempdir().unwrap();
    let vs = nn::VarStore::new(Device::Cpu);
    let refused = |path: &Path, inputs: &[&str], expected: &[&str]| {
        let message = load(path, inputs, &vs).unwrap_err();
        let name = path.to_str().unwrap();
        assert!(expected.iter().chain([&name]).all(|part| message.contains(part)), "{message}");
    };
    let sum = module(dir.path(), SUM, true);
    refused(
        &sum,
        &["genes"],
        &["forward takes (genes: Tensor, gene_sample: Tensor, batch_size: int)", "(genes: Tensor)"],
    );
    refused(&sum, &["genes", "gene_sample", "gene_ptr"], &["gene_ptr: Tensor"]);
    refused(&sum, &["genes", "gene_sample", "edge_mask.tflink"], &["there is no input `edge_mask.tflink`"]);
    refused(&module(dir.path(), "def forward(self, genes):\n    return genes\n", false), &["genes"], &["no parameter"]);
    let text = dir.path().join("text.pt");
    std::fs::write(&text, "no module").unwrap();
    refused(&text, &INPUTS, &["load a module"]);
}

#[test]
fn what_it_returns_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let batch = batch();
    let inputs = SampleInputs::new(&batch, &[], false, Device::Cpu).unwrap();
    let of = |body: &str| {
        let source = format!("def forward(self, genes, gene_sample, batch_size: int):\n    return {body}\n");
        let path = module(dir.path(), &source, true);
        let vs = nn::VarStore::new(Device::Cpu);
        let script = load(&path, &INPUTS, &vs).unwrap();
        script.forward(&inputs).map(|output| output.prediction.size()).map_err(|e| e.to_string())
    };
    assert_eq!(of("self.weight[:2]"), Ok(vec![2]));
    assert_eq!(of("self.weight[:2].unsqueeze(1)"), Ok(vec![2]));
    assert!(of("self.weight").unwrap_err().contains("returns Float [10] for 2 samples, not Float [2] or [2, 1]"));
    assert!(of("genes[:2]").unwrap_err().contains("Int64"));
    assert!(of("(genes, genes)").unwrap_err().contains("not a Tensor"));
}
