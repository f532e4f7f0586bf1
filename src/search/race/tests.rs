//! Races on a simulated machine, whose best point is known.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::*;

const FULL_STEPS: u64 = 256;
const WARM_UP: u64 = 10;
const BATCH: f64 = 128.0;

/// A machine on which points have known rates, and runs scatter around them.
struct Machine {
    random: Pcg64,
    /// Samples per second.
    rates: Vec<f64>,
    /// Standard deviation of the logarithm of the rate of a run of full length. Half of its variance is between runs, half within them.
    noise: f64,
    /// Seconds of a trial beside its steps.
    beside_s: f64,
}

impl Machine {
    fn new(seed: u64, rates: Vec<f64>, noise: f64) -> Self {
        Self { random: Pcg64::seed_from_u64(seed), rates, noise, beside_s: 0.3 }
    }

    fn normal(&mut self) -> f64 {
        let (a, b) = (self.random.random_range(1e-12..1.0_f64), self.random.random_range(0.0..1.0_f64));
        (-2.0 * a.ln()).sqrt() * (2.0 * std::f64::consts::PI * b).cos()
    }

    /// Wall time of a trial of so many measured steps, s.
    fn trial_s(&self, point: usize, steps: u64) -> f64 {
        self.beside_s + (WARM_UP + steps) as f64 * BATCH / self.rates[point]
    }

    /// What all points run with three repeats of full length takes, s.
    fn grid_s(&self) -> f64 {
        (0..self.rates.len()).map(|point| 3.0 * self.trial_s(point, FULL_STEPS)).sum()
    }

    fn run(&mut self, plan: &RoundPlan) -> RaceRound {
        // What slows the whole machine for a round.
        let drift = 0.03 * self.normal();
        let runs = plan.runs.iter().map(|(point, steps)| {
            let spread = self.noise * (0.5 + 0.5 * FULL_STEPS as f64 / *steps as f64).sqrt();
            let samples_per_s = self.rates[*point] * (drift + spread * self.normal()).exp();
            let it_per_s = samples_per_s / BATCH;
            let seconds = self.trial_s(*point, *steps);
            (*point, PointRun::Measured(MeasuredRun { samples_per_s, it_per_s, steps: *steps, seconds }))
        });
        RaceRound { runs: runs.collect() }
    }

    /// A race to its end.
    fn race(&mut self, options: RaceOptions) -> (Race, RaceEnd) {
        let mut race = Race::new(entrants(self.rates.len()), options).unwrap();
        loop {
            match race.next_move() {
                NextMove::End(end) => return (race, end),
                NextMove::Run(plan) => {
                    let round = self.run(&plan);
                    race.record(round).unwrap();
                }
            }
        }
    }
}

/// Points that need more threads the later they stand.
fn entrants(points: usize) -> Vec<Entrant> {
    let one = |point| Entrant { full_steps: FULL_STEPS, block_steps: 1, threads: point as u64, buffered_samples: 128 };
    (0..points).map(one).collect()
}

const OPTIONS: RaceOptions = RaceOptions { budget_s: None, max_repeats: 5, min_gain: 0.03 };

/// Rates of so many points, of three kinds: scattered over a factor of 4, those of threads × prefetch that saturate, all within 10 %.
fn landscape(kind: u64, points: usize, random: &mut Pcg64) -> Vec<f64> {
    let mut between = |low: f64, high: f64| random.random_range(low..high);
    (0..points)
        .map(|point| match kind {
            0 => 5000.0 * between(0.25_f64.ln(), 0.0).exp(),
            1 => {
                let threads = 1.0 + (point / 3) as f64;
                (900.0 * threads).min(4000.0) * (1.0 + 0.02 * (point % 3) as f64) * between(0.99, 1.01)
            }
            _ => 3000.0 * between(0.9, 1.0),
        })
        .collect()
}

