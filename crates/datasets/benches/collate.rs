//! Whole batches of 28 of every processor, stage by stage, with metabolism; buffers are used again, as the loader does.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group};
use graph_loader::kernels::replicate_shifted;
use graph_loader::{Assembler, Collation, GraphBatchOptions, Layout, Marks, Processor, Walk};
use loader_core::Stage;

const BATCH: usize = 28;

fn collate(c: &mut Criterion) {
    let dataset = common::dataset(common::SAMPLES);
    let graph = common::graph(&dataset);
    let samples = common::samples(&dataset, 100 * BATCH as u64);
    let mut group = c.benchmark_group("batch of 28");
    group.sample_size(10);

    let new = |processor| GraphBatchOptions::new(processor);
    let near = |walk, hops| GraphBatchOptions { walk, hops, ..new(Processor::Neighborhood) };
    let pipelines = [
        ("lazy", new(Processor::Lazy)),
        ("lazy, shared index", GraphBatchOptions { collation: Collation::SharedIndex, ..new(Processor::Lazy) }),
        ("packed", new(Processor::Packed)),
        ("shared", new(Processor::Shared)),
        ("perturbation", new(Processor::Perturbation)),
        ("ids", new(Processor::Ids)),
        ("subgraph", new(Processor::Subgraph)),
        ("incidence_subgraph", new(Processor::IncidenceSubgraph)),
        ("neighborhood, 1 hop", near(Walk::PerType, 1)),
        ("neighborhood, 2 hops", near(Walk::PerType, 2)),
        ("neighborhood, 3 hops", near(Walk::PerType, 3)),
        ("neighborhood, 1 hop over all types", near(Walk::Union, 1)),
        ("neighborhood, 2 hops over all types", near(Walk::Union, 2)),
        ("neighborhood, 3 hops over all types", near(Walk::Union, 3)),
    ];
    for (name, pipeline) in pipelines {
        let mut assembler = Assembler::new(&pipeline, Arc::clone(&graph)).unwrap();
        let mut batch = assembler.empty();
        let mut batches = samples.chunks_exact(BATCH).cycle();
        let chosen = batches.next().unwrap();
        assembler.mask(chosen, &[], &mut batch);
        assembler.collate(chosen, &mut batch);
        println!("{name}: {:.1} MiB", batch.bytes() as f64 / (1 << 20) as f64);
        group.throughput(Throughput::Elements(BATCH as u64));
        group.bench_function(format!("{name}, mask"), |b| {
            b.iter(|| assembler.mask(batches.next().unwrap(), &[], &mut batch));
        });
        assembler.mask(chosen, &[], &mut batch);
        group.throughput(Throughput::Bytes(batch.bytes()));
        group.bench_function(format!("{name}, collate"), |b| b.iter(|| assembler.collate(chosen, &mut batch)));

        // What the marks of operations cost where masks are smallest: the floor is the same batch without them.
        if matches!(name, "packed" | "shared") {
            let (mut plain, mut of_plain) = (assembler.clone(), assembler.empty());
            let (mut marked, mut of_marked) = (assembler.clone(), assembler.empty());
            let mut marks = Marks::new(Instant::now(), assembler.edge_types());
            let bytes = batch.bytes() as usize;
            let without = || {
                plain.mask(chosen, &[], &mut of_plain);
                plain.collate(chosen, &mut of_plain);
            };
            let with = || {
                marks.begin(Stage::Mask);
                marked.mask_marked(chosen, &[], &mut of_marked, &mut marks);
                marks.begin(Stage::Collate);
                marked.collate_marked(chosen, &mut of_marked, &mut marks);
                black_box(marks.finish());
            };
            common::against_floor(&format!("{name} with operations timed"), bytes, 1001, without, with);
        }

        if let (Layout::Graphs(graphs), "lazy") = (&batch.layout, name) {
            // The floor: a plain copy of the same bytes.
            let mut copy: Vec<Vec<i64>> = graphs.edges.iter().map(|edges| vec![0; edges.edge_index.len()]).collect();
            let mut again = copy.clone();
            let bytes: usize = copy.iter().map(|edge_index| 8 * edge_index.len()).sum();
            let floor = || {
                for (to, from) in copy.iter_mut().zip(&graphs.edges) {
                    to.copy_from_slice(&from.edge_index);
                }
                black_box(&mut copy);
            };
            let replicate = || {
                for (to, edges) in again.iter_mut().zip(&graph.edge_types) {
                    let (sources, targets) = to.split_at_mut(BATCH * edges.num_edges());
                    replicate_shifted(edges.sources(), BATCH, 6607, sources);
                    replicate_shifted(edges.targets(), BATCH, 6607, targets);
                }
                black_box(&mut again);
            };
            common::against_floor("replicated edge index of 28", bytes, 15, floor, replicate);
        }
    }
    group.finish();
}

criterion_group!(benches, collate);
fn main() {
    benches();
    criterion::Criterion::default().configure_from_args().final_summary();
    common::write_record("collate");
}
