//! How large the stores of a data set will be, from its recipe alone: before anything of it is there.

use std::path::Path;

use expctl_record::{Data, StoreKind};

use super::Recipe;
use super::estimate::{PAGE, lmdb_bytes, record_bytes};
use super::files::bytes_of;
use super::genes::Genes;
use super::metabolism::Sizes;
use super::networks::expected_edges;
use super::partial::Partial;
use super::template::RecordTemplate;
use super::triples::GENES_PER_SAMPLE;
use crate::PipelineError;
use crate::store::{MaskSizes, value_bytes};

/// Bytes that a store of a data set will take on disk; of the base store (`json`) with the graph's file.
///
/// Estimated by counts: those of edges are the recipe's where edges are generated, and what a sample removes of a mask is the mean over all
/// genes. Lengths of records and pages follow from the formats, so a store of whole masks is exact to the percent.
///
/// # Errors
/// A file of the recipe cannot be read.
pub fn expected_bytes(recipe: &Recipe, data: &Data, kind: StoreKind) -> Result<u64, PipelineError> {
    let genes = Genes::new(recipe, data.seed, data.scale)?;
    let share = genes.len() as f64 / recipe.genes as f64;
    let metabolism = Sizes::of(&recipe.bipartite, genes.len(), share);
    let counted = |network| Ok::<_, PipelineError>((network, expected_edges(recipe, network, data, &genes)?));
    let networks = recipe.network.iter().map(counted).collect::<Result<Vec<_>, _>>()?;
    let (value, of_graph) = match kind {
        StoreKind::Json => {
            let mut record = Vec::new();
            let template = RecordTemplate::load(&recipe.folder.join(&recipe.samples.record))?;
            let name = genes.names.first().map_or("", String::as_str);
            let (label, p_value) = (recipe.samples.label_mean, recipe.samples.label_sd);
            template.render(data.samples, [name; GENES_PER_SAMPLE], label, p_value, &mut record);
            // Both ends of an edge as int64, and a float32 of each edge between a reaction and a metabolite.
            let edges: u64 = networks.iter().map(|(_, edges)| edges).sum();
            (record.len() as f64, 16 * (edges + metabolism.gpr + metabolism.rmr) + 4 * metabolism.rmr)
        }
        _ => {
            let counted: Vec<(String, usize)> =
                networks.iter().map(|(network, edges)| (network.name.clone(), *edges as usize)).collect();
            let nodes = [genes.len(), metabolism.reactions, metabolism.metabolites].map(|n| n as usize);
            let sizes = MaskSizes::new(nodes, &counted, metabolism.gpr as usize, metabolism.rmr as usize);
            (value_bytes(kind, &sizes, GENES_PER_SAMPLE, &removed(&counted, &metabolism, genes.len())), 0)
        }
    };
    let key = data.samples.to_string().len() as u64;
    let (leaf, pages) = record_bytes(key, value as u64);
    // Positions differ in number from sample to sample, so half of the last page is left free on average.
    let pages = match kind {
        StoreKind::Compressed if pages > 0 => 16.0 + value + PAGE as f64 / 2.0,
        _ => pages as f64,
    };
    Ok(lmdb_bytes(data.samples, leaf as f64, pages) + of_graph)
}

/// False positions of each mask that a sample has, mean over all genes, in the order of [`MaskSizes`]: an edge goes with either of its
/// genes, a reaction with any gene that catalyses it, its edges with the reaction.
fn removed(networks: &[(String, usize)], metabolism: &Sizes, genes: u64) -> Vec<f64> {
    let (perturbed, genes) = (GENES_PER_SAMPLE as f64, genes as f64);
    let of_network = |(_, edges): &(String, usize)| {
        // A gene's loop is listed once, every other edge at both of its ends.
        let others = (*edges as f64 - genes).max(0.0);
        (perturbed * (2.0 * others / genes + 1.0)).min(*edges as f64)
    };
    let catalysed = perturbed * metabolism.gpr as f64 / genes;
    let of_reaction = metabolism.rmr as f64 / metabolism.reactions.max(1) as f64;
    let nodes = [perturbed, catalysed, 0.0];
    nodes.into_iter().chain(networks.iter().map(of_network)).chain([catalysed, catalysed * of_reaction]).collect()
}

/// Bytes on disk that a build or conversion of `folder` that was stopped has left, for the next one to go on with.
pub fn unfinished_bytes(folder: &Path) -> u64 {
    bytes_of(&Partial::path_of(folder)).map_or(0, |(_, allocated)| allocated)
}
