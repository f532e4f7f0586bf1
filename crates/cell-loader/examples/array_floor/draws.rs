use std::time::Instant;

use expctl_pipeline::array::ArrayStore;
use expctl_pipeline::array::sampler::{RowSampler, Sharding, ShuffleMeter};
use expctl_record::{Draw, Sampler};

use crate::memory::Memory;

/// Print what drawing a row costs, and measuring how well an epoch of ten million is shuffled.
pub fn measure() {
    let rows = 10_000_000;
    let store = Memory::new(rows, 1, 0);
    let labels = store.labels("class").unwrap();
    for (draw, by, chunk_rows, chunks) in [
        (Draw::Sequential, "", 512, 32),
        (Draw::Uniform, "", 512, 32),
        (Draw::Weighted, "weight", 512, 32),
        (Draw::Balanced, "class", 512, 32),
        (Draw::Chunked, "", 512, 32),
        (Draw::Chunked, "", 16, 1024),
    ] {
        let sharding = Sharding { seed: 1, rank: 0, world_size: 1, batch_size: 128, drop_last: true };
        let settings = Sampler { draw, chunk_rows, chunks, by: by.into(), ..Sampler::default() };
        let start = Instant::now();
        let sampler = RowSampler::new(&settings, &store, sharding, None).unwrap();
        let made = start.elapsed();
        let start = Instant::now();
        let mut drawn = Vec::new();
        sampler.batch(0, &mut drawn);
        let first = start.elapsed();
        let (start, steps) = (Instant::now(), 10_000);
        for step in 0..steps {
            drawn.clear();
            sampler.batch(step, &mut drawn);
        }
        let each = start.elapsed().as_nanos() as f64 / (steps * 128) as f64;
        let start = Instant::now();
        let quality = ShuffleMeter::epoch(&sampler, store.len(), Some(("class", &labels)), 0);
        println!(
            "{:10} {chunk_rows:4} × {chunks:4}: made in {made:.1?}, first batch {first:.1?}, then {each:.0} ns a row; an epoch \
             measured in {:.2?}: neighbours {:.4}, distance {:.4}, {} twice, entropy {:.4} of {:.4}",
            draw.name(),
            start.elapsed(),
            quality.neighbour_correlation.unwrap_or(f64::NAN),
            quality.mean_distance,
            quality.duplicates,
            quality.labels.as_ref().map_or(0.0, |labels| labels.entropy),
            quality.labels.as_ref().map_or(0.0, |labels| labels.ideal_entropy),
        );
    }
}
