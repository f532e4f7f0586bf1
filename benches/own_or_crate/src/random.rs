//! Random streams: our Philox4x32-10 against `rand_philox`. Both give the same words.

use rand_philox::{Philox, philox4x32_10};

use crate::harness::{Case, Check, Clock, Context, Hash, Outcome, Pass, RunPass};
use crate::permutation::{Permutation, Purpose, RandomStream};

/// Numbers of a pass, two words of 64 bits each.
const NUMBERS: u64 = 1_000_000;
/// Numbers that are asked for at once: the rows of a batch.
const BATCH: usize = 128;
const SEED: u64 = 0x1234_5678_9abc_def0;
const EPOCH: u64 = 3;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("random stream", "numbers of consecutive indices", "numbers/s")
            .side("ours", |context| {
                let stream = RandomStream::new(SEED, Purpose::Draw, EPOCH);
                numbers(context, move |first, out| {
                    out.iter_mut().zip(first..).for_each(|(out, index)| *out = stream.at(index));
                })
            })
            .side("rand_philox, block function", |context| {
                numbers(context, |first, out| out.iter_mut().zip(first..).for_each(|(out, index)| *out = block(index)))
            })
            .side("rand_philox, fill_u32", |context| {
                let mut words = [0; 4 * BATCH];
                let mut random = Philox::new(KEY, 0);
                numbers(context, move |first, out| {
                    random.seek(u128::from(first) | u128::from(TAG) << 32 | u128::from(EPOCH) << 64);
                    random.fill_u32(&mut words[..4 * out.len()]);
                    out.iter_mut().zip(words.as_chunks::<4>().0).for_each(|(out, words)| *out = joined(*words));
                })
            }),
        Case::new("random stream", "numbers of scattered indices", "numbers/s")
            .side("ours", |context| {
                let stream = RandomStream::new(SEED, Purpose::Draw, EPOCH);
                numbers(context, move |first, out| {
                    out.iter_mut().zip(first..).for_each(|(out, index)| *out = stream.at(scattered(index)));
                })
            })
            .side("rand_philox, block function", |context| {
                numbers(context, |first, out| {
                    out.iter_mut().zip(first..).for_each(|(out, index)| *out = block(scattered(index)));
                })
            }),
        Case::new("random stream", "an order of 10 M rows", "rows/s")
            .once()
            .side("ours, computed", |context| {
                let rows = context.scaled(10_000_000);
                Ok(Box::new(move |_| {
                    let mut clock = Clock::default();
                    let order = Permutation::new(rows, RandomStream::new(SEED, Purpose::Rows, EPOCH));
                    let sum = clock.time(|| (0..rows).fold(0u64, |sum, position| sum.wrapping_add(order.at(position))));
                    Ok(Pass { units: rows, time: clock.0, check: Check::Same(sum) })
                }))
            })
            .side("rand, a table that is shuffled", |context| {
                use rand::SeedableRng;
                use rand::seq::SliceRandom;
                let rows = context.scaled(10_000_000);
                Ok(Box::new(move |_| {
                    let mut clock = Clock::default();
                    let sum = clock.time(|| {
                        let mut order: Vec<u32> = (0..rows as u32).collect();
                        order.shuffle(&mut rand_pcg::Pcg64::seed_from_u64(SEED));
                        order.iter().fold(0u64, |sum, row| sum.wrapping_add(u64::from(*row)))
                    });
                    Ok(Pass { units: rows, time: clock.0, check: Check::Same(sum) })
                }))
            }),
    ]
}

/// The key of our stream.
const KEY: [u32; 2] = [SEED as u32, (SEED >> 32) as u32];
/// The second word of its counter, for indices below 2³².
const TAG: u32 = (Purpose::Draw as u32) << 29;

fn block(index: u64) -> [u64; 2] {
    joined(philox4x32_10([index as u32, (index >> 32) as u32 | TAG, EPOCH as u32, 0], KEY))
}

fn joined([a, b, c, d]: [u32; 4]) -> [u64; 2] {
    [u64::from(a) | u64::from(b) << 32, u64::from(c) | u64::from(d) << 32]
}

/// An odd multiplier: no index twice.
fn scattered(index: u64) -> u64 {
    index.wrapping_mul(0x9E37_79B9) & 0xffff_ffff
}

fn numbers(context: &Context, mut fill: impl FnMut(u64, &mut [[u64; 2]]) + 'static) -> Outcome<RunPass> {
    let numbers = context.scaled(NUMBERS) / BATCH as u64 * BATCH as u64;
    let mut out = vec![[0; 2]; BATCH];
    Ok(Box::new(move |check| {
        let (mut clock, mut hash) = (Clock::default(), Hash::default());
        for first in (0..numbers).step_by(BATCH) {
            if check {
                fill(first, &mut out);
                out.iter().flatten().for_each(|word| hash.word(*word));
            }
        }
        clock.time(|| {
            for first in (0..numbers).step_by(BATCH) {
                fill(first, &mut out);
                std::hint::black_box(&mut out);
            }
        });
        Ok(Pass { units: numbers, time: clock.0, check: Check::Same(hash.0) })
    }))
}
