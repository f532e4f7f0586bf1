//! The genes and edges of a data set of a graph: gene names, networks (edges from files, random edges to fill up) and a generated metabolism.
//! Invariant: all of it follows from the recipe, the seed and the scale.

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

use expctl_settings::{Data, Networks};

use crate::graph::recipe::{Bipartite, Network, NetworkSource, Recipe};
use crate::random::RandomStream;
use crate::{Damage, DatasetError};

/// A network of the data set: its edges, and how many of them are real.
pub struct BuiltNetwork {
    pub name: String,
    pub directed: bool,
    pub real: u64,
    pub generated: u64,
    /// int64 `[2, E]`, self-loops at the end.
    pub edge_index: Vec<i64>,
}

/// Make all networks of a recipe.
pub fn build_all(recipe: &Recipe, data: &Data, genes: &GeneNames) -> Result<Vec<BuiltNetwork>, DatasetError> {
    recipe.network.iter().map(|network| build(recipe, network, data, genes)).collect()
}

fn build(recipe: &Recipe, network: &Network, data: &Data, genes: &GeneNames) -> Result<BuiltNetwork, DatasetError> {
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
        edges.add_random(count, &mut RandomStream::new(data.seed, data.scale, &network.name));
    }
    Ok(BuiltNetwork {
        name: network.name.clone(),
        directed: network.directed,
        real,
        generated: edges.len() - real,
        edge_index: edges.edge_index(),
    })
}

/// Number of edges that a network will have, one self-loop per gene included: counted if all are read from a file, else scaled
/// from the published number.
pub fn expected_edges(recipe: &Recipe, network: &Network, data: &Data, genes: &GeneNames) -> Result<u64, DatasetError> {
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
fn read_edges(path: &Path, genes: &GeneNames, edges: &mut EdgeSet) -> Result<u64, DatasetError> {
    let file = std::fs::File::open(path).map_err(DatasetError::io("read", path))?;
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(std::io::BufReader::new(file))
        .read_to_string(&mut text)
        .map_err(DatasetError::io("unpack", path))?;
    let mut all = EdgeSet::new(genes.position_of_row.len() as u64, edges.is_directed());
    for (number, line) in text.lines().enumerate() {
        let mut fields = line.split('\t');
        let mut row = || {
            let row: usize = fields.next()?.trim().parse().ok()?;
            let position = genes.position_of_row.get(row.checked_sub(1)?)?;
            Some((row as u64 - 1, *position))
        };
        let (Some((source, a)), Some((target, b))) = (row(), row()) else {
            return Err(DatasetError::damaged(path, Damage::EdgeLine(number + 1)));
        };
        all.insert(source, target);
        if let (Some(a), Some(b)) = (a, b) {
            edges.insert(u64::from(a), u64::from(b));
        }
    }
    Ok(all.len())
}

/// Edges between `n` genes as an adjacency bit matrix: a set without duplicates that lists itself in order.
struct EdgeSet {
    n: u64,
    directed: bool,
    bits: Vec<u64>,
    len: u64,
}

/// Slots of the table of hub weights: a power of two.
const SLOT_BITS: u32 = 20;

impl EdgeSet {
    pub fn new(n: u64, directed: bool) -> Self {
        Self { n, directed, bits: vec![0; (n * n).div_ceil(64) as usize], len: 0 }
    }

    fn is_directed(&self) -> bool {
        self.directed
    }

    /// Number of edges; an undirected edge counts once.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The most edges that fit, self-loops apart.
    pub fn capacity(&self) -> u64 {
        let pairs = self.n * self.n.saturating_sub(1);
        if self.directed { pairs } else { pairs / 2 }
    }

    /// Add an edge; false if it was there, or is a self-loop.
    pub fn insert(&mut self, source: u64, target: u64) -> bool {
        if source == target {
            return false;
        }
        let (source, target) = if self.directed || source < target { (source, target) } else { (target, source) };
        let position = source * self.n + target;
        let (word, bit) = ((position / 64) as usize, 1 << (position % 64));
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.len += u64::from(new);
        new
    }

    /// Add `count` random edges, as many of them as fit.
    ///
    /// Chung–Lu: both ends are drawn in proportion to a weight that falls as rank^(-3/4), which makes degrees
    /// heavy-tailed (exponent 7/3). The largest expected degree is held at a third of the genes by shifting the rank.
    fn add_random(&mut self, count: u64, stream: &mut RandomStream) {
        let count = count.min(self.capacity() - self.len);
        let ends = if self.directed { count } else { 2 * count };
        let sources = Hubs::new(self.n, ends, stream);
        let targets = if self.directed { Some(Hubs::new(self.n, ends, stream)) } else { None };
        let targets = targets.as_ref().unwrap_or(&sources);
        let goal = self.len + count;
        // Weighted draws find free pairs quickly in sparse graphs; what they do not find is filled up uniformly.
        let mut tries = 20 * count;
        while self.len < goal && tries > 0 {
            self.insert(sources.draw(stream), targets.draw(stream));
            tries -= 1;
        }
        while self.len < goal {
            self.insert(stream.below(self.n), stream.below(self.n));
        }
    }

    /// int64 `[2, E]`, row major: edges in ascending order of (source, target), then one self-loop per gene.
    pub fn edge_index(&self) -> Vec<i64> {
        let edges = (self.len + self.n) as usize;
        let mut index = vec![0i64; 2 * edges];
        let (sources, targets) = index.split_at_mut(edges);
        let mut at = 0;
        for (word, &bits) in self.bits.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let position = word as u64 * 64 + u64::from(bits.trailing_zeros());
                (sources[at], targets[at]) = ((position / self.n) as i64, (position % self.n) as i64);
                bits &= bits - 1;
                at += 1;
            }
        }
        for gene in 0..self.n as i64 {
            (sources[at], targets[at]) = (gene, gene);
            at += 1;
        }
        index
    }
}

