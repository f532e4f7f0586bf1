//! The lazy model on one graph for all samples: what it refuses, and that its steps can be repeated. That it gives what the replicated
//! one gives is tested in `lazy_agreement`.

use expctl_settings::Implementation;
use expctl_worker::models::lazy::LazyConfig;
use expctl_worker::models::{ModelError, SampleInputs, named_parameters};
use graph_loader::{Batch, Layout, Processor};
use tch::{Device, Kind, Tensor};

use crate::lazy_model::{Case, SMALL, build_as, graph};

const SAMPLES: [&[i64]; 4] = [&[4, 9, 2], &[7], &[], &[1, 2, 3, 10]];
const ONE_GRAPH: [Implementation; 2] = [Implementation::Shared, Implementation::Operations];

#[test]
fn what_the_loader_got_wrong_is_an_error() {
    for implementation in ONE_GRAPH {
        let (_vs, model) = build_as(implementation, &SMALL, 5);
        let refusal = |batch: &Batch| match model.forward(&SampleInputs::new(batch, &[], true, Device::Cpu).unwrap()) {
            Err(ModelError::Inputs(reason)) => reason,
            other => format!("{other:?}"),
        };
        let mut batch = Case::with_processor(Processor::Ids, &SAMPLES).batch;
        batch.common.genes[0] = 30;
        assert_eq!(refusal(&batch), "a gene that is not among 30");
        batch.common.genes[0] = 4;
        batch.common.gene_sample[1] = 4;
        assert_eq!(refusal(&batch), "sample 4 is not among 4");
        let mut batch = Case::with_processor(Processor::Shared, &SAMPLES).batch;
        let Layout::Shared { removed } = &mut batch.layout else { unreachable!() };
        let edges = graph().edge_types[1].num_edges();
        *removed[1].positions.last_mut().unwrap() = edges as i32;
        assert_eq!(refusal(&batch), format!("regulatory: edge {edges} is not among {edges}"));
    }
}

#[test]
fn what_the_operations_lack_is_named() {
    let (_vs, model) = build_as(Implementation::Operations, &SMALL, 5);
    let refusal = |inputs: &SampleInputs<'_>| model.forward(inputs).unwrap_err().to_string();
    const LACKS: &str = "the batch does not have what the model reads: ";
    let batch = Case::with_processor(Processor::Shared, &SAMPLES).batch;
    let on_the_host_alone = SampleInputs::new(&batch, &[], false, Device::Cpu).unwrap();
    assert_eq!(refusal(&on_the_host_alone), format!("{LACKS}removed edges of physical"));
    let batch = Case::with_processor(Processor::Ids, &SAMPLES).batch;
    // Masks of the first type alone, and of one sample.
    let masks = [Tensor::ones([graph().edge_types[0].num_edges() as i64], (Kind::Bool, Device::Cpu))];
    let of_another_batch = SampleInputs::new(&batch, &masks, true, Device::Cpu).unwrap();
    assert_eq!(refusal(&of_another_batch), format!("{LACKS}masks of all edges of physical"));
}

#[test]
fn the_same_step_gives_the_same_bits() {
    for implementation in ONE_GRAPH {
        same_bits(implementation);
    }
}

fn same_bits(implementation: Implementation) {
    let case = Case::with_processor(Processor::Ids, &SAMPLES);
    let (vs, shared) = build_as(implementation, &LazyConfig { hidden: 16, ..SMALL }, 9);
    let run = || {
        let prediction = shared.forward(&case.inputs()).unwrap().prediction;
        prediction.sum(Kind::Float).backward();
        let gradients = named_parameters(&vs).into_iter().map(|(name, mut parameter)| {
            let gradient = parameter.grad().copy();
            parameter.zero_grad();
            (name, gradient)
        });
        (prediction.detach(), gradients.collect::<Vec<(String, Tensor)>>())
    };
    let ((first, gradients), (second, others)) = (run(), run());
    assert_eq!(first, second);
    for ((name, gradient), (_, other)) in gradients.iter().zip(&others) {
        assert_eq!(gradient, other, "{name}");
    }
}
