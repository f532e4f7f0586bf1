//! Series with and without changes: series of known levels with noise of several kinds.

use super::*;

/// Noise of the log rate of a job.
#[derive(Clone, Copy, Debug)]
enum Noise {
    /// Normal, 2 %.
    Normal,
    /// Student's t with 3 degrees of freedom, times 1.2 %.
    HeavyTails,
    /// Normal, of a standard deviation that is another one for each job: 2 % times exp of a standard normal deviate.
    ByJob,
    /// Normal, 2 %; and one job in twenty is a fifth slower.
    SlowNodes,
    /// Normal: 1 % of a job, and 2 % over √n of its runs, with 1 to 10 runs.
    Repeats,
}

impl Noise {
    const ALL: [Self; 5] = [Self::Normal, Self::HeavyTails, Self::ByJob, Self::SlowNodes, Self::Repeats];

    fn draw(self, random: &mut Pcg64) -> f64 {
        match self {
            Self::Normal => 0.02 * normal(random),
            Self::HeavyTails => {
                let chi: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
                0.012 * normal(random) / (chi / 3.0).sqrt()
            }
            Self::ByJob => 0.02 * normal(random).exp() * normal(random),
            Self::SlowNodes => {
                let slow = if random.random::<f64>() < 0.05 { 0.8_f64.ln() } else { 0.0 };
                0.02 * normal(random) + slow
            }
            Self::Repeats => {
                let runs = random.random_range(1..=10);
                0.01 * normal(random) + 0.02 * normal(random) / f64::from(runs).sqrt()
            }
        }
    }
}

/// Rates of `n` jobs about 100, times `level` of each place.
fn series(n: usize, noise: Noise, random: &mut Pcg64, level: impl Fn(usize) -> f64) -> Vec<f64> {
    (0..n).map(|i| 100.0 * level(i) * noise.draw(random).exp()).collect()
}

