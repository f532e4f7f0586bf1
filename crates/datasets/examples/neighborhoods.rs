//! What the processor `neighborhood` makes of the first samples of a data set. `benches/peers/check_neighbors.py` compares it with other
//! samplers.
//!
//! `neighborhoods FOLDER WALK HOPS COUNT`
//!
//! Prints a JSON object on a line for each sample: its genes, and of each edge type the sources and the targets of its edges. All are genes of
//! the whole graph, by number.

#![expect(clippy::panic, clippy::print_stdout, clippy::unwrap_used, reason = "a check")]

use std::path::Path;
use std::sync::Arc;

use expctl_datasets::graph::Dataset;
use graph_loader::{Assembler, GraphBatchOptions, Layout, Processor, Sample, Walk};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, walk, hops, count] = &arguments[..] else { panic!("usage: neighborhoods FOLDER WALK HOPS COUNT") };
    let walk = match walk.as_str() {
        "per_type" => Walk::PerType,
        "union" => Walk::Union,
        "incoming" => Walk::Incoming,
        other => panic!("{other} is no walk: per_type, union or incoming"),
    };
    let dataset = Dataset::open(Path::new(folder)).unwrap();
    let names: Vec<String> = dataset.manifest().networks.iter().map(|network| network.name.clone()).collect();
    let graph = Arc::new(dataset.graph(&names, false).unwrap());
    let hops = hops.parse().unwrap();
    let options = GraphBatchOptions { walk, hops, ..GraphBatchOptions::new(Processor::Neighborhood) };
    let mut assembler = Assembler::new(&options, graph).unwrap();
    let mut batch = assembler.empty();
    let (store, decoder) = (dataset.store().unwrap(), dataset.decoder().unwrap());
    let mut reader = store.reader().unwrap();
    for index in 0..count.parse::<u64>().unwrap() {
        let (mut bytes, mut sample) = (Vec::new(), Sample::default());
        reader.read(index, &mut bytes).unwrap();
        decoder.decode(index, &bytes, &mut sample).unwrap();
        let samples = [sample];
        assembler.mask(&samples, &[], &mut batch);
        assembler.collate(&samples, &mut batch);
        let Layout::Graphs(graphs) = &batch.layout else { panic!("a batch of another processor") };
        let genes = &graphs.genes.original;
        let original = |nodes: &[i64]| -> Vec<i64> { nodes.iter().map(|node| genes[*node as usize]).collect() };
        // Lists of numbers and names are printed alike by Rust and in JSON.
        let edges: Vec<String> = (names.iter().zip(&graphs.edges))
            .map(|(name, edges)| format!("{name:?}:[{:?},{:?}]", original(edges.sources()), original(edges.targets())))
            .collect();
        println!("{{\"sample\":{index},\"genes\":{genes:?},\"edges\":{{{}}}}}", edges.join(","));
    }
}
