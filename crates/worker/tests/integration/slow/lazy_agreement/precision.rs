//! In double precision all implementations are one function; in float32 and under autocast each errs as the replicated one does.

use std::io::Write as _;
use std::sync::atomic::Ordering;

use expctl_rounding::{NEIGHBOURS, assert_rounding, floor, nudged};
use expctl_settings::{DeviceMasks, Implementation, Precision};
use graph_loader::Processor;
use tch::{Kind, Tensor};

use super::{AgreementCase, Apart, Built, Outcome, Start, norm};
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
fn are_one_function(cases: Vec<AgreementCase>) {
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
        for processor in [Processor::Shared, Processor::Ids] {
            let what = format!("batched, {}", processor.name());
            check(&what, Built::new(&case, Implementation::Operations, processor).batched());
        }
        for way in [DeviceMasks::Looped, DeviceMasks::Vectorised] {
            check(way.name(), Built::with_device_masks(&case, way));
            check(way.name(), Built::with_device_masks(&case, way).batched());
        }
    }
}

#[test]
fn norms_and_aggregations_are_one_function() {
    are_one_function(AgreementCase::norms_and_aggregations());
}

#[test]
fn local_heads_are_one_function() {
    are_one_function(AgreementCase::local_heads());
}

#[test]
fn sizes_are_one_function_with_two_threads() {
    run_alone("slow::lazy_agreement::precision::sizes_with_two_threads");
}

#[test]
#[ignore = "entry of the process that sizes_are_one_function_with_two_threads starts"]
fn sizes_with_two_threads() {
    THREADS.store(2, Ordering::SeqCst);
    are_one_function(AgreementCase::sizes());
}

/// Implementations and their processors that are compared with the replicated one: both that compute on one graph, and both ways to name the
/// edges that samples lack.
const JUDGED: [Judged; 4] = [
    Judged { implementation: Implementation::Shared, processor: Processor::Ids, batched: false },
    Judged { implementation: Implementation::Operations, processor: Processor::Ids, batched: false },
    Judged { implementation: Implementation::Operations, processor: Processor::Shared, batched: false },
    Judged { implementation: Implementation::Operations, processor: Processor::Shared, batched: true },
];

#[derive(Clone, Copy)]
struct Judged {
    implementation: Implementation,
    processor: Processor,
    /// Edge types and pairs at once, as on a GPU.
    batched: bool,
}

impl Judged {
    fn name(self) -> String {
        let batched = if self.batched { ", batched" } else { "" };
        format!("{}, {}{batched}", self.implementation.name(), self.processor.name())
    }

    fn built(self, case: &AgreementCase) -> Built {
        let built = Built::new(case, self.implementation, self.processor);
        if self.batched { built.batched() } else { built }
    }
}

/// Unit roundoff of bfloat16 over that of float32: 2⁻⁹ / 2⁻²⁴.
const BF16_UNITS: f64 = 32768.0;

/// A case as the replicated model computes it.
struct Replicated {
    /// In the precision that is judged.
    rounded: Outcome,
    /// The function's value.
    exact: Outcome,
    /// Errors at neighbouring parameters.
    peers: Vec<Apart>,
}

impl Replicated {
    fn of(case: &AgreementCase, precision: Precision, parameters: &[Tensor], weight: &Tensor) -> Self {
        let rounded = |near: &[Tensor]| Built::replicated(case).with(near, Kind::Float).run_in(precision, weight);
        let exact = |near: &[Tensor]| Built::replicated(case).with(near, Kind::Double).run(weight);
        let peer = |neighbour| {
            let near: Vec<Tensor> = parameters.iter().map(|parameter| nudged(parameter, neighbour)).collect();
            rounded(&near).from(&exact(&near))
        };
        Self { rounded: rounded(parameters), exact: exact(parameters), peers: (0..NEIGHBOURS).map(peer).collect() }
    }

    /// Another computation may err as much as this one by rounding, but for the order of the sums: errors are relative, and `floor` is the error
    /// that any computation may have.
    fn bounds(&self, name: &str, other: &Outcome, floor: f64) {
        let error = other.from(&self.exact);
        let judge = |what: &str, of: &dyn Fn(&Apart) -> f64| {
            let peers: Vec<f64> = self.peers.iter().map(of).collect();
            assert_rounding(&format!("{name}: {what}"), of(&error), &peers, floor);
        };
        judge("encodings", &|apart| apart.encodings);
        judge("predictions", &|apart| apart.predictions);
        judge("gradients", &|apart| apart.gradients);
    }
}

/// Summary over all cases of one implementation.
#[derive(Default)]
struct Told {
    cases: usize,
    encodings: f64,
    predictions: f64,
    gradients: f64,
    /// For each case the mean over its parameters of ln(error of the implementation / error of the replicated one).
    ratios: Vec<f64>,
}

