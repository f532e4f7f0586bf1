use std::io::Write as _;

use expctl_rounding::{NEIGHBOURS, assert_rounding, floor, nudged};
use tch::{Kind, Tensor};

use super::cases::Case;
use super::rounding::{Apart, norm};
use super::run::{Built, Outcome, Start};
use crate::models::layer_cases::GENERATOR;

/// The models of a case in float32, and the function's value.
struct Compared {
    replicated: Outcome,
    shared: Outcome,
    exact: Outcome,
}

impl Compared {
    fn of(case: &Case, parameters: &[Tensor], weight: &Tensor) -> Self {
        let run = |built: Built, kind| built.with(parameters, kind).run(weight);
        Self {
            replicated: run(Built::replicated(case), Kind::Float),
            shared: run(Built::shared(case), Kind::Float),
            exact: run(Built::replicated(case), Kind::Double),
        }
    }
}

/// The errors of the replicated model at neighbouring parameters.
fn peers(case: &Case, parameters: &[Tensor], weight: &Tensor) -> Vec<Apart> {
    let of = |neighbour| {
        let near: Vec<Tensor> = parameters.iter().map(|parameter| nudged(parameter, neighbour)).collect();
        let run = |kind| Built::replicated(case).with(&near, kind).run(weight);
        run(Kind::Float).from(&run(Kind::Double))
    };
    (0..NEIGHBOURS).map(of).collect()
}

/// What is told of all cases.
#[derive(Default)]
struct Told {
    cases: usize,
    encodings: f64,
    predictions: f64,
    gradients: f64,
    /// For each case the mean over its parameters of ln(shared model's error / replicated one's).
    ratios: Vec<f64>,
}

impl Told {
    /// The shared model may be as far from the function's value as rounding makes the replicated one, but for the order of
    /// their sums.
    fn judge(&mut self, case: &Case, start: Start) {
        let name = format!("{}, {start:?}", case.name);
        tch::manual_seed(case.seed as i64);
        let parameters = Built::shared(case).parameters(start);
        let weight = case.weight();
        let Compared { replicated, shared, exact } = Compared::of(case, &parameters, &weight);
        let apart = shared.from(&replicated);
        self.cases += 1;
        self.encodings = self.encodings.max(apart.encodings);
        self.predictions = self.predictions.max(apart.predictions);
        self.gradients = self.gradients.max(apart.gradients);
        let (error, peers) = (shared.from(&exact), peers(case, &parameters, &weight));
        // Errors are relative; norms and readout sum over all genes.
        let floor = floor(&[1.0], case.config.num_genes as usize);
        let judge = |what: &str, of: &dyn Fn(&Apart) -> f64| {
            let peers: Vec<f64> = peers.iter().map(of).collect();
            assert_rounding(&format!("{name}: {what}"), of(&error), &peers, floor);
        };
        judge("encodings", &|apart| apart.encodings);
        judge("predictions", &|apart| apart.predictions);
        judge("gradients", &|apart| apart.gradients);
        let pairs = replicated.gradients.iter().zip(&shared.gradients).zip(&exact.gradients);
        let ratios = pairs.filter_map(|(((_, replicated), (_, shared)), (_, exact))| {
            let (own, other) = (norm(&(replicated - exact)), norm(&(shared - exact)));
            (own > 0.0 && other > 0.0).then(|| (other / own).ln())
        });
        self.ratios.push(mean(&ratios.collect::<Vec<f64>>()));
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// All cases with parameters of all kinds. Gradients of single parameters differ more than all together, where one is small.
/// Over many the shared model's are hardly further from the function's value: the mean is not above 2 by two standard errors. A sum
/// of n terms in w lanes errs like √(n / w), and of the models one may have 4 lanes, the other the 16 of AVX-512.
fn agree(of: &str, cases: &[Case]) {
    let _alone = GENERATOR.lock();
    // Small pieces of work: threads would wait for each other.
    tch::set_num_threads(1);
    let mut ratios = Vec::new();
    for start in [Start::Initial, Start::Trained, Start::Shifted] {
        let mut told = Told::default();
        for case in cases {
            told.judge(case, start);
        }
        let Told { cases, encodings, predictions, gradients, .. } = told;
        let _ = writeln!(
            std::io::stderr(),
            "{of}, {start:?}: {cases} cases; encodings differ by up to {encodings:.1e}, predictions {predictions:.1e}, \
             gradients {gradients:.1e}"
        );
        ratios.extend(told.ratios);
    }
    let count = ratios.len() as f64;
    let middle = mean(&ratios);
    let error = (ratios.iter().map(|r| (r - middle).powi(2)).sum::<f64>() / (count * (count - 1.0))).sqrt();
    let _ = writeln!(
        std::io::stderr(),
        "{of}: gradients of single parameters are {:.2} times as far from double precision as the replicated model's \
         (geometric mean; times or over {:.2})",
        middle.exp(),
        (2.0 * error).exp()
    );
    assert!(middle - 2.0 * error < 2f64.ln(), "{of}: {}", middle.exp());
}

#[test]
fn norms_and_aggregations_agree() {
    agree("norms and aggregations", &Case::norms_and_aggregations());
}

#[test]
fn local_heads_agree() {
    agree("local heads", &Case::local_heads());
}

#[test]
fn sizes_agree() {
    agree("sizes", &Case::sizes());
}
