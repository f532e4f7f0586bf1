//! How far the kernels of the shared lazy model are from what the machine can do: products of a layer against libtorch's own
//! matrix product, sums over neighbours against a copy of memory. One thread, best of `RUNS`, so that other load counts little.
//!
//!     cargo run --release -p expctl-worker --example row_floor -- 16 28
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for developers")]

use std::time::Instant;

use tch::{Device, Kind, Tensor};
use torch_dist::{EdgeTypeJoin, LayerShape, Neighbours, layer_rows, row_instructions};

const RUNS: usize = 7;
const FLOAT: (Kind, Device) = (Kind::Float, Device::Cpu);
/// The published sizes: genes, edge types, mean edges of each, linear layers of an MLP.
const GENES: i64 = 6607;
const TYPES: i64 = 9;
const EDGES: i64 = 280_000;
const LINEARS: i64 = 4;
const PAIRS: i64 = TYPES * (TYPES + 1) / 2;

fn main() {
    let numbers: Vec<i64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let (h, batch) = (numbers.first().copied().unwrap_or(16), numbers.get(1).copied().unwrap_or(28));
    tch::set_num_threads(1);
    let (a, b) = (Tensor::randn([2048, 2048], FLOAT), Tensor::randn([2048, 2048], FLOAT));
    let peak = 2.0 * 2048f64.powi(3) / best(|| _ = a.matmul(&b)) / 1e9;
    let source = Tensor::randn([64 << 20], FLOAT);
    let mut target = source.zeros_like();
    let copy = 2.0 * 256.0 * f64::from(1 << 20) / best(|| target.copy_(&source)) / 1e9;
    // A thread gathers 64 numbers of each gene.
    let table = Tensor::randn([GENES, 64], FLOAT);
    let reads = 200;
    let cache = best(|| (0..reads).for_each(|_| drop(table.sum(Kind::Float))));
    let cache = f64::from(reads) * (GENES * 256) as f64 / cache / 1e9;
    println!("rows with {}, one thread, best of {RUNS}", row_instructions());
    println!(
        "matrix product of libtorch: {peak:.1} GFLOP/s; copy: {copy:.1} GB/s read and written; sum of {} kB that stay in the \
         cache: {cache:.1} GB/s",
        GENES * 256 / 1000
    );
    rows(h, batch, peak);
    sums(h, batch, copy, cache);
}

/// Seconds of the best run.
fn best(mut work: impl FnMut()) -> f64 {
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Parameters of a layer: types, pairs, scorer.
fn parameters(h: i64) -> Vec<Tensor> {
    let mut shapes: Vec<Vec<i64>> = Vec::new();
    for _ in 0..TYPES {
        for _ in 0..LINEARS {
            shapes.extend([vec![h, h], vec![h]]);
        }
        shapes.extend([vec![h], vec![h]]);
    }
    for _ in 0..PAIRS {
        shapes.extend([vec![h / 2, 2 * h], vec![h / 2], vec![h, h / 2], vec![h]]);
    }
    shapes.extend([vec![h / 2, h], vec![h / 2], vec![1, h / 2], vec![1]]);
    shapes.iter().map(|shape| (Tensor::randn(shape, FLOAT) * 0.2).set_requires_grad(true)).collect()
}

/// `peak` in GFLOP/s.
fn rows(h: i64, batch: i64, peak: f64) {
    let rows = GENES * batch;
    let parameters = parameters(h);
    let parameters: Vec<&Tensor> = parameters.iter().collect();
    let sums = Tensor::randn([TYPES, rows, h], FLOAT).set_requires_grad(true);
    let shape = LayerShape {
        linears: LINEARS,
        pair_hidden: h / 2,
        scorer_hidden: h / 2,
        join: EdgeTypeJoin::Pairwise,
        node_norm: false,
        eps: 1e-5,
    };
    // Multiplications and additions of the products alone; norms, GELU and softmax come on top.
    let mlps = 2 * TYPES * LINEARS * h * h;
    let joins = PAIRS * 3 * h * h + (PAIRS + 1) * (h * h + h);
    let forward = (rows * (mlps + joins)) as f64;
    // Both gradients of each product, and those products that are computed again.
    let backward = (rows * (3 * joins + 2 * mlps + mlps / LINEARS * (LINEARS - 1))) as f64;
    let forward_s = best(|| _ = tch::no_grad(|| layer_rows(&sums, &parameters, None, &shape).unwrap()));
    let cotangent = Tensor::randn([rows, h], FLOAT);
    let inputs: Vec<&Tensor> = std::iter::once(&sums).chain(parameters.iter().copied()).collect();
    let mut backward_s = f64::INFINITY;
    for _ in 0..RUNS {
        let out = (layer_rows(&sums, &parameters, None, &shape).unwrap() * &cotangent).sum(Kind::Float);
        let start = Instant::now();
        drop(Tensor::run_backward(&[out], &inputs, false, false));
        backward_s = backward_s.min(start.elapsed().as_secs_f64());
    }
    for (what, operations, seconds) in [("forward", forward, forward_s), ("backward", backward, backward_s)] {
        let rate = operations / seconds / 1e9;
        println!(
            "rows of a layer, {what}: {rows} rows of {h}: {seconds:.4} s, {rate:.1} GFLOP/s in products, {:.2} of the peak",
            rate / peak
        );
    }
}

/// `copy` and `cache` in GB/s.
fn sums(h: i64, batch: i64, copy: f64, cache: f64) {
    let gene = |i: i64, step: i64| (i * step + i / GENES) % GENES;
    let sources: Vec<i64> = (0..EDGES).map(|i| gene(i, 7919)).collect();
    let targets: Vec<i64> = (0..EDGES).map(|i| gene(i, 6271)).collect();
    let lists = (0..TYPES).map(|_| (sources.as_slice(), targets.as_slice()));
    let neighbours = Neighbours::new(GENES, lists).unwrap();
    let x = Tensor::randn([GENES, batch, h], FLOAT);
    let eps = Tensor::zeros([TYPES], FLOAT);
    let seconds = best(|| _ = neighbours.sums(&x, &eps, None).unwrap());
    let row = (batch * h * 4) as f64;
    let added = (TYPES * EDGES) as f64 * row;
    let floor = ((TYPES + 1) * GENES) as f64 * row / copy / 1e9;
    println!(
        "sums over neighbours: {seconds:.4} s, {:.1} GB/s added up, {:.2} of the cache's speed; reading x and writing the sums \
         once takes {floor:.4} s at the copy's speed, {:.2} of it",
        added / seconds / 1e9,
        added / seconds / 1e9 / cache,
        floor / seconds
    );
}