/// Past the capture of the test harness, so that the figures of documents are in the output of `make test`.
fn show(line: &str) {
    use std::io::Write;
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[test]
fn series_without_a_change_have_none() {
    const SERIES: usize = 400;
    for (seed, noise) in (1..).zip(Noise::ALL) {
        for n in [8, 14, 60] {
            let mut random = Pcg64::seed_from_u64(seed * 1000 + n as u64);
            let any = |_: &usize| {
                let found = rate_levels(&series(n, noise, &mut random, |_| 1.0)).unwrap();
                !found.changes.is_empty()
            };
            let share = (0..SERIES).filter(any).count() as f64 / SERIES as f64;
            show(&format!("  any change in {n} jobs without one, {noise:?}: {share:.4} of {SERIES} series"));
            assert!(share <= 0.05, "{noise:?}, {n} jobs: {share}");
        }
    }
}

#[test]
fn a_tenth_is_found_where_it_is() {
    for (seed, (n, at, count)) in
        (1..).zip([(60, 10, 100), (60, 30, 100), (60, 45, 100), (60, 55, 100), (12, 6, 200), (200, 150, 20)])
    {
        for factor in [0.9, 1.1] {
            let mut random = Pcg64::seed_from_u64(seed);
            let mut covered = 0;
            let found = |_: &usize| {
                let rates = series(n, Noise::Normal, &mut random, |i| if i < at { 1.0 } else { factor });
                let found = rate_levels(&rates).unwrap();
                let near =
                    |change: &&LevelChange| change.at.abs_diff(at) <= 1 && (change.ratio.value > 1.0) == (factor > 1.0);
                let change = found.changes.iter().find(near);
                let interval = change.and_then(|change| change.ratio.interval);
                covered += usize::from(interval.is_some_and(|i| i.low <= factor && factor <= i.high));
                change.is_some()
            };
            let share = (0..count).filter(found).count() as f64 / count as f64;
            let covered = covered as f64 / count as f64;
            show(&format!(
                "  {factor} from job {at} of {n} on: found in {share:.3}, interval holds it in {covered:.3}"
            ));
            assert!(share >= 0.95 && covered >= 0.88, "{n} jobs, {at}, {factor}: {share}, {covered}");
        }
    }
}

#[test]
fn what_lasted_for_some_jobs_has_a_beginning_and_an_end() {
    let mut random = Pcg64::seed_from_u64(7);
    let both = |_: &usize| {
        let rates = series(60, Noise::Normal, &mut random, |i| if (20..26).contains(&i) { 0.88 } else { 1.0 });
        let changes = rate_levels(&rates).unwrap().changes;
        let near = |at: usize, sign: f64| {
            changes.iter().any(|change| change.at.abs_diff(at) <= 1 && (change.ratio.value - 1.0) * sign > 0.0)
        };
        near(20, -1.0) && near(26, 1.0)
    };
    let share = (0..100).filter(both).count();
    show(&format!("  12 % slower for 6 of 60 jobs: both ends found in {share} of 100 series"));
    assert!(share >= 95, "{share}");
}

#[test]
fn one_slow_job_is_rarely_a_change() {
    let mut random = Pcg64::seed_from_u64(8);
    for place in [0, 30, 58, 59] {
        let found = |_: &usize| {
            let rates = series(60, Noise::Normal, &mut random, |i| if i == place { 0.8 } else { 1.0 });
            !rate_levels(&rates).unwrap().changes.is_empty()
        };
        let share = (0..100).filter(found).count();
        show(&format!("  one of 60 jobs, number {place}, a fifth slower: a change in {share} of 100 series"));
        assert!(share <= 10, "{place}: {share}");
    }
}

#[test]
fn intervals_of_a_new_job_cover() {
    const SERIES: usize = 2_000;
    for (seed, (jobs, runs, of_new)) in (1..).zip([(3, 3, 3), (5, 3, 3), (10, 5, 5), (10, 5, 1), (30, 3, 3)]) {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut job = |runs: usize| -> Vec<f64> {
            let level = 0.02 * normal(&mut random);
            (0..runs).map(|_| 100.0 * (level + 0.01 * normal(&mut random)).exp()).collect()
        };
        let covers = |_: &usize| {
            let earlier: Vec<Vec<f64>> = (0..jobs).map(|_| job(runs)).collect();
            let levels = [RateLevel { rates: 0..jobs, value: 100.0, interval: None }];
            let ratio = ratio_to_level(&job(of_new), &earlier, &levels, 0).unwrap();
            let interval = ratio.interval.unwrap();
            interval.low <= 1.0 && 1.0 <= interval.high
        };
        let share = (0..SERIES).filter(covers).count() as f64 / SERIES as f64;
        show(&format!("  interval of a new job of {of_new} runs after {jobs} of {runs}: covers in {share:.4}"));
        assert!((0.935..=0.965).contains(&share), "{jobs} jobs of {runs} runs, then {of_new}: {share}");
    }
}

#[test]
fn few_rates_and_rates_without_spread_have_one_level() {
    assert_eq!(rate_levels(&[]), None);
    assert_eq!(rate_levels(&[1.0, 0.0, 1.0]), None);
    let one = rate_levels(&[2.0]).unwrap();
    assert_eq!((one.levels.len(), one.levels[0].interval, one.spread), (1, None, None));
    let four = rate_levels(&[1.0, 1.0, 2.0, 2.0]).unwrap();
    assert_eq!((four.levels.len(), four.changes.len()), (1, 0));
    let equal = rate_levels(&[3.0; 30]).unwrap();
    assert_eq!((equal.levels.len(), equal.levels[0].interval), (1, None));
    // A step between equal rates is found, and has no interval: nobody can say how much of it is chance.
    let step: Vec<f64> = (0..30).map(|i| if i < 12 { 3.0 } else { 4.0 }).collect();
    let found = rate_levels(&step).unwrap();
    assert_eq!(found.levels.iter().map(|level| level.rates.clone()).collect::<Vec<_>>(), [0..12, 12..30]);
    assert!((found.changes[0].ratio.value - 4.0 / 3.0).abs() < 1e-12 && found.changes[0].ratio.interval.is_none());
    assert_eq!(found.changes[0].ratio.p, Some(0.001));
}

#[test]
fn the_same_rates_give_the_same_levels() {
    let rates = series(60, Noise::HeavyTails, &mut Pcg64::seed_from_u64(3), |i| if i < 40 { 1.0 } else { 0.93 });
    assert_eq!(rate_levels(&rates), rate_levels(&rates));
}

/// Mean log rates of three jobs with one run each, and a fourth: what Student's t gives by hand.
#[test]
fn a_new_job_stands_against_the_mean_of_those_before_it() {
    let earlier: Vec<Vec<f64>> = [100.0, 102.0, 98.0].iter().map(|rate| vec![*rate]).collect();
    let levels = rate_levels(&[100.0, 102.0, 98.0]).unwrap().levels;
    let found = ratio_to_level(&[90.0], &earlier, &levels, 0).unwrap();
    let logs: Vec<f64> = earlier.iter().map(|runs| runs[0].ln()).collect();
    let mean = logs.iter().sum::<f64>() / 3.0;
    let s = (logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
    assert!((found.value - (90.0_f64.ln() - mean).exp()).abs() < 1e-12);
    // 4.302 652 73 is the 97.5 % quantile of t with 2 degrees of freedom.
    let half = 4.302_652_73 * s * (4.0_f64 / 3.0).sqrt();
    assert!((found.interval.unwrap().high.ln() - (found.value.ln() + half)).abs() < 1e-7, "{found:?}");
    // One job before it has no spread, and a level that is not there no ratio.
    let one = [RateLevel { rates: 0..1, value: 100.0, interval: None }];
    assert_eq!(ratio_to_level(&[90.0], &earlier[..1], &one, 0).unwrap().interval, None);
    assert_eq!(ratio_to_level(&[90.0], &earlier, &levels, 1), None);
    assert_eq!(ratio_to_level(&[], &earlier, &levels, 0), None);
}
