//! Two ranks with batches of b leave the parameters of one rank with batches of 2b, and agree to the last bit. The order of the distributed
//! sampler is PyTorch's, bit for bit: compared with libtorch's own `randperm`.

use std::sync::Arc;

use expctl_rounding::{assert_rounding, distance, floor, nudged};
use expctl_settings::Reconstruction;
use expctl_worker::losses::{ReconstructionWeight, log_cosh};
use expctl_worker::models::dango::{Dango, DangoConfig};
use expctl_worker::models::{EdgeList, named_parameters, parameters_digest};
use graph_loader::{CellGraph, Common, DistributedSampler, EdgeType, Processor, Sample};
use tch::nn::OptimizerConfig;
use tch::{Device, Kind, Tensor, nn};
use torch_dist::{Reducer, ReducerOptions};

use crate::rank_processes::{RankEntry, Role};
use crate::support::{collate, generator};

const RANKS: RankEntry = RankEntry("ddp::rank_entry");

const STEPS: i64 = 5;
/// Samples of a whole step; each rank takes its share.
const BATCH: i64 = 8;
const CONFIG: DangoConfig = DangoConfig { num_genes: 50, hidden: 16, heads: 4, layers: 2, absent_weight: 1.0 };

#[test]
#[ignore = "entry of the ranks that the tests start"]
fn rank_entry() {
    let role = Role::from_env();
    let (store, group) = role.connect();
    tch::manual_seed(17);
    let vs = nn::VarStore::new(Device::Cpu);
    let edges: Vec<(Vec<i64>, Vec<i64>)> = (0..3)
        .map(|t| {
            ((0..200).map(|i| (i * i + t) % 50).collect(), (0..200).map(|i| (i * 7 + 3 * t + i / 50) % 50).collect())
        })
        .collect();
    let graphs: Vec<EdgeList> =
        edges.iter().map(|(sources, targets)| EdgeList { name: "t", sources, targets }).collect();
    let model = Dango::new(&vs.root(), &CONFIG, &graphs).unwrap();
    let mut parameters = named_parameters(&vs);
    if let Some(neighbour) = role.neighbour {
        tch::no_grad(|| parameters.iter_mut().for_each(|(_, own)| own.copy_(&nudged(own, neighbour))));
    }
    let mut optimizer = match role.scenario.as_str() {
        "adamw" => nn::AdamW { wd: 1e-6, ..nn::AdamW::default() }.build(&vs, 1e-3).unwrap(),
        _ => nn::Sgd::default().build(&vs, 0.1).unwrap(),
    };
    let loss_of = ReconstructionWeight::new(match role.scenario.as_str() {
        "interaction" => Reconstruction::Off,
        _ => Reconstruction::Uniform,
    });
    let options = ReducerOptions { find_unused: !loss_of.reconstructs(), ..ReducerOptions::default() };
    let mut reducer = Reducer::new(&parameters, &group, options).unwrap();
    let cell = cell_graph(&edges);
    for step in 0..STEPS {
        let (genes, sample, labels) = match role.scenario.as_str() {
            "processors" => assembled(step, &role, &cell),
            _ => share(step, &role),
        };
        reducer.prepare_forward().unwrap();
        let output = model.forward(&genes, &sample, labels.size()[0], loss_of.reconstructs()).unwrap();
        let loss = loss_of.combine(output.reconstruction.as_ref(), log_cosh(&output.prediction, &labels), 0);
        optimizer.zero_grad();
        reducer.prepare_backward(&[&loss]).unwrap();
        reducer.backward(&loss).unwrap();
        optimizer.step();
    }
    let flat: Vec<Tensor> = parameters.iter().map(|(_, p)| p.detach().flatten(0, -1)).collect();
    let values = Vec::<f32>::try_from(Tensor::cat(&flat, 0)).unwrap();
    role.report(&store, &group, &values, &parameters_digest(&parameters).unwrap());
}

