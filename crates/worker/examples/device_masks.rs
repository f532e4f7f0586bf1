//! Times edge masks made where the batch is used, at the published scale: nine edge types, 2,495,908 edges.
//!
//!     cargo run --release -p expctl-worker --example device_masks -- [BATCH] [THREADS] [ROUNDS]
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for developers")]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use expctl_pipeline::collate::Assembler;
use expctl_pipeline::dataset::{Dataset, Recipe, build};
use expctl_pipeline::store::Sample;
use expctl_record::{Data, DeviceMasks, LabelSource, Networks, Pipeline, Processor};
use expctl_worker::device_masks::DeviceMaskMaker;
use tch::Device;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<usize>().unwrap());
    let size = arguments.next().unwrap_or(28);
    tch::set_num_threads(arguments.next().unwrap_or(1) as i32);
    let rounds = arguments.next().unwrap_or(30);

    let recipe = Recipe::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/006-kuzmin-tmi")).unwrap();
    let samples = (size * 8) as u64;
    let data = Data {
        set: recipe.name(),
        samples,
        scale: 1.0,
        networks: Networks::Completed,
        seed: 42,
        labels: LabelSource::Random,
    };
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join(data.folder_name());
    build(&recipe, &data, &folder, &mut |_| ControlFlow::Continue(())).unwrap();
    let dataset = Dataset::open(&folder).unwrap();
    let names: Vec<String> = recipe.network.iter().map(|network| network.name.clone()).collect();
    let graph = Arc::new(dataset.graph(&names, false).unwrap());
    let genes = dataset.sample_genes().unwrap();
    println!("{} edges in {} types, batch {size}, {} threads", graph.num_edges(), names.len(), tch::get_num_threads());

    let assembler = Assembler::new(&Pipeline::new(Processor::Ids, names), Arc::clone(&graph)).unwrap();
    let batches: Vec<_> = (0..8)
        .map(|b| {
            let sample =
                |i| Sample { genes: genes.of(i).iter().map(|gene| i64::from(*gene)).collect(), ..Sample::default() };
            let samples: Vec<Sample> = (b * size as u64..(b + 1) * size as u64).map(sample).collect();
            let mut batch = assembler.empty();
            assembler.collate(&samples, &mut batch);
            batch
        })
        .collect();
    let device = Device::cuda_if_available();
    for kind in [DeviceMasks::Looped, DeviceMasks::Vectorised] {
        let start = Instant::now();
        let maker = DeviceMaskMaker::new(kind, &graph, device).unwrap().unwrap();
        let built = start.elapsed();
        let mut times = Vec::new();
        for round in 0..rounds + 3 {
            let start = Instant::now();
            let masks = maker.make(&batches[round % batches.len()].common).unwrap();
            times.push(start.elapsed().as_secs_f64() * 1e3);
            assert_eq!(masks.iter().map(|mask| mask.numel()).sum::<usize>(), size * graph.num_edges());
        }
        // The first ones touch new memory.
        let mut times = times.split_off(3);
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        println!(
            "{:10} on {device:?}: median {:.1} ms a batch, quartiles {:.1} to {:.1}, n = {}; {:.0} MB stay on the device, built in {:.0} ms",
            kind.name(),
            at(0.5),
            at(0.25),
            at(0.75),
            times.len(),
            maker.resident_bytes() as f64 / 1e6,
            built.as_secs_f64() * 1e3
        );
    }
}