/// A table from which genes are drawn in proportion to their weight.
struct Hubs(Vec<u32>);

impl Hubs {
    /// Weights for a network in which `ends` edge ends are drawn over `n` genes.
    pub fn new(n: u64, ends: u64, stream: &mut RandomStream) -> Self {
        let mut shift = 1;
        let weights = loop {
            let weights: Vec<f64> = (0..n).map(|rank| inverse_power((rank + shift) as f64)).collect();
            let share = weights.first().map_or(0.0, |first| first / weights.iter().sum::<f64>());
            if share * ends as f64 <= n as f64 / 3.0 || shift > n {
                break weights;
            }
            shift = shift + shift / 2 + 1;
        };
        let total: f64 = weights.iter().sum();
        let slots = 1usize << SLOT_BITS;
        let mut table = Vec::with_capacity(slots);
        let mut reached = 0.0;
        for (&gene, weight) in stream.permutation(n).iter().zip(&weights) {
            reached += weight;
            let end = (reached / total * slots as f64).round() as usize;
            table.resize(end.clamp(table.len(), slots), gene as u32);
        }
        let last = table.last().copied().unwrap_or(0);
        table.resize(slots, last);
        Self(table)
    }

    pub fn draw(&self, stream: &mut RandomStream) -> u64 {
        u64::from(self.0[(stream.next() >> (64 - SLOT_BITS)) as usize])
    }
}

/// x^(-3/4) from square roots alone, which IEEE 754 rounds exactly.
fn inverse_power(x: f64) -> f64 {
    1.0 / (x.sqrt() * x.sqrt().sqrt())
}

/// The genes of a data set. Invariant: `names` ascends bytewise without duplicates.
pub struct GeneNames {
    /// All names, ascending.
    pub names: Vec<String>,
    /// Number of real names.
    pub real: u64,
    /// For each 0-based row of the recipe's file of gene names: position in `names`, if the gene is in this subset.
    pub position_of_row: Vec<Option<u32>>,
    /// Positions of the real genes.
    pub real_positions: Vec<u32>,
}

/// Prefix of generated names. No systematic yeast name begins like this.
const GENERATED: &str = "GEN";

impl GeneNames {
    /// The recipe's genes, or a random share `scale` of them.
    pub fn new(recipe: &Recipe, seed: u64, scale: f64) -> Result<Self, DatasetError> {
        let path = recipe.folder.join(&recipe.gene_names);
        let text = std::fs::read_to_string(&path).map_err(DatasetError::io("read", &path))?;
        let rows: Vec<&str> = text.lines().map(str::trim).collect();
        let total = recipe.genes;
        if rows.len() as u64 > total {
            let found = rows.len() as u64;
            let damage = Damage::Count { found, things: "gene names", known_from: "the recipe has", expected: total };
            return Err(DatasetError::damaged(&path, damage));
        }
        if let Some(name) = rows.iter().find(|name| name.is_empty() || name.starts_with(GENERATED)) {
            return Err(DatasetError::damaged(&path, Damage::GeneName((*name).to_owned())));
        }

        let mut all: Vec<(String, Option<usize>)> =
            rows.iter().enumerate().map(|(row, name)| ((*name).to_owned(), Some(row))).collect();
        all.extend((rows.len() as u64..total).map(|k| (format!("{GENERATED}{:04}", k - rows.len() as u64 + 1), None)));
        all.sort();
        if let Some(pair) = all.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(DatasetError::damaged(&path, Damage::RepeatedGene(pair[0].0.clone())));
        }

