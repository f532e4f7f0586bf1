//! Alias table: ours against `rand_distr::weighted::WeightedAliasIndex`.

use std::time::Instant;

use rand::distr::Distribution;
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::weighted::WeightedAliasIndex;
use rand_pcg::Pcg64;
use rand_philox::Philox;

use crate::harness::{Case, Check, Clock, Context, Outcome, Pass, RunPass};
use crate::permutation::{Purpose, RandomStream};
use crate::weighted::AliasTable;

/// Rows, one weight each.
const WEIGHTS: u64 = 10_000_000;
/// Draws of a pass.
const DRAWS: u64 = 1_000_000;
/// Classes of rows whose draws are counted.
const CLASSES: usize = 64;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("alias table", "build, 10 M weights", "weights/s")
            .once()
            .side("ours", |context| build(context, |weights| Ok(AliasTable::new(weights, "weight")?.len())))
            .side("rand_distr, f64", |context| {
                build(context, |weights| {
                    let rows = weights.len() as u64;
                    std::hint::black_box(WeightedAliasIndex::new(weights)?);
                    Ok(rows)
                })
            })
            .side("rand_distr, f32", |context| {
                build(context, |weights| {
                    let rows = weights.len() as u64;
                    let single: Vec<f32> = weights.iter().map(|weight| *weight as f32).collect();
                    std::hint::black_box(WeightedAliasIndex::new(single)?);
                    Ok(rows)
                })
            }),
        Case::new("alias table", "draw, PCG on both sides", "draws/s")
            .side("ours", |context| {
                let table = AliasTable::new(weights(context), "weight")?;
                let mut random = Pcg64::seed_from_u64(5);
                draws(context, move || table.draw([random.next_u64(), random.next_u64()]))
            })
            .side("rand_distr, f64", |context| {
                let table = WeightedAliasIndex::new(weights(context))?;
                let mut random = Pcg64::seed_from_u64(6);
                draws(context, move || table.sample(&mut random) as u64)
            }),
        Case::new("alias table", "draw, Philox on both sides", "draws/s")
            .side("ours", |context| {
                let table = AliasTable::new(weights(context), "weight")?;
                let stream = RandomStream::new(5, Purpose::Draw, 0);
                let mut index = 0;
                draws(context, move || {
                    index += 1;
                    table.draw(stream.at(index))
                })
            })
            .side("rand_distr, f64, and rand_philox", |context| {
                let table = WeightedAliasIndex::new(weights(context))?;
                let mut random = Philox::from_u64_seed(6);
                draws(context, move || table.sample(&mut random) as u64)
            }),
    ]
}

/// Weights as they come from obs: a few heavy rows, many light ones, some of weight 0.
fn weights(context: &Context) -> Vec<f64> {
    let mut random = Pcg64::seed_from_u64(4);
    let weight = |_| {
        let uniform = random.random::<f64>();
        if uniform < 0.01 { 0.0 } else { 0.1 / uniform }
    };
    (0..context.scaled(WEIGHTS)).map(weight).collect()
}

fn build(context: &Context, build: impl Fn(Vec<f64>) -> Outcome<u64> + 'static) -> Outcome<RunPass> {
    let mut weights = Some(weights(context));
    Ok(Box::new(move |_| {
        let weights = weights.take().ok_or("built twice")?;
        let begin = Instant::now();
        let rows = build(weights)?;
        Ok(Pass { units: rows, time: begin.elapsed(), check: Check::Same(rows) })
    }))
}

fn draws(context: &Context, mut draw: impl FnMut() -> u64 + 'static) -> Outcome<RunPass> {
    let (rows, draws) = (context.scaled(WEIGHTS), context.scaled(DRAWS));
    let mut drawn = vec![0u64; draws as usize];
    Ok(Box::new(move |_| {
        let mut clock = Clock::default();
        clock.time(|| drawn.iter_mut().for_each(|row| *row = draw()));
        let mut counts = vec![0; CLASSES];
        drawn.iter().for_each(|row| counts[(*row * CLASSES as u64 / rows) as usize] += 1);
        Ok(Pass { units: draws, time: clock.0, check: Check::Alike(counts) })
    }))
}
