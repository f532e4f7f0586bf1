use expctl_record::{DeviceMasks, Implementation, Processor};
use tch::Kind;

use super::cases::Case;
use super::rounding::norm;
use super::run::{Built, Outcome, Start};
use crate::models::layer_cases::GENERATOR;

/// Of outputs and of the gradient of each parameter. No bound of rounding, which is about 1e-12 here: a thousand times that for any
/// processor, and still a hundredth of what one operation in float32 would leave.
pub(super) const TOLERANCE: f64 = 1e-9;

/// Biases that a softmax does not see: their gradient is 0 but for rounding, and has no size of its own.
fn is_zero(name: &str) -> bool {
    ["readout.gate.1.bias", "aggregation.scorer.1.bias", ".k.bias"].iter().any(|end| name.ends_with(end))
}

/// What was computed in double precision is one function: no more is left than its rounding.
pub(super) fn assert_same(name: &str, expected: &Outcome, got: &Outcome) {
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

/// All implementations, from all that they read, are one function.
fn are_one_function(threads: i32, cases: Vec<Case>) {
    let _alone = GENERATOR.lock();
    tch::set_num_threads(threads);
    for case in cases {
        tch::manual_seed(case.seed as i64);
        let parameters = Built::replicated(&case).parameters(Start::Shifted);
        let weight = case.weight();
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
    are_one_function(1, Case::norms_and_aggregations());
}

#[test]
fn local_heads_are_one_function() {
    are_one_function(1, Case::local_heads());
}

#[test]
fn sizes_are_one_function() {
    are_one_function(2, Case::sizes());
}
