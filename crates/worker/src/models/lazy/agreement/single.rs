use std::io::Write as _;

use tch::{Kind, Tensor};

use super::cases::Case;
use super::rounding::{Apart, norm};
use super::run::{Built, Outcome, Start};
use crate::models::layer_cases::GENERATOR;

/// Relative, of outputs and of all gradients together.
const TOLERANCE: f64 = 1e-4;

/// Neighbouring parameters for which the replicated model's rounding is looked at as well.
const NEIGHBOURS: usize = 4;

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

/// The largest that rounding makes the replicated model err, for parameters that are float32's resolution apart. Where
/// everything is rounded anew: one error alone may be small by chance.
fn own_error(case: &Case, parameters: &[Tensor], weight: &Tensor, first: Apart) -> Apart {
    let mut worst = first;
    for _ in 0..NEIGHBOURS {
        let near = |p: &Tensor| tch::no_grad(|| p + p * (p.rand_like() - 0.5) * f64::from(f32::EPSILON) * 2.0);
        let near: Vec<Tensor> = parameters.iter().map(near).collect();
        let run = |kind| Built::replicated(case).with(&near, kind).run(weight);
        let apart = run(Kind::Float).from(&run(Kind::Double));
        worst.encodings = worst.encodings.max(apart.encodings);
        worst.predictions = worst.predictions.max(apart.predictions);
        worst.gradients = worst.gradients.max(apart.gradients);
    }
    worst
}

/// What is told of all cases.
#[derive(Default)]
struct Told {
    cases: usize,
    beyond: usize,
    encodings: f64,
    predictions: f64,
    gradients: f64,
    /// For each case the mean over its parameters of ln(shared model's error / replicated one's).
    ratios: Vec<f64>,
}

impl Told {
    /// Within the tolerance, or both where float32 is not that good: no further from the function's value than twice the
    /// replicated model's largest error there. Twice, since the one is a draw and the other the largest of five.
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
        if apart.encodings.max(apart.predictions).max(apart.gradients) >= TOLERANCE {
            self.beyond += 1;
            let own = own_error(case, &parameters, &weight, replicated.from(&exact));
            let error = shared.from(&exact);
            let told = format!("{name}: apart {apart:?}, shared {error:?}, replicated {own:?} from double precision");
            let _ = writeln!(std::io::stderr(), "{told}");
            let judged = |apart: f64, error: f64, own: f64| {
                assert!(apart < TOLERANCE || own > TOLERANCE / 2.0 && error <= 2.0 * own, "{told}");
            };
            judged(apart.encodings, error.encodings, own.encodings);
            judged(apart.predictions, error.predictions, own.predictions);
            judged(apart.gradients, error.gradients, own.gradients);
        }
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
/// Over many the shared model's are no further from the function's value: the mean is not above 1 by two standard errors.
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
        let Told { cases, beyond, encodings, predictions, gradients, .. } = told;
        let _ = writeln!(
            std::io::stderr(),
            "{of}, {start:?}: {cases} cases, {beyond} beyond {TOLERANCE:e}; encodings differ by up to {encodings:.1e}, \
             predictions {predictions:.1e}, gradients {gradients:.1e}"
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
    assert!(middle < 2.0 * error, "{of}: {}", middle.exp());
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

/// The instructions are chosen once in a process: others take one of their own.
#[test]
fn slower_instructions_agree_as_well() {
    for instructions in ["avx2", "base"] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["models::lazy::agreement::single::sizes_agree", "--exact", "--nocapture"])
            .env("EXPCTL_ROW_INSTRUCTIONS", instructions)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && told.contains("geometric mean"), "{instructions}: {told}");
        let _ = writeln!(std::io::stderr(), "{instructions}: {told}");
    }
}
