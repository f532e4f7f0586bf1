use std::sync::atomic::Ordering;

use expctl_settings::{DeviceMasks, Implementation};
use graph_loader::Processor;
use tch::Kind;

use super::cases::Case;
use super::rounding::norm;
use super::run::{Built, Outcome, Start};
use crate::rank_processes::run_alone;
use crate::support::{THREADS, generator};

/// Tolerance of outputs and of the gradient of each parameter. Rounding is about 1e-12 here; this is a thousand times that, for any processor,
/// and still a hundredth of the error of a single operation in float32.
pub const TOLERANCE: f64 = 1e-9;

/// Biases before a softmax, which have no effect: their gradient is 0 but for rounding, and has no size of its own.
fn is_zero(name: &str) -> bool {
    ["readout.gate.1.bias", "aggregation.scorer.1.bias", ".k.bias"].iter().any(|end| name.ends_with(end))
}

/// Assert that two outcomes in double precision are those of one function, but for rounding.
pub fn assert_same(name: &str, expected: &Outcome, got: &Outcome) {
    let overall = expected.size();
    assert!(overall > 0.0);
    let apart = got.from(expected);
    assert!(apart.encodings < TOLERANCE && apart.predictions < TOLERANCE, "{name}: {apart:?}");
    for ((parameter, a), (_, b)) in expected.gradients.iter().zip(&got.gradients) {
        let size = if is_zero(parameter) { overall } else { norm(a) };
        let difference = norm(&(a - b));
        assert!(difference <= TOLERANCE * size, "{name}: {parameter}: {difference:e} of {size:e}");
    }
}

/// All implementations, with every processor that they read from, are one function.
fn are_one_function(cases: Vec<Case>) {
    for case in cases {
        let (parameters, weight) = {
            let _alone = generator();
            tch::manual_seed(case.seed as i64);
            let built = Built::drawn(&case, Implementation::Replicated, Processor::Lazy);
            (built.parameters(Start::Shifted), case.weight())
        };
        let expected = Built::replicated(&case).with(&parameters, Kind::Double).run(&weight);
        let check = |what: &str, built: Built| {
            let got = built.with(&parameters, Kind::Double).run(&weight);
            assert_same(&format!("{}, {what}", case.name), &expected, &got);
        };
        for implementation in [Implementation::Shared, Implementation::Operations] {
            for processor in [Processor::Shared, Processor::Ids] {
                let what = format!("{}, {}", implementation.name(), processor.name());
                check(&what, Built::new(&case, implementation, processor));
            }
        }
        for way in [DeviceMasks::Looped, DeviceMasks::Vectorised] {
            check(way.name(), Built::with_device_masks(&case, way));
        }
    }
}

#[test]
fn norms_and_aggregations_are_one_function() {
    are_one_function(Case::norms_and_aggregations());
}

#[test]
fn local_heads_are_one_function() {
    are_one_function(Case::local_heads());
}

#[test]
fn sizes_are_one_function_with_two_threads() {
    run_alone("lazy_agreement::double::sizes_with_two_threads");
}

#[test]
#[ignore = "entry of the process that sizes_are_one_function_with_two_threads starts"]
fn sizes_with_two_threads() {
    THREADS.store(2, Ordering::SeqCst);
    are_one_function(Case::sizes());
}
