use expctl_settings::{DeviceMasks, Implementation, Precision};
use expctl_worker::device_masks::DeviceMaskMaker;
use expctl_worker::models::lazy::Lazy;
use expctl_worker::models::{EdgeList, SampleInputs, named_parameters};
use graph_loader::{Batch, Processor};
use tch::{Device, Kind, Tensor, nn};
use torch_dist::Autocast;

use super::cases::{Case, collate};
use crate::support::generator;

/// Origin of the parameters of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The initial ones.
    Initial,
    /// After some steps of training.
    Trained,
    /// Biases, norms and ε away from 0 and 1, where a missing term would have no effect.
    Shifted,
}

/// The results of one implementation, converted to double precision.
pub struct Outcome {
    /// Wild type's genes, its readout, the samples' readouts.
    pub encodings: [Tensor; 3],
    pub prediction: Tensor,
    /// Gradient of Σ prediction · weight, by parameter.
    pub gradients: Vec<(String, Tensor)>,
}

/// The case's model in one implementation and one precision.
pub struct Built {
    vs: nn::VarStore,
    model: Lazy,
    batch: Batch,
    /// Masks that the step makes; empty where it makes none.
    masks: Vec<Tensor>,
}

impl Built {
    pub fn new(case: &Case, implementation: Implementation, processor: Processor) -> Self {
        let _alone = generator();
        Self::drawn(case, implementation, processor)
    }

    /// The same for a caller that holds the generator.
    pub fn drawn(case: &Case, implementation: Implementation, processor: Processor) -> Self {
        let vs = nn::VarStore::new(Device::Cpu);
        let lists = case.graph.edge_types.iter();
        let lists: Vec<EdgeList<'_>> =
            lists.map(|e| EdgeList { name: &e.name, sources: e.sources(), targets: e.targets() }).collect();
        let indices: Vec<usize> = (0..lists.len()).collect();
        let model = Lazy::new(&vs.root(), &case.config, implementation, &lists, &indices).unwrap();
        Self { vs, model, batch: collate(processor, &case.graph, &case.samples), masks: Vec::new() }
    }

    /// On gene ids and masks that the step makes in this way.
    pub fn with_device_masks(case: &Case, way: DeviceMasks) -> Self {
        let built = Self::new(case, Implementation::Operations, Processor::Ids);
        let maker = DeviceMaskMaker::new(way, &case.graph, Device::Cpu).unwrap().unwrap();
        let masks = maker.make(&built.batch.common).unwrap();
        Self { masks, ..built }
    }

    pub fn replicated(case: &Case) -> Self {
        Self::new(case, Implementation::Replicated, Processor::Lazy)
    }

    /// Names of its parameters, in their order.
    pub fn names(&self) -> Vec<String> {
        named_parameters(&self.vs).into_iter().map(|(name, _)| name).collect()
    }

    /// With these parameters, which are float32 numbers.
    pub fn with(mut self, parameters: &[Tensor], kind: Kind) -> Self {
        self.vs.set_kind(kind);
        tch::no_grad(|| {
            for ((_, mut own), given) in named_parameters(&self.vs).into_iter().zip(parameters) {
                own.copy_(given);
            }
        });
        self
    }

    /// Parameters as a run would have them; the caller holds the generator.
    pub fn parameters(&self, start: Start) -> Vec<Tensor> {
        if start == Start::Trained {
            let mut optimizer = nn::OptimizerConfig::build(nn::AdamW::default(), &self.vs, 1e-3).unwrap();
            let inputs = SampleInputs::new(&self.batch, &[], true, Device::Cpu).unwrap();
            let labels = Tensor::randn([inputs.batch_size], (Kind::Float, Device::Cpu));
            for _ in 0..40 {
                let prediction = self.model.forward(&inputs).unwrap().prediction;
                optimizer.backward_step(&(prediction - &labels).square().mean(None));
            }
        }
        let one = |(_, parameter): (String, Tensor)| {
            let shifted = start == Start::Shifted && parameter.dim() == 1;
            tch::no_grad(|| if shifted { &parameter + parameter.randn_like() * 0.2 } else { parameter.copy() })
        };
        named_parameters(&self.vs).into_iter().map(one).collect()
    }

    pub fn run(&self, weight: &Tensor) -> Outcome {
        self.run_in(Precision::Float32, weight)
    }

    pub fn run_in(&self, precision: Precision, weight: &Tensor) -> Outcome {
        let inputs = SampleInputs::new(&self.batch, &self.masks, true, Device::Cpu).unwrap();
        let region = (precision == Precision::Bf16Mixed).then(|| Autocast::bf16(Device::Cpu));
        let encoded = self.model.encode(&inputs).unwrap();
        let prediction = self.model.predict(&encoded, &inputs).unwrap();
        drop(region);
        (&prediction * weight.to_kind(prediction.kind())).sum(None).backward();
        let double = |t: &Tensor| t.detach().to_kind(Kind::Double);
        let gradients = named_parameters(&self.vs).into_iter().map(|(name, mut parameter)| {
            let gradient = parameter.grad();
            // A local head whose term is 0 has none.
            let gradient = if gradient.defined() { double(&gradient).copy() } else { double(&parameter.zeros_like()) };
            parameter.zero_grad();
            (name, gradient)
        });
        Outcome {
            encodings: [double(&encoded.genes), double(&encoded.wild_type), double(&encoded.samples)],
            prediction: double(&prediction),
            gradients: gradients.collect(),
        }
    }
}

impl Case {
    /// Weights of one sign, so that the samples' gradients do not cancel; 0 for samples without genes, which are the wild type.
    pub fn weight(&self) -> Tensor {
        let some: Vec<f32> = self.samples.iter().map(|s| f32::from(!s.genes.is_empty())).collect();
        (Tensor::rand([some.len() as i64], (Kind::Float, Device::Cpu)) + 0.5) * Tensor::from_slice(&some)
    }
}
