//! The shared lazy model: what it refuses, and that its steps can be repeated. That it gives what the replicated one gives is
//! tested beside it, in `models/lazy/agreement`.
#![expect(clippy::unwrap_used, reason = "a test")]

mod lazy_common;

use expctl_pipeline::collate::{Batch, Layout};
use expctl_record::{Implementation, Processor};
use expctl_worker::models::lazy::LazyConfig;
use expctl_worker::models::{Inputs, ModelError, named_parameters};
use lazy_common::{Case, SMALL, build_as, graph};
use tch::{Device, Kind, Tensor};

const SAMPLES: [&[i64]; 4] = [&[4, 9, 2], &[7], &[], &[1, 2, 3, 10]];

#[test]
fn what_the_loader_got_wrong_is_an_error() {
    let (_vs, shared) = build_as(Implementation::Shared, &SMALL, 5);
    let refusal = |batch: &Batch| match shared.forward(&Inputs::of(batch, &[], false, Device::Cpu).unwrap()) {
        Err(ModelError::Inputs(reason)) => reason,
        other => format!("{other:?}"),
    };
    let mut batch = Case::of(Processor::Ids, &SAMPLES).batch;
    batch.common.genes[0] = 30;
    assert_eq!(refusal(&batch), "a gene that is not among 30");
    let mut batch = Case::of(Processor::Shared, &SAMPLES).batch;
    let Layout::Shared { removed } = &mut batch.layout else { unreachable!() };
    let edges = graph().edge_types[1].num_edges();
    *removed[1].positions.last_mut().unwrap() = edges as i32;
    assert_eq!(refusal(&batch), format!("regulatory: edge {edges} is not among {edges}"));
}

#[test]
fn the_same_step_gives_the_same_bits() {
    let case = Case::of(Processor::Ids, &SAMPLES);
    let (vs, shared) = build_as(Implementation::Shared, &LazyConfig { hidden: 16, ..SMALL }, 9);
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
