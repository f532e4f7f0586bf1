//! Masks of one sample over all nine edge types, with metabolism, from the genes.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

mod common;

use std::cell::Cell;
use std::hint::black_box;
use std::slice::from_ref;

use criterion::{Criterion, Throughput, criterion_group};
use graph_loader::kernels::{Adjacency, MaskSources, Neighbours, SortedUnion, Visited};
use graph_loader::{Incidence, Unmarked, Walk};

/// Samples of a batch: masks are written to the places of one after another, as the loader does.
const BATCH: usize = 28;

fn masks(c: &mut Criterion) {
    let dataset = common::dataset(common::SAMPLES);
    let graph = common::graph(&dataset);
    let samples = common::samples(&dataset, 1000);
    let sources = MaskSources::build(&graph);
    let genes = graph.num_genes();

    let mut group = c.benchmark_group("build");
    group.sample_size(20);
    group.bench_function("incidence of 9 types", |b| b.iter(|| Incidence::build_all(&graph.edge_types, genes)));
    group.bench_function("union of 9 types", |b| b.iter(|| Adjacency::union(&graph.edge_types, genes)));
    group.finish();

    let next = Cell::new(0);
    let turn = || {
        next.set(next.get() + 1);
        (&samples[next.get() % samples.len()], next.get() % BATCH)
    };
    let entries = sources.entries();
    let edges: usize = entries.iter().sum();
    let mut removed = Vec::new();

    let mut bytes: Vec<Vec<u8>> = entries.iter().map(|e| vec![0; e * BATCH]).collect();
    let mut floor: Vec<Vec<u8>> = bytes.clone();
    let mut to_bytes = || {
        let (sample, at) = turn();
        sources.for_each(from_ref(sample), &[], &mut removed, &mut Unmarked, |mask, _, source| {
            source.to_bytes(&mut bytes[mask][at * entries[mask]..(at + 1) * entries[mask]]);
        });
        black_box(&mut bytes);
    };
    let mut group = c.benchmark_group("one sample");
    group.throughput(Throughput::Bytes(edges as u64));
    group.bench_function("bytes", |b| b.iter(&mut to_bytes));
    let fill = || {
        let at = turn().1;
        for (mask, entries) in floor.iter_mut().zip(entries) {
            mask[at * entries..(at + 1) * entries].fill(1);
        }
        black_box(&mut floor);
    };
    common::against_floor("byte masks of a sample", edges, 2000, fill, to_bytes);

    let mut removed = Vec::new();
    let rows: Vec<usize> = entries.iter().map(|e| e.div_ceil(64)).collect();
    let mut words: Vec<Vec<u64>> = rows.iter().map(|row| vec![0; row * BATCH]).collect();
    let mut floor = words.clone();
    let mut to_bits = || {
        let (sample, at) = turn();
        sources.for_each(from_ref(sample), &[], &mut removed, &mut Unmarked, |mask, _, source| {
            source.to_bits(entries[mask], &mut words[mask][at * rows[mask]..(at + 1) * rows[mask]]);
        });
        black_box(&mut words);
    };
    group.throughput(Throughput::Bytes(edges as u64 / 8));
    group.bench_function("bits", |b| b.iter(&mut to_bits));
    let fill = || {
        let at = turn().1;
        for (mask, row) in floor.iter_mut().zip(&rows) {
            mask[at * row..(at + 1) * row].fill(u64::MAX);
        }
        black_box(&mut floor);
    };
    common::against_floor("bit masks of a sample", edges / 8, 2000, fill, to_bits);

    let (mut union, mut lists) = (SortedUnion::default(), vec![Vec::new(); entries.len()]);
    let mut copies: Vec<Vec<u32>> = vec![Vec::new(); entries.len()];
    let total = Cell::new((0, 0));
    let mut removed = Vec::new();
    let mut to_lists = || {
        let (sample, at) = turn();
        let mut appended = 0;
        sources.for_each(from_ref(sample), &[], &mut removed, &mut Unmarked, |mask, _, source| {
            // A batch's lists grow to the end of the batch.
            if at == 0 {
                lists[mask].clear();
            }
            let before = lists[mask].len();
            source.append_removed(entries[mask], &mut union, &mut lists[mask]);
            appended += lists[mask].len() - before;
        });
        total.set((total.get().0 + appended, total.get().1 + 1));
    };
    group.throughput(Throughput::Elements(1));
    group.bench_function("removed lists", |b| b.iter(&mut to_lists));
    // The floor: the same lists one behind the other, in no order.
    let copy = || {
        let (sample, at) = turn();
        for (copy, incidence) in copies.iter_mut().zip(sources.incidence()) {
            if at == 0 {
                copy.clear();
            }
            sample.genes.iter().for_each(|gene| copy.extend_from_slice(incidence.of(*gene)));
        }
        black_box(&mut copies);
    };
    common::against_floor("removed lists of a sample", 2256 * 4, 2000, copy, &mut to_lists);
    println!("removed entries of a sample: {:.0} in the mean", total.get().0 as f64 / f64::from(total.get().1));

    for walk in [Walk::Union, Walk::PerType] {
        for hops in 1..=3 {
            let neighbours = Neighbours::build(&graph, walk, hops);
            let (mut visited, mut found) = (Visited::default(), Vec::new());
            let found_in_all = |visited: &mut Visited, found: &mut Vec<u32>| -> usize {
                let count = |sample: &graph_loader::Sample| {
                    neighbours.find(&sample.genes, genes, visited, found);
                    found.len()
                };
                samples.iter().map(count).sum()
            };
            let mean = found_in_all(&mut visited, &mut found) as f64 / samples.len() as f64;
            println!("{walk:?}, {hops} hops: {mean:.0} genes in the mean");
            group.bench_function(format!("genes within {hops} hops, {walk:?}"), |b| {
                b.iter(|| neighbours.find(&turn().0.genes, genes, &mut visited, &mut found));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, masks);
fn main() {
    benches();
    criterion::Criterion::default().configure_from_args().final_summary();
    common::write_record("masks");
}
