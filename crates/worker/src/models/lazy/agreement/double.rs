use expctl_record::{Implementation, Processor};
use tch::Kind;

use super::cases::Case;
use super::rounding::norm;
use super::run::{Built, Start};
use crate::models::layer_cases::GENERATOR;

/// Of outputs and of the gradient of each parameter. No bound of rounding, which is about 1e-12 here: a thousand times that for any
/// processor, and still a hundredth of what one operation in float32 would leave.
const TOLERANCE: f64 = 1e-9;

/// Biases that a softmax does not see: their gradient is 0 but for rounding, and has no size of its own.
fn is_zero(name: &str) -> bool {
    ["readout.gate.1.bias", "aggregation.scorer.1.bias", ".k.bias"].iter().any(|end| name.ends_with(end))
}

/// The two are one function: what is left in double precision is its rounding.
fn are_one_function(threads: i32, cases: Vec<Case>) {
    let _alone = GENERATOR.lock();
    tch::set_num_threads(threads);
    for case in cases {
        tch::manual_seed(case.seed as i64);
        let parameters = Built::replicated(&case).parameters(Start::Shifted);
        let weight = case.weight();
        let expected = Built::replicated(&case).with(&parameters, Kind::Double).run(&weight);
        let overall = expected.size();
        assert!(overall > 0.0);
        for processor in [Processor::Shared, Processor::Ids] {
            let shared = Built::new(&case, Implementation::Shared, processor).with(&parameters, Kind::Double);
            let got = shared.run(&weight);
            let name = format!("{}, {}", case.name, processor.name());
            let apart = got.from(&expected);
            assert!(apart.encodings < TOLERANCE && apart.predictions < TOLERANCE, "{name}: {apart:?}");
            for ((parameter, a), (_, b)) in expected.gradients.iter().zip(&got.gradients) {
                let size = if is_zero(parameter) { overall } else { norm(a) };
                let difference = norm(&(a - b));
                assert!(difference <= TOLERANCE * size, "{name}: {parameter}: {difference:e} of {size:e}");
            }
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
