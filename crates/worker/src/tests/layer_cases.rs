//! Cases of layers for the Python scripts that rebuild them: inputs, outputs and gradients, in one file.

use std::path::Path;
use std::process::{Command, Stdio};

use expctl_rounding::{NEIGHBOURS, RATIO};
use tch::{Device, Kind, Tensor, nn};
use test_support::{Requirement, skip};

/// Exit code of PyTorch's set-up where no wheel fits this Python.
const NO_PYTORCH: i32 = 3;

/// libtorch has one generator for the process, and tests run side by side.
pub static GENERATOR: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Cases that are gathered for a script.
pub struct Cases {
    kind: Kind,
    tensors: Vec<(String, Tensor)>,
}

impl Cases {
    /// No cases yet; all are computed in `kind`.
    pub const fn new(kind: Kind) -> Self {
        Self { kind, tensors: Vec::new() }
    }

    /// Compute a case, as `tests/python/compare_layers.py` describes it. `make` builds a layer in the store; then its
    /// parameters are shifted, so that biases are not 0 and norms not 1. `run` computes with it and the named inputs, which
    /// are differentiated too; `constants` are for the script alone.
    pub fn add<L>(
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
    pub fn check_with(self, script: &str) {
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
pub fn number(name: &str, value: i64) -> (String, Tensor) {
    (name.to_owned(), Tensor::from_slice(&[value]))
}

/// Whole numbers as a constant of a case.
pub fn numbers(name: &str, values: &[i64]) -> (String, Tensor) {
    (name.to_owned(), Tensor::from_slice(values))
}
