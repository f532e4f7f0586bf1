//! What the published processors and their batches are, on graphs small enough to check by hand, and their bytes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::sync::Arc;

use graph_loader::{
    Assembler, Batch, CellGraph, Collation, EdgeType, GraphBatchOptions, Graphs, Layout, Metabolism, Processor, Sample,
    Walk,
};

/// Five genes: 0 → 1 twice, 1 → 2 stored once though it goes both ways, 3 → 0, a self-loop each. Reaction 0 needs genes 0
/// and 1, reaction 1 needs gene 2, reaction 2 none.
fn graph() -> Arc<CellGraph> {
    let edges =
        EdgeType { name: "e".into(), edge_index: vec![0, 0, 1, 3, 0, 1, 2, 3, 4, /* to */ 1, 1, 2, 0, 0, 1, 2, 3, 4] };
    Arc::new(CellGraph {
        genes: (0..5).map(|i| format!("G{i}")).collect(),
        edge_types: vec![edges],
        metabolism: Some(Metabolism {
            reactions: 3,
            metabolites: 2,
            gpr: vec![0, 1, 2, /* of */ 0, 0, 1],
            rmr: vec![0, 0, 1, 2, /* with */ 0, 1, 1, 0],
            stoichiometry: vec![-1.0, 2.0, 0.5, 1.0],
        }),
    })
}

fn sample(genes: &[i64]) -> Sample {
    Sample { genes: genes.to_vec(), label: 0.25, p_value: 0.5, ..Sample::default() }
}

fn batch(pipeline: &GraphBatchOptions, samples: &[Sample]) -> Batch {
    let mut assembler = Assembler::new(pipeline, graph()).unwrap();
    let mut batch = assembler.empty();
    assembler.mask(samples, &[], &mut batch);
    assembler.collate(samples, &mut batch);
    batch
}

fn graphs(pipeline: &GraphBatchOptions, samples: &[Sample]) -> Graphs {
    match batch(pipeline, samples).layout {
        Layout::Graphs(graphs) => *graphs,
        other => panic!("{other:?}"),
    }
}

