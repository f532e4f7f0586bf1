//! Times training steps of DANGO at the published size, over generated edges with the published counts.
//!
//!     cargo run --release -p expctl-worker --example dango_step -- [HIDDEN] [BATCH] [THREADS]
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for developers")]

use std::time::{Duration, Instant};

use expctl_record::Reconstruction;
use expctl_worker::losses::{ReconstructionWeight, log_cosh};
use expctl_worker::models::EdgeList;
use expctl_worker::models::dango::{Dango, DangoConfig};
use tch::nn::OptimizerConfig;
use tch::{Device, Kind, Tensor, nn};

const GENES: i64 = 6607;
/// Edges of the six STRING 12.0 networks.
const EDGES: [i64; 6] = [153_320, 18_394, 17_692, 1_002_806, 828_701, 79_224];

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<i64>().unwrap());
    let hidden = arguments.next().unwrap_or(64);
    let batch = arguments.next().unwrap_or(64);
    tch::set_num_threads(arguments.next().unwrap_or(1) as i32);

    // Squared uniform numbers: a few genes have many edges.
    let side = |n: i64| -> Vec<i64> {
        let place = Tensor::rand([n], (Kind::Double, Device::Cpu)).square() * GENES as f64;
        Vec::try_from(place.to_kind(Kind::Int64)).unwrap()
    };
    let edges: Vec<_> = EDGES.iter().map(|n| (side(*n), side(*n))).collect();
    let graphs: Vec<EdgeList> =
        edges.iter().map(|(sources, targets)| EdgeList { name: "generated", sources, targets }).collect();
    let start = Instant::now();
    let vs = nn::VarStore::new(Device::Cpu);
    let config = DangoConfig { hidden, ..DangoConfig::published(GENES) };
    let model = Dango::new(&vs.root(), &config, &graphs).unwrap();
    println!("built in {:?}, {} edges, {hidden} channels, batch {batch}", start.elapsed(), EDGES.iter().sum::<i64>());

    let mut optimizer = nn::AdamW::default().build(&vs, 1e-5).unwrap();
    let genes = Tensor::randint(GENES, [3 * batch], (Kind::Int64, Device::Cpu));
    let sample = Tensor::arange(batch, (Kind::Int64, Device::Cpu)).repeat_interleave_self_int(3, None, None);
    let labels = Tensor::zeros([batch], (Kind::Float, Device::Cpu));
    for reconstruction in [Reconstruction::Uniform, Reconstruction::Off] {
        let loss_of = ReconstructionWeight::new(reconstruction);
        let mut times = Vec::new();
        for _ in 0..12 {
            let start = Instant::now();
            let output = model.forward(&genes, &sample, batch, loss_of.reconstructs()).unwrap();
            let predictions = log_cosh(&output.prediction, &labels);
            let loss = loss_of.join(output.reconstruction.as_ref(), predictions, 0);
            let forward = start.elapsed();
            optimizer.zero_grad();
            loss.backward();
            let backward = start.elapsed() - forward;
            optimizer.step();
            times.push([forward, backward, start.elapsed() - forward - backward]);
        }
        let median = |part: usize| -> Duration {
            let mut all: Vec<_> = times[2..].iter().map(|t| t[part]).collect();
            all.sort();
            all[all.len() / 2]
        };
        println!(
            "{reconstruction:?}: forward {:?}, backward {:?}, optimizer {:?} (medians of 10)",
            median(0),
            median(1),
            median(2)
        );
    }
}
