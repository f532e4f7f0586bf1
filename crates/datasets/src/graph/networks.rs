use std::io::Read;
use std::path::Path;

use expctl_record::{Data, Networks};

use super::edges::EdgeSet;
use super::genes::Genes;
use super::rng::Stream;
use super::{Network, NetworkSource, Recipe};
use crate::PipelineError;

/// A network of the data set: its edges, and how many of them are real.
pub(crate) struct BuiltNetwork {
    pub name: String,
    pub directed: bool,
    pub real: u64,
    pub generated: u64,
    /// int64 `[2, E]`, self-loops at the end.
    pub edge_index: Vec<i64>,
}

/// Make all networks of a recipe.
pub(crate) fn build_all(recipe: &Recipe, data: &Data, genes: &Genes) -> Result<Vec<BuiltNetwork>, PipelineError> {
    recipe.network.iter().map(|network| build(recipe, network, data, genes)).collect()
}

fn build(recipe: &Recipe, network: &Network, data: &Data, genes: &Genes) -> Result<BuiltNetwork, PipelineError> {
    let mut edges = EdgeSet::new(genes.len(), network.directed);
    let mut real_published = 0;
    if let NetworkSource::File(file) = &network.source {
        real_published = read_edges(&recipe.folder.join(file), genes, &mut edges)?;
    }
    let real = edges.len();
    // The published number counts a self-loop per gene.
    let missing = network.edges.saturating_sub(recipe.genes + real_published);
    let generate = network.source == NetworkSource::Generated || data.networks == Networks::Completed;
    if generate {
        let share = genes.len() as f64 / recipe.genes as f64;
        let count = (missing as f64 * share * share).round() as u64;
        edges.add_random(count, &mut Stream::new(data.seed, data.scale, &network.name));
    }
    Ok(BuiltNetwork {
        name: network.name.clone(),
        directed: network.directed,
        real,
        generated: edges.len() - real,
        edge_index: edges.edge_index(),
    })
}

/// How many edges a network will have, a loop of each gene included: counted where all are read from a file, else as many as the published
/// number makes of so many genes.
pub(crate) fn expected_edges(
    recipe: &Recipe,
    network: &Network,
    data: &Data,
    genes: &Genes,
) -> Result<u64, PipelineError> {
    let edges = match &network.source {
        NetworkSource::File(file) if data.networks != Networks::Completed => {
            let mut edges = EdgeSet::new(genes.len(), network.directed);
            read_edges(&recipe.folder.join(file), genes, &mut edges)?;
            edges.len()
        }
        _ => {
            let share = genes.len() as f64 / recipe.genes as f64;
            let pairs = genes.len() * genes.len().saturating_sub(1) / if network.directed { 1 } else { 2 };
            let published = network.edges.saturating_sub(recipe.genes) as f64;
            ((published * share * share).round() as u64).min(pairs)
        }
    };
    Ok(edges + genes.len())
}

/// Add the edges of a gzipped `i<TAB>j<TAB>score` file whose two genes are both in the data set; i and j are 1-based rows
/// of the file of gene names. Returns how many distinct edges the file has.
fn read_edges(path: &Path, genes: &Genes, edges: &mut EdgeSet) -> Result<u64, PipelineError> {
    let file = std::fs::File::open(path).map_err(PipelineError::io("read", path))?;
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(std::io::BufReader::new(file))
        .read_to_string(&mut text)
        .map_err(PipelineError::io("unpack", path))?;
    let mut all = EdgeSet::new(genes.position_of_row.len() as u64, edges.is_directed());
    for (number, line) in text.lines().enumerate() {
        let mut fields = line.split('\t');
        let mut row = || {
            let row: usize = fields.next()?.trim().parse().ok()?;
            let position = genes.position_of_row.get(row.checked_sub(1)?)?;
            Some((row as u64 - 1, *position))
        };
        let (Some((source, a)), Some((target, b))) = (row(), row()) else {
            return Err(PipelineError::damaged(path, format!("line {}: not two rows of the gene names", number + 1)));
        };
        all.insert(source, target);
        if let (Some(a), Some(b)) = (a, b) {
            edges.insert(u64::from(a), u64::from(b));
        }
    }
    Ok(all.len())
}