        let kept = kept(total, seed, scale);
        let mut genes = Self {
            names: Vec::with_capacity(kept.len()),
            real: 0,
            position_of_row: vec![None; rows.len()],
            real_positions: Vec::new(),
        };
        for index in kept {
            let (name, row) = std::mem::take(&mut all[index as usize]);
            let position = genes.names.len() as u32;
            if let Some(row) = row {
                genes.position_of_row[row] = Some(position);
                genes.real_positions.push(position);
                genes.real += 1;
            }
            genes.names.push(name);
        }
        Ok(genes)
    }

    /// Number of genes.
    pub fn len(&self) -> u64 {
        self.names.len() as u64
    }
}

/// Number of `total` genes that a data set of this scale has, at least one.
pub fn genes_at(total: u64, scale: f64) -> u64 {
    ((total as f64 * scale).round() as u64).clamp(1, total.max(1))
}

/// Indices of the genes, out of `total`, that a data set of this scale has, ascending.
fn kept(total: u64, seed: u64, scale: f64) -> Vec<u64> {
    let n = genes_at(total, scale);
    if n == total {
        return (0..total).collect();
    }
    let mut kept = RandomStream::new(seed, scale, "genes").permutation(total);
    kept.truncate(n as usize);
    kept.sort_unstable();
    kept
}

/// The generated bipartite graph of metabolism: genes catalyse reactions (gpr), reactions turn metabolites (rmr).
pub struct GeneratedMetabolism {
    pub reactions: u64,
    pub reactions_with_genes: u64,
    pub metabolites: u64,
    /// int64 `[2, E]`: gene, reaction; ascending by reaction.
    pub gpr: Vec<i64>,
    /// int64 `[2, E]`: reaction, metabolite; ascending by reaction.
    pub rmr: Vec<i64>,
    /// float32 `[E]` of rmr: reactants negative, products positive.
    pub stoichiometry: Vec<f32>,
}

/// Numbers of nodes and edges of the metabolism.
pub struct MetabolismSizes {
    pub reactions: u64,
    pub with_genes: u64,
    pub metabolites: u64,
    pub gpr: u64,
    pub rmr: u64,
}

impl MetabolismSizes {
    /// The published ones, in proportion to the `share` of the genes that there are.
    pub fn new(published: &Bipartite, genes: u64, share: f64) -> Self {
        let scaled = |n: u64| ((n as f64 * share).round() as u64).max(1);
        let (reactions, metabolites) = (scaled(published.reactions), scaled(published.metabolites));
        let with_genes = scaled(published.reactions_with_genes).min(reactions);
        Self {
            reactions,
            with_genes,
            metabolites,
            // No pair stands twice.
            gpr: scaled(published.gpr).min(with_genes * genes),
            rmr: scaled(published.rmr).min(reactions * metabolites),
        }
    }
}

impl GeneratedMetabolism {
    /// The graph for `genes` genes. With fewer genes than the recipe has, all sizes shrink in proportion.
    pub fn new(published: &Bipartite, genes: u64, share: f64, seed: u64, scale: f64) -> Self {
        let MetabolismSizes { reactions, with_genes, metabolites, gpr, rmr } =
            MetabolismSizes::new(published, genes, share);
        let mut stream = RandomStream::new(seed, scale, "gpr");
        // Reactions with genes come first, as in a model that lists its exchange reactions at the end.
        let gpr = pairs(with_genes, genes, gpr, &mut stream);
        let mut stream = RandomStream::new(seed, scale, "rmr");
        let rmr = pairs(reactions, metabolites, rmr, &mut stream);
        let mut stoichiometry = Vec::with_capacity(rmr.len());
        let mut first_of_reaction = 0;
        for (k, &(reaction, _)) in rmr.iter().enumerate() {
            if rmr[first_of_reaction].0 != reaction {
                first_of_reaction = k;
            }
            let coefficient = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 3.0][stream.below(8) as usize];
            // Reactants and products alternate, so that each reaction with two metabolites has both.
            stoichiometry.push(if (k - first_of_reaction).is_multiple_of(2) { -coefficient } else { coefficient });
        }
        let gpr: Vec<(u64, u64)> = gpr.into_iter().map(|(reaction, gene)| (gene, reaction)).collect();
        Self {
            reactions,
            reactions_with_genes: with_genes,
            metabolites,
            gpr: index(&gpr),
            rmr: index(&rmr),
            stoichiometry,
        }
    }
}