/// This rank's samples of a step: every `world`-th, as a distributed sampler deals them. Samples have 1 to 4 genes.
/// The scenario "half" keeps only what rank 0 of 2 would get.
fn share(step: i64, role: &Role) -> (Tensor, Tensor, Tensor) {
    let world = if role.scenario == "half" { 2 } else { i64::from(role.world) };
    let (mut genes, mut sample, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    for s in (0..BATCH).filter(|s| s % world == i64::from(role.rank)) {
        let id = step * BATCH + s;
        let mut perturbed: Vec<i64> = (0..=(id % 4)).map(|g| (id * 11 + g * 17) % 50).collect();
        perturbed.sort_unstable();
        sample.extend(perturbed.iter().map(|_| labels.len() as i64));
        genes.extend(perturbed);
        labels.push((id as f32 * 0.7).sin());
    }
    (Tensor::from_slice(&genes), Tensor::from_slice(&sample), Tensor::from_slice(&labels))
}

/// The same samples as a loader delivers them, with another processor at each step.
fn assembled(step: i64, role: &Role, graph: &Arc<CellGraph>) -> (Tensor, Tensor, Tensor) {
    let (genes, sample, labels) = share(step, role);
    let [genes, sample] = [genes, sample].map(|tensor| Vec::<i64>::try_from(tensor).unwrap());
    let samples: Vec<Sample> = (0i64..)
        .zip(Vec::<f32>::try_from(labels).unwrap())
        .map(|(s, label)| Sample {
            genes: genes.iter().zip(&sample).filter(|(_, of)| **of == s).map(|(gene, _)| *gene).collect(),
            label,
            ..Sample::default()
        })
        .collect();
    let processor = PROCESSORS[step as usize % PROCESSORS.len()];
    let batch = collate(processor, graph, &samples);
    let Common { genes, gene_sample, labels, .. } = &batch.common;
    (Tensor::from_slice(genes), Tensor::from_slice(gene_sample), Tensor::from_slice(labels))
}

const PROCESSORS: [Processor; 8] = [
    Processor::Lazy,
    Processor::Perturbation,
    Processor::Shared,
    Processor::Ids,
    Processor::Packed,
    Processor::Subgraph,
    Processor::IncidenceSubgraph,
    Processor::Neighborhood,
];

fn cell_graph(edges: &[(Vec<i64>, Vec<i64>)]) -> Arc<CellGraph> {
    let edge_types = edges.iter().enumerate().map(|(t, (sources, targets))| EdgeType {
        name: format!("t{t}"),
        edge_index: sources.iter().chain(targets).copied().collect(),
    });
    let genes = (0..CONFIG.num_genes).map(|gene| format!("G{gene:02}")).collect();
    Arc::new(CellGraph { genes, edge_types: edge_types.collect(), metabolism: None })
}

fn max_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// But for rounding: two ranks sum gradients in another order.
fn assert_one_as_two(scenario: &str, one: &[f32], two: &[f32]) {
    let [one, two] = [one, two].map(|values| values.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>());
    // A step rounds each parameter once.
    let floor = floor(&one, STEPS as usize);
    assert_rounding(scenario, distance(&one, &two), &RANKS.neighbour_distances(scenario, &one), floor);
}

#[test]
fn sgd_on_two_ranks_equals_one_rank_with_the_whole_batch() {
    let (one, _) = RANKS.train("sgd", 1);
    let (two, digests) = RANKS.train("sgd", 2);
    assert_one_as_two("sgd", &one[0], &two[0]);
    assert_eq!(digests[0], digests[1], "ranks differ from each other");
    assert_eq!(two[0], two[1]);
    // The samples matter: half of them lead elsewhere.
    let (half, _) = RANKS.train("half", 1);
    let off = max_difference(&one[0], &half[0]);
    eprintln!("SGD: max difference to half of the samples {off:e}");
    assert!(off > 1e-3, "{off:e}");
}

#[test]
fn the_model_is_the_same_with_every_processor() {
    let (_, by_hand) = RANKS.train("sgd", 2);
    let (_, assembled) = RANKS.train("processors", 2);
    assert_eq!(assembled, by_hand);
}

#[test]
fn parameters_that_the_loss_leaves_out_are_found() {
    let (one, _) = RANKS.train("interaction", 1);
    let (two, digests) = RANKS.train("interaction", 2);
    assert_one_as_two("interaction", &one[0], &two[0]);
    assert_eq!(digests[0], digests[1], "ranks differ from each other");
    let (with, _) = RANKS.train("sgd", 1);
    assert!(max_difference(&one[0], &with[0]) > 1e-3, "the reconstruction made no difference");
}

#[test]
fn adamw_on_two_ranks_stays_near_one_rank_and_bit_identical_between_ranks() {
    let (one, _) = RANKS.train("adamw", 1);
    let (two, digests) = RANKS.train("adamw", 2);
    let difference = max_difference(&one[0], &two[0]);
    eprintln!("AdamW: max difference 1 rank to 2 ranks {difference:e}");
    assert_eq!(digests[0], digests[1], "ranks differ from each other");
    // AdamW divides by the root of a running mean of squares: where a gradient is rounding noise, its sign decides a
    // whole step. Five steps of 1e-3 either way bound the difference.
    assert!(difference <= 2.0 * 1e-3 * STEPS as f32, "{difference:e}");
}

#[test]
fn the_shuffle_is_libtorchs_randperm() {
    let _alone = generator();
    for (len, seed, epoch) in
        [(1, 0, 0), (2, 1, 3), (1000, 42, 0), (10_000, 42, 7), (332_313, 42, 1), (7, (1 << 32) + 5, 0)]
    {
        tch::manual_seed(seed as i64 + epoch as i64);
        let expected: Vec<i64> = Tensor::randperm(len as i64, (Kind::Int64, Device::Cpu)).try_into().unwrap();
        let sampler = DistributedSampler { len, world_size: 1, rank: 0, shuffle: true, seed, drop_last: false };
        let order: Vec<i64> = sampler.epoch(epoch).into_iter().map(|i| i as i64).collect();
        assert!(
            order == expected,
            "len {len}, seed {seed}, epoch {epoch}: {:?}… {:?}…",
            &order[..order.len().min(5)],
            &expected[..order.len().min(5)]
        );
    }
}
