//! TorchScript modules as models: what fits is trained, what does not is refused by name.

use std::path::{Path, PathBuf};

use expctl_worker::models::torchscript::ScriptModel;
use expctl_worker::models::{SampleInputs, named_parameters, named_variables};
use graph_loader::{Batch, Common, Layout};
use tch::{Device, Kind, Tensor, nn};
use torch_dist::ScriptModule;

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
