use std::time::Instant;

use anndata_io::ArrayStore;
use cell_loader::{Draw, RowSampler, Sharding, ShuffleMeter};

use crate::memory::Memory;

/// Print what drawing a row costs, and measuring how well an epoch of ten million is shuffled.
pub fn measure() {
    let rows = 10_000_000;
    let store = Memory::new(rows, 1, 0);
    let labels = store.labels("class").unwrap();
    for (name, draw, chunk_rows, chunks) in [
        ("sequential", Draw::Sequential { chunk_rows: 512 }, 512, 32),
        ("uniform", Draw::Uniform, 512, 32),
        ("weighted", Draw::Weighted { column: "weight".into(), rows: 0 }, 512, 32),
        ("balanced", Draw::Balanced { column: "class".into(), rows: 0 }, 512, 32),
        ("chunked", Draw::Chunked { chunk_rows: 512, chunks: 32 }, 512, 32),
        ("chunked", Draw::Chunked { chunk_rows: 16, chunks: 1024 }, 16, 1024),
    ] {
        let sharding = Sharding { seed: 1, rank: 0, world_size: 1, batch_size: 128, drop_last: true };
        let start = Instant::now();
        let sampler = RowSampler::new(&draw, &store, sharding, None).unwrap();
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
            "{name:10} {chunk_rows:4} × {chunks:4}: made in {made:.1?}, first batch {first:.1?}, then {each:.0} ns a row; an epoch \
             measured in {:.2?}: neighbours {:.4}, distance {:.4}, {} twice, entropy {:.4} of {:.4}",
            start.elapsed(),
            quality.neighbour_correlation.unwrap_or(f64::NAN),
            quality.mean_distance,
            quality.duplicates,
            quality.labels.as_ref().map_or(0.0, |labels| labels.entropy),
            quality.labels.as_ref().map_or(0.0, |labels| labels.ideal_entropy),
        );
    }
}