#[test]
fn the_chosen_point_is_near_the_best_for_a_third_of_the_grid() {
    const SEEDS: u64 = 300;
    let (mut near, mut lost, mut shares) = (0, 0, Vec::new());
    for seed in 0..SEEDS {
        let mut random = Pcg64::seed_from_u64(1000 + seed);
        let points = random.random_range(12..=40);
        let noise = random.random_range(0.01..0.05);
        let rates = landscape(seed % 3, points, &mut random);
        let mut machine = Machine::new(seed, rates.clone(), noise);
        let grid_s = machine.grid_s();
        let (race, _) = machine.race(OPTIONS);
        let best = (0..points).max_by(|a, b| rates[*a].total_cmp(&rates[*b])).unwrap();
        near += u64::from(rates[race.choice().unwrap().point] >= 0.95 * rates[best]);
        lost += u64::from(matches!(race.eliminated(best), Some(Elimination::Slower { .. })));
        shares.push(race.spent_s() / grid_s);
        assert!(*shares.last().unwrap() <= 1.0 / 3.0, "seed {seed}: {:?} of the grid's time", shares.last());
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    assert!(near * 100 >= SEEDS * 95, "near the best in {near} of {SEEDS}, for {mean:.3} of the grid's time");
    // The stated error of calling the best point slower.
    assert!(lost * 100 <= SEEDS * 5, "the best was called slower in {lost} of {SEEDS}");
}

/// Where all points are the same, any of them is the best: here the last one.
#[test]
fn a_best_point_is_rarely_called_slower() {
    const SEEDS: u64 = 400;
    let mut wrong = 0;
    for seed in 0..SEEDS {
        let points = 2 + (seed % 14) as usize;
        let (race, _) = Machine::new(seed, vec![2000.0; points], 0.03).race(OPTIONS);
        wrong += u64::from(matches!(race.eliminated(points - 1), Some(Elimination::Slower { .. })));
    }
    assert!(wrong * 100 <= SEEDS * 5, "{wrong} of {SEEDS}");
}

#[test]
fn a_point_of_twice_the_rate_is_the_only_one_left() {
    let (race, end) = Machine::new(1, vec![1000.0, 2000.0], 0.002).race(OPTIONS);
    assert_eq!((end, race.racing()), (RaceEnd::OneRemains, vec![1]));
    assert!(matches!(race.eliminated(0), Some(Elimination::Slower { round: 3, .. })), "{:?}", race.eliminated(0));
    assert_eq!(race.choice().unwrap(), Choice { point: 1, equal: vec![1] });
    let (gain, n) = race.ratio(1, BASELINE).unwrap();
    assert!((gain.value - 2.0).abs() < 0.02 && gain.interval.unwrap().low > 1.9 && n == 3, "{gain:?}");
}

#[test]
fn of_equal_points_the_one_with_the_fewest_threads_is_chosen() {
    // The two fastest are 1 % apart, and that of them which is slower needs fewer threads.
    let (race, end) = Machine::new(2, vec![500.0, 2000.0, 2020.0, 600.0], 0.0005).race(OPTIONS);
    assert_eq!(end, RaceEnd::Equal);
    assert_eq!(race.choice().unwrap(), Choice { point: 1, equal: vec![2, 1] });
    // What needs as many threads goes by the samples in memory, then by the rate.
    let mut machine = Machine::new(2, vec![500.0, 2000.0, 2020.0, 600.0], 0.0005);
    let same = Entrant { full_steps: FULL_STEPS, block_steps: 1, threads: 2, buffered_samples: 64 };
    let mut race = Race::new(vec![same; 4], OPTIONS).unwrap();
    while let NextMove::Run(plan) = race.next_move() {
        let round = machine.run(&plan);
        race.record(round).unwrap();
    }
    assert_eq!(race.choice().unwrap().point, 2);
}

#[test]
fn rounds_grow_while_points_become_fewer() {
    let mut machine = Machine::new(3, (0..13).map(|point| 1000.0 + 100.0 * f64::from(point)).collect(), 0.01);
    let (race, _) = machine.race(OPTIONS);
    let shape = |round: &RaceRound| {
        let steps = round.runs.iter().map(|(_, run)| if let PointRun::Measured(run) = run { run.steps } else { 0 });
        (round.runs.len(), steps.max().unwrap())
    };
    let shapes: Vec<_> = race.rounds().iter().map(shape).collect();
    // 13 points, then the fastest five and the baseline, then the fastest two and those.
    assert_eq!(shapes[..3], [(13, 64), (6, 128), (3, 256)]);
    // Each second round runs the other way round.
    let order = |round: usize| race.rounds()[round].runs.iter().map(|(point, _)| *point).collect::<Vec<_>>();
    assert!(order(0).is_sorted() && order(1).is_sorted_by(|a, b| a > b) && order(2).is_sorted());
    // The baseline was eliminated, and runs on.
    assert!(
        matches!(race.eliminated(BASELINE), Some(Elimination::Behind { round: 1, position: 13, went_on: 5 })),
        "{:?}",
        race.eliminated(BASELINE)
    );
    assert_eq!(race.measured(BASELINE).len(), race.rounds().len());
}

#[test]
fn a_budget_of_one_round_ends_after_it() {
    let options = RaceOptions { budget_s: Some(0.5), ..OPTIONS };
    let (race, end) = Machine::new(4, (1..=12).map(|point| 100.0 * f64::from(point)).collect(), 0.01).race(options);
    assert_eq!((race.rounds().len(), end), (1, RaceEnd::Budget));
    assert_eq!(race.choice().unwrap().point, 11);
    assert_eq!(race.ratio(11, BASELINE).unwrap().0.interval, None, "one run has no interval");
    // A budget that is not reached changes nothing.
    let large = RaceOptions { budget_s: Some(1e9), ..OPTIONS };
    let rates: Vec<f64> = (1..=12).map(|point| 100.0 * f64::from(point)).collect();
    let (with, without) =
        (Machine::new(4, rates.clone(), 0.01).race(large), Machine::new(4, rates, 0.01).race(OPTIONS));
    assert_eq!((with.0.rounds(), with.1), (without.0.rounds(), without.1));
}

/// The same machine, but some points fail.
fn race_with_failures(failing: &[usize]) -> (Race, RaceEnd) {
    let mut machine = Machine::new(5, (1..=8).map(|point| 500.0 * f64::from(point)).collect(), 0.01);
    let mut race = Race::new(entrants(8), OPTIONS).unwrap();
    loop {
        let plan = match race.next_move() {
            NextMove::End(end) => return (race, end),
            NextMove::Run(plan) => plan,
        };
        let mut round = machine.run(&plan);
        for (point, run) in &mut round.runs {
            if failing.contains(point) {
                *run = PointRun::Failed { reason: "out of memory".to_owned(), seconds: 1.0 };
            }
        }
        race.record(round).unwrap();
    }
}

#[test]
fn points_that_fail_are_out_with_the_reason() {
    let (race, _) = race_with_failures(&[7]);
    assert_eq!(race.eliminated(7), Some(&Elimination::Failed { round: 1, reason: "out of memory".to_owned() }));
    assert_eq!((race.choice().unwrap().point, race.measured(7).len()), (6, 0));
    // Without the baseline the race goes on, and nothing is known of the gain over them.
    let (race, _) = race_with_failures(&[BASELINE]);
    assert_eq!((race.choice().unwrap().point, race.ratio(7, BASELINE)), (7, None));
    assert!(race.rounds()[1..].iter().all(|round| round.runs.iter().all(|(point, _)| *point != BASELINE)));
    let (race, end) = race_with_failures(&[0, 1, 2, 3, 4, 5, 7]);
    assert_eq!((end, race.choice().unwrap().point), (RaceEnd::OneRemains, 6));
    let (race, end) = race_with_failures(&[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!((end, race.choice()), (RaceEnd::NothingMeasured, None));
}

#[test]
fn a_race_follows_from_its_rounds() {
    let rates: Vec<f64> = (0..16).map(|point| 1000.0 + 37.0 * f64::from(point * point % 11)).collect();
    let (whole, end) = Machine::new(6, rates, 0.02).race(OPTIONS);
    let mut again = Race::new(entrants(16), OPTIONS).unwrap();
    for round in whole.rounds() {
        // What was run is what comes next.
        let NextMove::Run(plan) = again.next_move() else { panic!("the race ended before its last round") };
        let ran: Vec<usize> = round.runs.iter().map(|(point, _)| *point).collect();
        assert_eq!(plan.runs.iter().map(|(point, _)| *point).collect::<Vec<_>>(), ran);
        again.record(round.clone()).unwrap();
    }
    assert_eq!(again.next_move(), NextMove::End(end));
    assert_eq!(again.choice(), whole.choice());
}

#[test]
fn steps_are_whole_blocks_and_no_more_than_the_full_number() {
    let steps = |full_steps, block_steps, share| {
        Entrant { full_steps, block_steps, threads: 1, buffered_samples: 1 }.steps(share)
    };
    assert_eq!([steps(256, 1, 0.25), steps(256, 1, 0.5), steps(256, 1, 1.0)], [64, 128, 256]);
    assert_eq!([steps(256, 100, 0.25), steps(256, 100, 0.5)], [100, 200]);
    assert_eq!([steps(40, 1, 0.25), steps(12, 1, 0.25), steps(256, 1000, 0.25)], [20, 12, 256]);
}

#[test]
fn what_is_no_race_is_refused() {
    let new = |entrants: Vec<Entrant>, options| Race::new(entrants, options).map(|_| ()).unwrap_err();
    assert_eq!(new(entrants(1), OPTIONS), RaceError::FewPoints { points: 1 });
    let mut none = entrants(3);
    none[2].full_steps = 0;
    assert_eq!(new(none, OPTIONS), RaceError::NoSteps { point: 2 });
    for options in [
        RaceOptions { min_gain: 0.0, ..OPTIONS },
        RaceOptions { max_repeats: 0, ..OPTIONS },
        RaceOptions { budget_s: Some(f64::NAN), ..OPTIONS },
    ] {
        assert_eq!(new(entrants(3), options), RaceError::BadOption);
    }
    let run =
        |samples_per_s, seconds| PointRun::Measured(MeasuredRun { samples_per_s, it_per_s: 1.0, steps: 20, seconds });
    let record = |runs: Vec<(usize, PointRun)>| {
        let mut race = Race::new(entrants(2), OPTIONS).unwrap();
        race.record(RaceRound { runs }).map(|()| race.racing())
    };
    assert_eq!(record(Vec::new()), Err(RaceError::EmptyRound { round: 1 }));
    assert_eq!(record(vec![(2, run(1.0, 1.0))]), Err(RaceError::BadPoint { round: 1, point: 2 }));
    assert_eq!(record(vec![(1, run(1.0, 1.0)), (1, run(1.0, 1.0))]), Err(RaceError::BadPoint { round: 1, point: 1 }));
    for bad in [run(0.0, 1.0), run(f64::INFINITY, 1.0), run(1.0, 0.0)] {
        assert_eq!(record(vec![(1, bad)]), Err(RaceError::BadFigure { round: 1, point: 1 }));
    }
    // A point that did not run is eliminated, and one remains.
    assert_eq!(record(vec![(1, run(1.0, 1.0))]), Ok(vec![1]));
}
