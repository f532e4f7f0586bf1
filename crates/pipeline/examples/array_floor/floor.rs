use std::hint::black_box;
use std::time::{Duration, Instant};

/// Buffers of a batch for each thread, as many as the loader has.
const BUFFERS: usize = 3;

/// Sum over threads of `work` calls a second, each of which moves `bytes`.
fn bandwidth(threads: u32, bytes: usize, time: Duration, work: impl Fn(&mut Vec<Vec<u8>>, u64) + Sync) -> f64 {
    let one = &|thread: u64| {
        let mut buffers = Vec::new();
        let mut number = thread << 32;
        for _ in 0..BUFFERS {
            work(&mut buffers, number);
        }
        let (start, mut calls) = (Instant::now(), 0);
        while start.elapsed() < time {
            number += 1;
            work(&mut buffers, number);
            calls += 1;
        }
        black_box(&buffers);
        (calls * bytes) as f64 / start.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..u64::from(threads)).map(|thread| scope.spawn(move || one(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

fn buffer(buffers: &mut Vec<Vec<u8>>, number: u64, bytes: usize) -> &mut [u8] {
    if buffers.len() < BUFFERS {
        buffers.push(vec![1; bytes]);
    }
    let place = number as usize % buffers.len();
    &mut buffers[place]
}

/// Bytes a second, read and written, of copying `batch` pieces of `piece` bytes from random places of `source`.
pub fn copy(threads: u32, batch: usize, piece: usize, source: &[u8], time: Duration) -> f64 {
    bandwidth(threads, 2 * batch * piece, time, |buffers, number| {
        for (i, to) in buffer(buffers, number, batch * piece).chunks_exact_mut(piece).enumerate() {
            let random = (number * batch as u64 + i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
            let from = random as usize % (source.len() - piece);
            to.copy_from_slice(&source[from..from + piece]);
        }
    })
}

/// Bytes written a second of filling buffers of `bytes`.
pub fn fill(threads: u32, bytes: usize, time: Duration) -> f64 {
    bandwidth(threads, bytes, time, |buffers, number| buffer(buffers, number, bytes).fill(black_box(0)))
}