#[test]
fn lazy_masks_and_keeps_all() {
    let graphs = graphs(&GraphBatchOptions::new(Processor::Lazy), &[sample(&[0]), sample(&[])]);
    // Both parallel edges, the edge from 3, and the self-loop of gene 0 go; without a perturbed gene nothing does.
    assert_eq!(graphs.edges[0].mask, [0, 0, 1, 0, 0, 1, 1, 1, 1, /* second */ 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(graphs.edges[0].sources(), [0, 0, 1, 3, 0, 1, 2, 3, 4, 5, 5, 6, 8, 5, 6, 7, 8, 9]);
    assert_eq!(graphs.edges[0].targets(), [1, 1, 2, 0, 0, 1, 2, 3, 4, 6, 6, 7, 5, 5, 6, 7, 8, 9]);
    assert_eq!(graphs.edges[0].num_edges, [9, 9]);
    assert_eq!(graphs.genes.kept, [0, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(graphs.genes.perturbed, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((&graphs.genes.ptr[..], &graphs.x.ptr[..]), (&[0, 5, 10][..], &[0, 5, 10][..]));
    assert!(graphs.x_pert.batch.is_empty(), "lazy has none");
    let metabolism = graphs.metabolism.unwrap();
    // Reaction 0 lost a gene, of reaction 1 all are there, and reaction 2 has none.
    assert_eq!(metabolism.reactions.kept, [0, 1, 1, 1, 1, 1]);
    // A gpr edge goes with its own gene, an rmr edge with its reaction.
    assert_eq!(metabolism.gpr.mask, [0, 1, 1, 1, 1, 1]);
    assert_eq!(metabolism.rmr.mask, [0, 0, 1, 1, 1, 1, 1, 1]);
    assert_eq!(metabolism.gpr.edge_index, [0, 1, 2, 5, 6, 7, /* of */ 0, 0, 1, 3, 3, 4]);
    assert_eq!(metabolism.rmr.edge_index, [0, 0, 1, 2, 3, 3, 4, 5, /* with */ 0, 1, 1, 0, 2, 3, 3, 2]);
    assert_eq!(metabolism.stoichiometry, [-1.0, 2.0, 0.5, 1.0, -1.0, 2.0, 0.5, 1.0]);
    assert_eq!((metabolism.metabolites.kept, metabolism.w_growth), (vec![1; 4], vec![0.0; 6]));
}

#[test]
fn subgraphs_lose_the_reaction_with_its_last_gene_edges() {
    for processor in [Processor::Subgraph, Processor::IncidenceSubgraph] {
        let graphs = graphs(&GraphBatchOptions::new(processor), &[sample(&[0]), sample(&[])]);
        assert_eq!(graphs.edges[0].num_edges, [5, 9]);
        // 1 → 2 and four self-loops, numbered from 0; then the whole graph behind these four genes.
        assert_eq!(graphs.edges[0].sources(), [0, 0, 1, 2, 3, 4, 4, 5, 7, 4, 5, 6, 7, 8]);
        assert_eq!(graphs.edges[0].targets(), [1, 0, 1, 2, 3, 5, 5, 6, 4, 4, 5, 6, 7, 8]);
        assert_eq!(graphs.edges[0].removed[..9], [1, 1, 0, 1, 1, 0, 0, 0, 0]);
        assert!(graphs.edges[0].mask.is_empty() && graphs.genes.kept.is_empty());
        assert_eq!((&graphs.genes.ptr[..], &graphs.x_pert.ptr[..]), (&[0, 4, 9][..], &[0, 1, 1][..]));
        let metabolism = graphs.metabolism.unwrap();
        assert_eq!(metabolism.reactions.ptr, [0, 2, 5]);
        // Gene 1 is kept, but its reaction is not.
        assert_eq!(metabolism.gpr.edge_index, [1, 4, 5, 6, /* of */ 0, 2, 2, 3]);
        assert_eq!(metabolism.gpr.removed, [1, 1, 0, 0, 0, 0]);
        assert_eq!(metabolism.rmr.edge_index, [0, 1, 2, 2, 3, 4, /* with */ 1, 0, 2, 3, 3, 2]);
        assert_eq!(metabolism.stoichiometry, [0.5, 1.0, -1.0, 2.0, 0.5, 1.0]);
    }
}

#[test]
fn a_neighborhood_keeps_the_perturbed_genes() {
    let pipeline = GraphBatchOptions { walk: Walk::Union, ..GraphBatchOptions::new(Processor::Neighborhood) };
    let graphs = graphs(&pipeline, &[sample(&[0]), sample(&[4])]);
    assert_eq!(graphs.genes.original, [0, 1, 3, 4]);
    assert_eq!((&graphs.genes.kept[..], &graphs.genes.perturbed[..]), (&[0, 1, 1, 0][..], &[1, 0, 0, 1][..]));
    // By source: 0 → 1 twice, 0 → 0; 1 → 1; 3 → 0, 3 → 3; then the lone gene's self-loop.
    assert_eq!(graphs.edges[0].sources(), [0, 0, 0, 1, 2, 2, 3]);
    assert_eq!(graphs.edges[0].targets(), [1, 1, 0, 1, 0, 2, 3]);
    assert_eq!(graphs.edges[0].mask, [0, 0, 0, 1, 0, 1, 0]);
    let metabolism = graphs.metabolism.unwrap();
    assert_eq!(metabolism.gpr.edge_index, [0, 1, /* of */ 0, 0]);
    assert_eq!((&metabolism.gpr.mask[..], &metabolism.gpr.num_edges[..]), (&[0, 1][..], &[2, 0][..]));
    assert_eq!(metabolism.rmr.mask, [0, 0, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn the_published_walk_goes_against_the_edges() {
    let pipeline = GraphBatchOptions::new(Processor::Neighborhood);
    let Layout::Graphs(graphs) = batch(&pipeline, &[sample(&[0])]).layout else { panic!() };
    assert_eq!(graphs.genes.original, [0, 3]);
}

#[test]
fn the_incoming_walk_has_the_edges_that_it_followed_and_no_others() {
    let walk =
        |hops| GraphBatchOptions { walk: Walk::Incoming, hops, ..GraphBatchOptions::new(Processor::Neighborhood) };
    let one = graphs(&walk(1), &[sample(&[1]), sample(&[2])]);
    assert_eq!((&one.genes.original[..], &one.genes.ptr[..]), (&[0, 1, 1, 2][..], &[0, 2, 4][..]));
    // To gene 1: 0 → 1 twice, 1 → 1, and not the self-loop of gene 0. To gene 2: 1 → 2, 2 → 2.
    assert_eq!(one.edges[0].sources(), [0, 0, 1, 2, 3]);
    assert_eq!(one.edges[0].targets(), [1, 1, 1, 3, 3]);
    assert_eq!((&one.edges[0].mask[..], &one.edges[0].num_edges[..]), (&[0; 5][..], &[3, 2][..]));
    let two = graphs(&walk(2), &[sample(&[1])]);
    assert_eq!(two.genes.original, [0, 1, 3]);
    // By target: 3 → 0, 0 → 0; then those to gene 1.
    assert_eq!(two.edges[0].sources(), [2, 0, 0, 0, 1]);
    assert_eq!(two.edges[0].targets(), [0, 0, 1, 1, 1]);
    assert_eq!(two.edges[0].mask, [1, 1, 0, 0, 0]);
}

#[test]
fn the_collater_that_never_ran_makes_no_ptr_and_follows_nothing() {
    let samples = [sample(&[0]), sample(&[1, 2])];
    let pyg = graphs(&GraphBatchOptions::new(Processor::Lazy), &samples);
    let pipeline = GraphBatchOptions { collation: Collation::LazyCollater, ..GraphBatchOptions::new(Processor::Lazy) };
    let written = graphs(&pipeline, &samples);
    assert!(written.genes.ptr.is_empty() && written.x == Default::default());
    assert_eq!((written.edges, written.genes.batch), (pyg.edges, pyg.genes.batch));
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let refused = |pipeline: GraphBatchOptions| Assembler::new(&pipeline, graph()).unwrap_err().to_string();
    let new = |processor| GraphBatchOptions::new(processor);
    let message = refused(GraphBatchOptions { collation: Collation::SharedIndex, ..new(Processor::Subgraph) });
    assert_eq!(message, "with subgraph each sample has edges of its own: there is no index to share");
    let message = refused(GraphBatchOptions { hops: 4, ..new(Processor::Neighborhood) });
    assert_eq!(message, "a neighborhood has 1 to 3 hops, not 4");
    let message = refused(GraphBatchOptions { follow_batch: vec!["y".into()], ..new(Processor::Lazy) });
    assert_eq!(message, "follow_batch can name x, x_pert, perturbation_indices, not y");
}

/// Genes, edges by type, reactions, metabolites, gpr and rmr edges of the published graph.
fn full_scale() -> Arc<CellGraph> {
    let edges = [144_211, 44_310, 207_250, 153_320, 18_394, 17_692, 1_002_806, 828_701, 79_224];
    let edge_types: Vec<EdgeType> =
        edges.iter().map(|e| EdgeType { name: String::new(), edge_index: vec![0; 2 * e] }).collect();
    let graph = CellGraph {
        genes: vec![String::new(); 6607],
        edge_types,
        metabolism: Some(Metabolism {
            reactions: 7122,
            metabolites: 2806,
            gpr: vec![0; 2 * 5450],
            rmr: vec![0; 2 * 26_325],
            stoichiometry: vec![0.0; 26_325],
        }),
    };
    assert_eq!(graph.num_edges(), 2_495_908);
    Arc::new(graph)
}

/// The formula is the batch's own: `layouts.rs` compares the two on every random graph.
#[test]
fn a_batch_of_28_has_the_published_bytes() {
    // As in the published measurement (087).
    let follow_batch = vec!["perturbation_indices".to_owned()];
    let pipeline = GraphBatchOptions { follow_batch, ..GraphBatchOptions::new(Processor::Lazy) };
    let bytes =
        |pipeline: &GraphBatchOptions| Assembler::new(pipeline, full_scale()).unwrap().fixed_bytes(28, 3 * 28).unwrap();
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / (1 << 20) as f64);
    let as_run = bytes(&pipeline);
    assert_eq!(mib(as_run), "1155.4");
    assert_eq!(mib(as_run - 4 * 28 * 7122), "1154.7", "without w_growth");
    // Edges, nodes, reals; then starts, perturbed genes with their samples, phenotypes and edge counts, labels.
    let derived = 28 * 2_527_683 * 17 + 28 * 16_535 * (2 + 8) + 28 * 4 * (26_325 + 7122);
    let vectors = 8 * (4 * 29 + 2 * 84 + (4 + 11) * 28) + 4 * 2 * 28;
    assert_eq!(as_run, derived + vectors);
    // Of which edge masks alone are a seventeenth, their bits an eighth of that.
    let shared = bytes(&GraphBatchOptions { collation: Collation::SharedIndex, ..pipeline.clone() });
    assert_eq!(mib(shared), "72.7");
    assert_eq!(mib(bytes(&GraphBatchOptions::new(Processor::Packed))), "8.5");
    assert_eq!(bytes(&GraphBatchOptions::new(Processor::Ids)), 28 * 3 * 16 + 29 * 8 + 28 * 8);
}