impl Told {
    fn judge(&mut self, name: &str, replicated: &Replicated, other: &Outcome, floor: f64) {
        let Replicated { rounded, exact, .. } = replicated;
        let apart = other.from(rounded);
        self.cases += 1;
        self.encodings = self.encodings.max(apart.encodings);
        self.predictions = self.predictions.max(apart.predictions);
        self.gradients = self.gradients.max(apart.gradients);
        replicated.bounds(name, other, floor);
        let pairs = rounded.gradients.iter().zip(&other.gradients).zip(&exact.gradients);
        let ratios = pairs.filter_map(|(((_, replicated), (_, other)), (_, exact))| {
            let (own, other) = (norm(&(replicated - exact)), norm(&(other - exact)));
            (own > 0.0 && other > 0.0).then(|| (other / own).ln())
        });
        self.ratios.push(mean(&ratios.collect::<Vec<f64>>()));
    }
}

/// Parameters of a case as a run would have them, and the weights of its predictions.
fn drawn(case: &AgreementCase, start: Start) -> (Vec<Tensor>, Tensor) {
    let _alone = generator();
    tch::manual_seed(case.seed as i64);
    let parameters = Built::drawn(case, Implementation::Shared, Processor::Ids).parameters(start);
    (parameters, case.weight())
}

/// Error that any computation in float32 may have: norms and readout sum over all genes.
fn float32_floor(case: &AgreementCase) -> f64 {
    floor(&[1.0], case.config.num_genes as usize)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// All cases with parameters of all kinds. Gradients of single parameters differ more than all together, where one is small.
/// Over many those that are judged are hardly further from the function's value: the mean is not above 2 by two standard errors. A sum
/// of n terms in w lanes errs like √(n / w), and of the models one may have 4 lanes, the other the 16 of AVX-512.
fn agree(of: &str, cases: &[AgreementCase]) {
    let mut ratios: [Vec<f64>; JUDGED.len()] = Default::default();
    for start in [Start::Initial, Start::Trained, Start::Shifted] {
        let mut told: [Told; JUDGED.len()] = Default::default();
        for case in cases {
            let (parameters, weight) = drawn(case, start);
            let replicated = Replicated::of(case, Precision::Float32, &parameters, &weight);
            for (judged, told) in JUDGED.iter().zip(&mut told) {
                let built = judged.built(case).with(&parameters, Kind::Float);
                let name = format!("{}, {start:?}, {}", case.name, judged.name());
                told.judge(&name, &replicated, &built.run(&weight), float32_floor(case));
            }
        }
        for ((told, ratios), judged) in told.into_iter().zip(&mut ratios).zip(JUDGED) {
            let Told { cases, encodings, predictions, gradients, .. } = told;
            let _ = writeln!(
                std::io::stderr(),
                "{of}, {start:?}, {}: {cases} cases; encodings differ by up to {encodings:.1e}, predictions \
                 {predictions:.1e}, gradients {gradients:.1e}",
                judged.name()
            );
            ratios.extend(told.ratios);
        }
    }
    for (ratios, judged) in ratios.iter().zip(JUDGED) {
        let count = ratios.len() as f64;
        let middle = mean(ratios);
        let error = (ratios.iter().map(|r| (r - middle).powi(2)).sum::<f64>() / (count * (count - 1.0))).sqrt();
        let what = format!("{of}, {}", judged.name());
        let _ = writeln!(
            std::io::stderr(),
            "{what}: gradients of single parameters are {:.2} times as far from double precision as the replicated model's \
             (geometric mean; times or over {:.2})",
            middle.exp(),
            (2.0 * error).exp()
        );
        assert!(middle - 2.0 * error < 2f64.ln(), "{what}: {}", middle.exp());
    }
}

/// Subgraphs err as copies with masks do, where they are the same function.
#[test]
fn subgraphs_agree() {
    for case in AgreementCase::of_single_nodes() {
        let (parameters, weight) = drawn(&case, Start::Trained);
        let replicated = Replicated::of(&case, Precision::Float32, &parameters, &weight);
        let built = Built::new(&case, Implementation::Replicated, Processor::IncidenceSubgraph);
        let subgraphs = built.with(&parameters, Kind::Float).run(&weight);
        replicated.bounds(&format!("{}, subgraphs", case.name), &subgraphs, float32_floor(&case));
    }
}

/// Under autocast to bfloat16 what errs most are the linear layers, which all have.
#[test]
fn bfloat16_errs_as_the_replicated_model_does() {
    for case in AgreementCase::local_heads() {
        let (parameters, weight) = drawn(&case, Start::Trained);
        let replicated = Replicated::of(&case, Precision::Bf16Mixed, &parameters, &weight);
        for judged in JUDGED {
            let built = judged.built(&case).with(&parameters, Kind::Float);
            let name = format!("{}, bf16, {}", case.name, judged.name());
            let found = built.run_in(Precision::Bf16Mixed, &weight);
            replicated.bounds(&name, &found, BF16_UNITS * float32_floor(&case));
        }
    }
}

#[test]
fn norms_and_aggregations_agree() {
    agree("norms and aggregations", &AgreementCase::norms_and_aggregations());
}

#[test]
fn local_heads_agree() {
    agree("local heads", &AgreementCase::local_heads());
}

#[test]
fn sizes_agree() {
    agree("sizes", &AgreementCase::sizes());
}
