//! How large the stores of a data set will be, from its recipe alone: before anything of it is there.

use std::fmt;
use std::path::Path;

use expctl_settings::{Data, StoreKind};
use graph_loader::{MaskSizes, value_bytes};

use crate::DatasetError;
use crate::build_folder::{BuildFolder, bytes_of};
use crate::graph::build::RecordTemplate;
use crate::graph::networks::{GeneNames, MetabolismSizes, expected_edges};
use crate::graph::recipe::Recipe;
use crate::graph::samples::GENES_PER_SAMPLE;
use crate::settings::record_format;

/// Bytes that a store of a data set will take on disk; of the base store (`json`) with the graph's file.
///
/// The estimate uses the recipe's numbers of edges where edges are generated, and the mean over all genes for the entries that a
/// sample removes. Lengths of records and pages follow from the formats, so a store of whole masks is exact to the percent.
///
/// # Errors
/// A file of the recipe cannot be read.
pub fn expected_bytes(recipe: &Recipe, data: &Data, kind: StoreKind) -> Result<u64, DatasetError> {
    let genes = GeneNames::new(recipe, data.seed, data.scale)?;
    let share = genes.len() as f64 / recipe.genes as f64;
    let metabolism = MetabolismSizes::new(&recipe.bipartite, genes.len(), share);
    let counted = |network| Ok::<_, DatasetError>((network, expected_edges(recipe, network, data, &genes)?));
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
            (
                value_bytes(
                    record_format(kind),
                    &sizes,
                    GENES_PER_SAMPLE,
                    &removed(&counted, &metabolism, genes.len()),
                ),
                0,
            )
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
fn removed(networks: &[(String, usize)], metabolism: &MetabolismSizes, genes: u64) -> Vec<f64> {
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

/// Bytes on disk that a stopped build or conversion of `folder` has left; the next one continues with them.
pub fn unfinished_bytes(folder: &Path) -> u64 {
    bytes_of(&BuildFolder::path_of(folder)).map_or(0, |(_, allocated)| allocated)
}

/// Records that are encoded to find how large a store will be.
pub const ESTIMATED_FROM: u64 = 64;
/// LMDB's page, bytes.
pub const PAGE: u64 = 4096;
/// A node of more bytes has its value in overflow pages.
const NODE_MAX: u64 = 2038;

/// Estimated size of a store before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Bytes of the whole store.
    pub bytes: u64,
    /// Records that were encoded for the estimate.
    pub from: u64,
    /// Bytes that a stopped conversion has left.
    pub there: u64,
    /// Bytes that are free where it is written.
    pub free: u64,
}

impl Estimate {
    /// Bytes that there is no room for.
    pub fn missing(&self) -> u64 {
        self.bytes.saturating_sub(self.there).saturating_sub(self.free)
    }
}

/// `about 854.8 GB (estimated from 64 records), 80.1 GB are free, 774.7 GB are missing`
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = if self.from == 1 { "record" } else { "records" };
        write!(f, "about {} (estimated from {} {records}), ", Decimal(self.bytes), self.from)?;
        if self.there > 0 {
            write!(f, "{} of it are there, ", Decimal(self.there))?;
        }
        write!(f, "{} are free", Decimal(self.free))?;
        if self.missing() > 0 { write!(f, ", {} are missing", Decimal(self.missing())) } else { Ok(()) }
    }
}

/// Bytes that a record takes in an LMDB file, from the lengths of its key and value: in leaves of the tree, and in overflow
/// pages.
pub fn record_bytes(key: u64, value: u64) -> (u64, u64) {
    let (header, pointer) = (8, 2);
    if header + key + value > NODE_MAX {
        ((header + key + 8).next_multiple_of(2) + pointer, (16 + value).next_multiple_of(PAGE))
    } else {
        ((header + key + value).next_multiple_of(2) + pointer, 0)
    }
}

/// Bytes of an LMDB file of so many records, each with `leaf` bytes in leaves of the tree and `pages` bytes in overflow pages:
/// with two meta pages, and a percent of the leaves for branches and unused space.
pub fn lmdb_bytes(records: u64, leaf: f64, pages: f64) -> u64 {
    ((leaf * 1.01 + pages) * records as f64) as u64 + 4 * PAGE
}

/// Bytes in decimal units, as disks are sold and as the published sizes are given.
struct Decimal(u64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            1_000_000_000.. => write!(f, "{:.1} GB", bytes / 1e9),
            1_000_000.. => write!(f, "{:.1} MB", bytes / 1e6),
            _ => write!(f, "{:.1} kB", bytes / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_says_what_is_missing() {
        let estimate = Estimate { bytes: 854_800_000_000, from: 64, there: 0, free: 80_100_000_000 };
        assert_eq!(
            estimate.to_string(),
            "about 854.8 GB (estimated from 64 records), 80.1 GB are free, 774.7 GB are missing"
        );
        let rest = Estimate { there: 800_000_000_000, ..estimate };
        assert_eq!(rest.missing(), 0);
        assert!(rest.to_string().ends_with(", 800.0 GB of it are there, 80.1 GB are free"), "{rest}");
    }
}