/// `count` distinct pairs (left, right), at most as many as there are; each left has at least one where `count` allows it, and
/// the right sides are heavy-tailed. Ascending.
fn pairs(left: u64, right: u64, count: u64, stream: &mut RandomStream) -> Vec<(u64, u64)> {
    let hubs = Hubs::new(right, count, stream);
    let mut pairs: HashSet<(u64, u64)> = HashSet::with_capacity(count as usize);
    pairs.extend((0..left.min(count)).map(|l| (l, hubs.draw(stream))));
    let mut tries = 20 * count;
    while (pairs.len() as u64) < count {
        let r = if tries > 0 { hubs.draw(stream) } else { stream.below(right) };
        pairs.insert((stream.below(left), r));
        tries = tries.saturating_sub(1);
    }
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    pairs.sort_unstable();
    pairs
}

fn index(pairs: &[(u64, u64)]) -> Vec<i64> {
    pairs.iter().map(|pair| pair.0 as i64).chain(pairs.iter().map(|pair| pair.1 as i64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degrees(set: &EdgeSet) -> Vec<u64> {
        let index = set.edge_index();
        let edges = index.len() / 2 - set.n as usize;
        let mut degrees = vec![0; set.n as usize];
        for row in index.chunks(index.len() / 2) {
            for &gene in &row[..edges] {
                degrees[gene as usize] += 1;
            }
        }
        degrees.sort_unstable();
        degrees
    }

    #[test]
    fn counts_are_exact_and_degrees_heavy_tailed() {
        for (directed, count) in [(false, 144_211 - 6607), (true, 44_310 - 6607), (false, 1_002_806 - 6607)] {
            let mut set = EdgeSet::new(6607, directed);
            set.add_random(count, &mut RandomStream::new(0, 1.0, "tail"));
            assert_eq!(set.len(), count);
            let degrees = degrees(&set);
            let (sum, n) = (degrees.iter().sum::<u64>(), degrees.len());
            assert_eq!(sum, 2 * count);
            let mean = sum as f64 / n as f64;
            let top: u64 = degrees[n - n / 100..].iter().sum();
            // Uniformly random edges would give the top hundredth of the genes little more than a hundredth.
            assert!(top as f64 > 0.03 * sum as f64, "top 1 % has {top} of {sum}");
            assert!(degrees[n / 2] as f64 <= 0.85 * mean, "median {} mean {mean}", degrees[n / 2]);
            assert!(degrees[n - 1] as f64 > 4.0 * mean);
        }
    }

    #[test]
    fn undirected_edges_are_listed_once_in_order_before_the_self_loops() {
        let mut set = EdgeSet::new(50, false);
        set.add_random(200, &mut RandomStream::new(0, 1.0, "order"));
        let index = set.edge_index();
        let (sources, targets) = index.split_at(index.len() / 2);
        let edges: Vec<_> = sources.iter().zip(targets).collect();
        assert!(edges[..200].windows(2).all(|pair| pair[0] < pair[1]));
        assert!(edges[..200].iter().all(|(source, target)| source < target));
        assert!(edges[200..].iter().enumerate().all(|(k, edge)| *edge == (&(k as i64), &(k as i64))));
        assert_eq!(edges.len(), 250);
    }

    #[test]
    fn a_full_graph_is_filled_and_no_more() {
        let mut set = EdgeSet::new(9, false);
        set.add_random(1000, &mut RandomStream::new(0, 1.0, "full"));
        assert_eq!(set.len(), 36);
    }

    #[test]
    fn counts_are_the_published_ones_and_pairs_distinct() {
        let published =
            Bipartite { reactions: 7122, reactions_with_genes: 4881, metabolites: 2806, gpr: 5450, rmr: 26325 };
        let built = GeneratedMetabolism::new(&published, 6607, 1.0, 0, 1.0);
        for (index, edges, left, right) in [(&built.gpr, 5450, 6607, 4881), (&built.rmr, 26325, 7122, 2806)] {
            assert_eq!(index.len(), 2 * edges);
            let (sources, targets) = index.split_at(edges);
            assert!(sources.iter().all(|s| (0..left).contains(s)) && targets.iter().all(|t| (0..right).contains(t)));
            let distinct: HashSet<_> = sources.iter().zip(targets).collect();
            assert_eq!(distinct.len(), edges);
        }
        let with_genes: HashSet<_> = built.gpr[5450..].iter().collect();
        assert_eq!(with_genes.len(), 4881);
        assert_eq!(built.stoichiometry.len(), 26325);
        assert!(built.stoichiometry.iter().any(|s| *s < 0.0) && built.stoichiometry.iter().any(|s| *s > 0.0));
    }
}
