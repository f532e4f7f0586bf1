use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use memmap2::{Advice, MmapMut, MmapOptions};

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

/// The same bytes on huge pages, as the loader has its rows and numpy its arrays.
pub fn on_huge_pages(bytes: &[u8]) -> MmapMut {
    let mut map = MmapOptions::new().len(bytes.len()).map_anon().unwrap();
    #[cfg(target_os = "linux")]
    map.advise(Advice::HugePage).unwrap();
    map.copy_from_slice(bytes);
    map
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

/// Bytes a second of reading pieces of `piece` bytes from random places of a file that the system has in memory, into a buffer
/// that stays in the caches.
pub fn read(threads: u32, piece: usize, file: &File, time: Duration) -> f64 {
    let places = file.metadata().unwrap().len() - piece as u64;
    bandwidth(threads, piece, time, |buffers, number| {
        let random = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
        // One buffer, as the loader has one.
        file.read_exact_at(buffer(buffers, 0, piece), random % places).unwrap();
    })
}

/// Bytes written a second of filling buffers of `bytes`: in the caches or around them, whichever is faster.
pub fn fill(threads: u32, bytes: usize, time: Duration) -> f64 {
    let plain =
        bandwidth(threads, bytes, time / 2, |buffers, number| buffer(buffers, number, bytes).fill(black_box(0)));
    let around = bandwidth(threads, bytes, time / 2, |buffers, number| fill_around(buffer(buffers, number, bytes)));
    plain.max(around)
}

#[cfg(target_arch = "x86_64")]
fn fill_around(buffer: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};

    // SAFETY: any bytes are a `__m128i`.
    let (head, lines, tail) = unsafe { buffer.align_to_mut::<__m128i>() };
    head.fill(0);
    for line in lines {
        // SAFETY: every x86-64 processor has SSE2, and the place is aligned and ours.
        unsafe { _mm_stream_si128(line, _mm_setzero_si128()) };
    }
    tail.fill(0);
    // SAFETY: as above.
    #[allow(unused_unsafe, reason = "safe from some compiler version on")]
    unsafe {
        _mm_sfence();
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn fill_around(buffer: &mut [u8]) {
    buffer.fill(black_box(0));
}
