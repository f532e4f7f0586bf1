//! The period of slow batches: what is found, and how rarely one is found where there is none.
#![allow(clippy::print_stdout, reason = "figures are read from the output")]

use crate::generated_times::{census, mapped_collection, merlin, noise};
use expctl::timings::period::{Correlator, FoundPeriod, Lags, WINDOW, search};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

fn lags(times: &[f64]) -> Lags {
    let (mut lags, mut correlator, mut rest) = (Lags::default(), Correlator::default(), times);
    while rest.len() >= 2 * WINDOW {
        correlator.add(&rest[..WINDOW], &mut lags);
        rest = &rest[WINDOW..];
    }
    correlator.add(rest, &mut lags);
    lags
}

fn find(times: &[f64]) -> Option<FoundPeriod> {
    search(&lags(times))
}

/// How many of `series` series of `batches` have the wanted period found, and how many another one.
fn tally(
    series: u64,
    batches: usize,
    wanted: Option<usize>,
    make: impl Fn(&mut Pcg64, usize) -> Vec<f64>,
) -> (u64, u64) {
    let (mut hits, mut others) = (0, 0);
    for seed in 0..series {
        let mut random = Pcg64::seed_from_u64(seed * 7919 + batches as u64);
        match find(&make(&mut random, batches)) {
            Some(found) if Some(found.period) == wanted => hits += 1,
            Some(_) => others += 1,
            None => {}
        }
    }
    (hits, others)
}

/// A lognormal AR(1) process.
fn resembling(random: &mut Pcg64, batches: usize, phi: f64) -> Vec<f64> {
    let mut level = 0.0;
    let steps = noise(random, batches, 1.0, 1.0);
    steps
        .iter()
        .map(|step| {
            level = phi * level + step.ln();
            level.exp()
        })
        .collect()
}

/// Every so many batches slower by a factor, with beats that are missing or up to `jitter` batches early or late.
fn every(
    random: &mut Pcg64,
    batches: usize,
    (period, factor): (usize, f64),
    sigma: f64,
    missing: f64,
    jitter: usize,
) -> Vec<f64> {
    let mut times = noise(random, batches, 0.04, sigma);
    for beat in (period / 2..batches).step_by(period) {
        if random.random_bool(1.0 - missing) {
            let at = beat + random.random_range(0..=2 * jitter);
            times[at.saturating_sub(jitter).min(batches - 1)] *= factor;
        }
    }
    times
}

#[test]
fn where_there_is_no_period_hardly_one_is_found() {
    let series = 1000;
    for batches in [200, 1000, 9870] {
        let alarms = |name: &str, make: &dyn Fn(&mut Pcg64, usize) -> Vec<f64>| {
            let (_, alarms) = tally(series, batches, None, make);
            println!("{name}, {batches} batches: {alarms} false alarms in {series} series");
            assert!(alarms <= series / 100, "{name}, {batches} batches: {alarms} false alarms");
        };
        alarms("white noise", &|r, n| noise(r, n, 0.04, 0.5));
        alarms("heavy tails", &|r, n| noise(r, n, 0.04, 2.5));
        alarms("equal values", &|r, n| noise(r, n, 8.0, 0.3).into_iter().map(f64::round).collect());
        // Two values as often as each other: their scores are symmetric, and many are equal.
        alarms("two values", &|r, n| {
            let mut times: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { 0.01 } else { 0.02 }).collect();
            times.shuffle(r);
            times
        });
        alarms("coin flips", &|r, n| (0..n).map(|_| if r.random_bool(0.5) { 0.01 } else { 0.02 }).collect());
        alarms("four values", &|r, n| (0..n).map(|_| f64::from(r.random_range(1..=4))).collect());
        alarms("AR(1), 0.6", &|r, n| resembling(r, n, 0.6));
        alarms("AR(1), 0.9", &|r, n| resembling(r, n, 0.9));
        alarms("levels that change", &|r, n| {
            let mut times = noise(r, n, 0.04, 0.5);
            times
                .iter_mut()
                .enumerate()
                .for_each(|(i, t)| *t *= if i > n / 3 { 4.0 } else { 1.0 + i as f64 / n as f64 });
            times
        });
        alarms("bursts", &|r, n| {
            let (mut times, mut busy) = (noise(r, n, 0.04, 0.3), false);
            times.iter_mut().for_each(|time| {
                busy ^= r.random_bool(0.05);
                *time *= if busy { 5.0 } else { 1.0 };
            });
            times
        });
    }
}

#[test]
fn the_described_shapes_have_their_periods() {
    for seed in 0..50 {
        let mut random = Pcg64::seed_from_u64(seed);
        for batches in [1000, 9870] {
            let found = [
                find(&census(&mut random, batches)),
                find(&merlin(&mut random, batches, true)),
                find(&merlin(&mut random, batches, false)),
                find(&mapped_collection(&mut random, batches)),
            ];
            let periods = found.map(|found| found.unwrap().period);
            assert_eq!(periods, [10, 10, 10, 7], "seed {seed}, {batches} batches");
        }
    }
}

#[test]
fn harder_ones_are_found_as_often_as_the_documentation_says() {
    let series = 100;
    // Period, factor, spread of the noise, share of missing beats, jitter; least share found with 300, 1000 and 9870 batches.
    type PeriodCase = (&'static str, (usize, f64), f64, f64, usize, [u64; 3]);
    let cases: [PeriodCase; 11] = [
        ("10, 30x", (10, 30.0), 0.3, 0.0, 0, [99, 100, 100]),
        ("10, 2x", (10, 2.0), 0.3, 0.0, 0, [97, 100, 100]),
        ("10, 2x in noise of 0.5", (10, 2.0), 0.5, 0.0, 0, [65, 97, 100]),
        ("10, 2x in noise of 1.0", (10, 2.0), 1.0, 0.0, 0, [0, 30, 99]),
        ("10, 30x, one early or late", (10, 30.0), 0.3, 0.0, 1, [50, 97, 99]),
        ("10, 30x, half missing", (10, 30.0), 0.3, 0.5, 0, [65, 97, 100]),
        ("7, 10x, nine of ten missing", (7, 10.0), 0.3, 0.9, 0, [0, 0, 70]),
        ("2, 2x", (2, 2.0), 0.5, 0.0, 0, [99, 100, 100]),
        ("3, 2x", (3, 2.0), 0.5, 0.0, 0, [99, 100, 100]),
        ("64, 10x", (64, 10.0), 0.3, 0.0, 0, [0, 97, 100]),
        ("100, 10x", (100, 10.0), 0.3, 0.0, 0, [0, 95, 100]),
    ];
    for (name, shape, sigma, missing, jitter, least) in cases {
        for (batches, least) in [300, 1000, 9870].into_iter().zip(least) {
            let make = |r: &mut Pcg64, n| every(r, n, shape, sigma, missing, jitter);
            let (hits, others) = tally(series, batches, Some(shape.0), make);
            println!("{name}, {batches} batches: found {hits} of {series}, another period {others}");
            assert!(hits >= least, "{name}, {batches} batches: {hits}");
        }
    }
}
