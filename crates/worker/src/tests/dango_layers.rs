//! Every layer of DANGO against a script that rebuilds it from the formulas.

use tch::{Device, Kind, Tensor, nn};

use crate::models::EdgeList;
use crate::models::dango::{
    Dango, DangoConfig, DangoGraph, MetaEmbedding, ReconstructionHead, SageConv, xavier_linear,
};
use crate::models::layers::{Activation, HyperSagnn, HyperSagnnOptions};
use crate::tests::layer_cases::{Cases, number, numbers};

// Nothing leads to gene 3, 0 → 1 is listed twice, 2 has a self-loop.
const SOURCES: [i64; 7] = [0, 0, 4, 2, 3, 1, 5];
const TARGETS: [i64; 7] = [1, 1, 1, 2, 0, 4, 6];
const GENES: i64 = 7;

fn list(name: &str) -> EdgeList<'_> {
    EdgeList { name, sources: &SOURCES, targets: &TARGETS }
}

fn index() -> (String, Tensor) {
    ("index".to_owned(), Tensor::from_slice(&[SOURCES, TARGETS].concat()).view([2, -1]))
}

#[test]
fn every_layer_is_what_its_formula_says() {
    let mut cases = Cases::new(Kind::Float);
    let graph = DangoGraph::new(&list("t"), GENES, true, Device::Cpu).unwrap();
    let sage = |vs: &nn::Path| SageConv::new(vs / "conv", 8);
    cases.add("sage", &[("x", &[GENES, 8])], vec![index()], sage, |layer, x| {
        layer.forward(&x[0], &graph.mean_of_sources).unwrap()
    });
    let meta = |vs: &nn::Path| MetaEmbedding::new(vs / "meta", 8);
    cases.add("meta", &[("x", &[5, 3, 8])], Vec::new(), meta, |layer, x| layer.forward(&x[0]));
    for (variant, lambda) in [("published", 1.0), ("tenth", 0.1)] {
        let weight = ("lambda".to_owned(), Tensor::from_slice(&[lambda]));
        let make = |vs: &nn::Path| ReconstructionHead::new(vs / "reconstruction", 8, GENES);
        let name = format!("reconstruction:{variant}");
        cases.add(&name, &[("x", &[GENES, 8])], vec![index(), weight], make, |layer, x| {
            layer.loss(&x[0], &graph, lambda).unwrap()
        });
    }
    let sample = [0i64, 0, 0, 1, 2, 2, 3, 3, 3, 3];
    let constants = vec![numbers("sample", &sample), number("batch", 4)];
    let sample = Tensor::from_slice(&sample);
    let make = |vs: &nn::Path| {
        let options = HyperSagnnOptions { activation: Activation::Relu, moves_lone_gene: true, linear: &xavier_linear };
        HyperSagnn::new(&(vs / "hyper_sagnn"), 8, 2, 2, options)
    };
    cases.add("hyper_sagnn", &[("x", &[10, 8])], constants, make, |layer, x| layer.forward(&x[0], &sample, 4).unwrap());

    let config = DangoConfig { hidden: 8, heads: 2, ..DangoConfig::published(GENES) };
    let (genes, sample) = ([4i64, 2, 6, 5, 0, 1], [0i64, 0, 0, 1, 2, 2]);
    let constants = vec![index(), numbers("genes", &genes), numbers("sample", &sample), number("batch", 3)];
    let [genes, sample] = [genes, sample].map(|values| Tensor::from_slice(&values));
    let make = |vs: &nn::Path| Dango::new(vs, &config, &[list("a"), list("b")]).unwrap();
    cases.add("model", &[], constants, make, |model, _| {
        let output = model.forward(&genes, &sample, 3, true).unwrap();
        Tensor::cat(&[output.prediction, output.reconstruction.unwrap().unsqueeze(0)], 0)
    });
    cases.check_with("dango_layers.py");
}
