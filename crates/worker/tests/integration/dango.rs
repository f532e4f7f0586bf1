//! The DANGO model as a whole.

use expctl_rounding::{RATIO, assert_rounding, at_neighbours, floor, norm, values};
use expctl_worker::models::dango::{Dango, DangoConfig};
use expctl_worker::models::{EdgeList, ModelError, named_parameters, parameters_digest};
use tch::{Device, Kind, Tensor, nn};

use crate::support::generator;

const TYPES: [&str; 6] = ["neighborhood", "fusion", "cooccurence", "coexpression", "experimental", "database"];

fn small() -> DangoConfig {
    DangoConfig { num_genes: 30, hidden: 8, heads: 2, layers: 2, absent_weight: 1.0 }
}

fn edges(seed: i64, genes: i64, count: i64) -> (Vec<i64>, Vec<i64>) {
    ((0..count).map(|i| (i * i + seed) % genes).collect(), (0..count).map(|i| (i * 7 + seed * 3) % genes).collect())
}

fn build(config: &DangoConfig, seed: i64, types: usize) -> (nn::VarStore, Dango) {
    let _alone = generator();
    tch::manual_seed(seed);
    let vs = nn::VarStore::new(Device::Cpu);
    let lists: Vec<_> = (0..types).map(|i| edges(i as i64, config.num_genes, 90)).collect();
    let graphs: Vec<EdgeList> =
        lists.iter().zip(TYPES).map(|((s, t), name)| EdgeList { name, sources: s, targets: t }).collect();
    let model = Dango::new(&vs.root(), config, &graphs).unwrap();
    (vs, model)
}

#[test]
fn the_published_model_has_3138270_parameters() {
    let (vs, _) = build(&DangoConfig::published(6607), 0, 6);
    let parameters = named_parameters(&vs);
    let count: usize = parameters.iter().map(|(_, p)| p.numel()).sum();
    assert_eq!(count, 3_138_270);
    let part =
        |of: &str| -> usize { parameters.iter().filter(|(n, _)| n.starts_with(of)).map(|(_, p)| p.numel()).sum() };
    assert_eq!(part("embedding"), 422_848);
    assert_eq!(part("encoders.3.conv1") + part("encoders.3.conv2"), 16_512);
    assert_eq!(part("encoders.3.reconstruction"), 429_455);
    assert_eq!(part("meta"), 2_113);
    assert_eq!(part("hyper_sagnn.static"), 4_160);
    assert_eq!(part("hyper_sagnn.attention1"), 16_641);
    assert_eq!(part("hyper_sagnn.prediction"), 65);
    let embedding = &parameters.iter().find(|(n, _)| n == "embedding").unwrap().1;
    // The standard error of that of 422,848 draws is 0.0001.
    assert!((embedding.std(true).double_value(&[]) - 0.1).abs() < 1e-3);
}

#[test]
fn a_seed_determines_every_bit() {
    let digest = |seed| parameters_digest(&named_parameters(&build(&small(), seed, 2).0)).unwrap();
    assert_eq!(digest(7), digest(7));
    assert_ne!(digest(7), digest(8));
}

#[test]
fn a_sample_is_scored_alone_as_in_a_batch() {
    let (vs, model) = build(&small(), 1, 3);
    let genes = Tensor::from_slice(&[4i64, 9, 2, 17, 17, 5, 0]);
    let sample = Tensor::from_slice(&[0i64, 0, 0, 1, 2, 2, 2]);
    let in_batch = || values(&model.forward(&genes, &sample, 4, false).unwrap().prediction);
    let all = in_batch();
    assert_eq!(all[3], 0.0, "a sample without genes");
    let alone = [0..3, 3..4, 4..7].map(|range| {
        let part = genes.slice(0, range.start, range.end, 1);
        model.forward(&part, &Tensor::zeros_like(&part), 1, false).unwrap().prediction.double_value(&[0])
    });
    let near = at_neighbours(&vs, in_batch);
    for (i, alone) in alone.into_iter().enumerate() {
        let peers: Vec<f64> = near.iter().map(|near| near[i] - all[i]).collect();
        assert_rounding(&format!("sample {i}"), (all[i] - alone).abs(), &peers, floor(&[alone], 8));
    }
    let peers: Vec<f64> = near.iter().map(|near| near[0] - all[0]).collect();
    assert!((all[0] - all[2]).abs() > RATIO * norm(&peers), "{all:?}: samples are told apart");
}

#[test]
fn every_parameter_gets_a_finite_gradient_even_beside_a_single_gene() {
    let (vs, model) = build(&small(), 2, 3);
    let output =
        model.forward(&Tensor::from_slice(&[3i64, 8, 21, 11]), &Tensor::from_slice(&[0i64, 1, 1, 1]), 2, true).unwrap();
    let loss = output.prediction.square().sum(Kind::Float) + output.reconstruction.unwrap();
    loss.backward();
    for (name, p) in named_parameters(&vs) {
        assert!(p.grad().defined(), "{name}");
        assert!(p.grad().isfinite().all().int64_value(&[]) == 1, "{name}");
    }
}

#[test]
fn without_reconstruction_the_heads_stay_out() {
    let (vs, model) = build(&small(), 2, 2);
    let output = model.forward(&Tensor::from_slice(&[3i64, 8]), &Tensor::from_slice(&[0i64, 0]), 1, false).unwrap();
    assert!(output.reconstruction.is_none());
    output.prediction.sum(Kind::Float).backward();
    for (name, p) in named_parameters(&vs) {
        assert_eq!(p.grad().defined(), !name.contains("reconstruction"), "{name}");
    }
}

#[test]
fn impossible_models_are_refused() {
    let vs = nn::VarStore::new(Device::Cpu);
    let refuse = |config: DangoConfig, graphs: &[EdgeList]| -> String {
        let error: ModelError = Dango::new(&vs.root(), &config, graphs).unwrap_err();
        error.to_string()
    };
    let good = EdgeList { name: "fusion", sources: &[1], targets: &[2] };
    assert_eq!(
        refuse(DangoConfig { heads: 3, ..small() }, &[good]),
        "impossible model size: 8 channels cannot be split among 3 heads"
    );
    assert_eq!(refuse(small(), &[]), "impossible model size: no edge types");
    assert_eq!(
        refuse(small(), &[EdgeList { targets: &[30], ..good }]),
        "edge type fusion: gene 30 is not among 30 genes"
    );
    assert_eq!(refuse(small(), &[EdgeList { targets: &[], ..good }]), "edge type fusion: 1 sources and 0 targets");
}
