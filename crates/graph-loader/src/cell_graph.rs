//! `CellGraph` is the graph that all samples perturb: genes, edge types (int64 `[2, E]`) and, if asked for, the metabolism. Several edge types can be
//! merged into one.

use crate::GraphError;

/// One edge type of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeType {
    /// Name, for example `physical`.
    pub name: String,
    /// int64 `[2, E]`, row major: all sources, then all targets. Undirected edges are stored once; each gene has one
    /// self-loop, at the end.
    pub edge_index: Vec<i64>,
}

impl EdgeType {
    /// Number of edges, self-loops included.
    pub fn num_edges(&self) -> usize {
        self.edge_index.len() / 2
    }

    /// Source gene of each edge.
    pub fn sources(&self) -> &[i64] {
        &self.edge_index[..self.num_edges()]
    }

    /// Target gene of each edge.
    pub fn targets(&self) -> &[i64] {
        &self.edge_index[self.num_edges()..]
    }
}

/// Genes, the edge types between them, and what they catalyse. Invariant: genes are sorted by name, and a gene's index is
/// its position.
#[derive(Clone, Debug, PartialEq)]
pub struct CellGraph {
    /// Systematic names, ascending.
    pub genes: Vec<String>,
    /// Edge types, in the order in which they were asked for.
    pub edge_types: Vec<EdgeType>,
    /// Reactions and metabolites, if they were asked for.
    pub metabolism: Option<Metabolism>,
}

impl CellGraph {
    /// Number of genes.
    pub fn num_genes(&self) -> usize {
        self.genes.len()
    }

    /// Number of edges over all types between genes.
    pub fn num_edges(&self) -> usize {
        self.edge_types.iter().map(EdgeType::num_edges).sum()
    }
}

/// Reactions and metabolites beside the genes: genes catalyse reactions (gpr), reactions turn metabolites (rmr).
///
/// Invariant: both edge lists ascend by reaction, so a reaction's edges are adjacent; every reaction with genes needs all of
/// them (alternatives are reactions of their own).
#[derive(Clone, Debug, PartialEq)]
pub struct Metabolism {
    /// Number of reactions.
    pub reactions: usize,
    /// Number of metabolites.
    pub metabolites: usize,
    /// int64 `[2, E]`, row major: genes, then reactions.
    pub gpr: Vec<i64>,
    /// int64 `[2, E]`, row major: reactions, then metabolites.
    pub rmr: Vec<i64>,
    /// float32 `[E]` of rmr: reactants negative, products positive.
    pub stoichiometry: Vec<f32>,
}

impl Metabolism {
    /// Edges gene to reaction.
    pub fn num_gpr(&self) -> usize {
        self.gpr.len() / 2
    }

    /// Edges reaction to metabolite.
    pub fn num_rmr(&self) -> usize {
        self.rmr.len() / 2
    }

    /// Gene of each gpr edge.
    pub fn gpr_genes(&self) -> &[i64] {
        &self.gpr[..self.num_gpr()]
    }

    /// Reaction of each gpr edge, ascending.
    pub fn gpr_reactions(&self) -> &[i64] {
        &self.gpr[self.num_gpr()..]
    }

    /// Reaction of each rmr edge, ascending.
    pub fn rmr_reactions(&self) -> &[i64] {
        &self.rmr[..self.num_rmr()]
    }

    /// Metabolite of each rmr edge.
    pub fn rmr_metabolites(&self) -> &[i64] {
        &self.rmr[self.num_rmr()..]
    }
}

impl EdgeType {
    /// Join several edge types into one: each pair of source and target that any of them has, once.
    ///
    /// A graph has no weights, so an edge counts once however many types have it. An undirected network has each edge once,
    /// from the gene with the smaller index to the other, so an edge that several types have is the same pair in all. A
    /// directed network keeps both directions between two genes. Edges ascend by source and target; self-loops follow.
    pub fn merged(name: &str, members: &[&Self]) -> Self {
        let ends = members.iter().flat_map(|edges| edges.sources().iter().zip(edges.targets()));
        let mut pairs: Vec<(i64, i64)> = ends.map(|(source, target)| (*source, *target)).collect();
        pairs.sort_unstable_by_key(|(source, target)| (source == target, *source, *target));
        pairs.dedup();
        let sources = pairs.iter().map(|(source, _)| *source);
        let targets = pairs.iter().map(|(_, target)| *target);
        Self { name: name.to_owned(), edge_index: sources.chain(targets).collect() }
    }
}

impl CellGraph {
    /// The graph with these edge types, each with its name and the names of the present edge types that it joins.
    ///
    /// # Errors
    /// [`GraphError::UnknownEdgeType`].
    pub fn with_edge_types<'a>(
        self,
        types: impl IntoIterator<Item = (&'a str, &'a [String])>,
    ) -> Result<Self, GraphError> {
        let Self { genes, edge_types, metabolism } = self;
        let member = |name: &String| {
            let found = edge_types.iter().find(|edges| edges.name == *name);
            found.ok_or_else(|| GraphError::UnknownEdgeType { name: name.clone() })
        };
        let join = |(name, members): (&str, &[String])| {
            let members = members.iter().map(member).collect::<Result<Vec<_>, _>>()?;
            Ok(match members[..] {
                [alone] if alone.name == name => alone.clone(),
                _ => EdgeType::merged(name, &members),
            })
        };
        let joined = types.into_iter().map(join).collect::<Result<Vec<_>, GraphError>>()?;
        Ok(Self { genes, edge_types: joined, metabolism })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    use super::*;

    fn edge_type(name: &str, pairs: &[(i64, i64)]) -> EdgeType {
        let edge_index = pairs.iter().map(|pair| pair.0).chain(pairs.iter().map(|pair| pair.1)).collect();
        EdgeType { name: name.to_owned(), edge_index }
    }

    fn pairs(edges: &EdgeType) -> Vec<(i64, i64)> {
        edges.sources().iter().copied().zip(edges.targets().iter().copied()).collect()
    }

    #[test]
    fn an_edge_of_several_types_counts_once_and_a_direction_by_itself() {
        let a = edge_type("a", &[(0, 1), (1, 2), (0, 0), (1, 1), (2, 2)]);
        let b = edge_type("b", &[(0, 2), (1, 2), (2, 1), (0, 0), (1, 1), (2, 2)]);
        let both = EdgeType::merged("both", &[&a, &b]);
        assert_eq!(both.name, "both");
        assert_eq!(pairs(&both), [(0, 1), (0, 2), (1, 2), (2, 1), (0, 0), (1, 1), (2, 2)]);
    }

    #[test]
    fn types_that_are_not_merged_stay_what_they_are() {
        let [a, b, c] = ["a", "b", "c"].map(|name| edge_type(name, &[(1, 0), (1, 0), (0, 0)]));
        let genes = vec![String::new(); 2];
        let graph = CellGraph { genes, edge_types: vec![a, b.clone(), c], metabolism: None };
        let joined =
            |name: &'static str, members: &[&str]| (name, members.iter().map(|m| (*m).to_owned()).collect::<Vec<_>>());
        let types = [joined("ac", &["a", "c"]), joined("b", &["b"])];
        let merged = graph.clone().with_edge_types(types.iter().map(|(name, members)| (*name, &members[..]))).unwrap();
        assert_eq!(merged.edge_types[1], b);
        assert_eq!((merged.edge_types[0].name.as_str(), pairs(&merged.edge_types[0])), ("ac", vec![(1, 0), (0, 0)]));
        let (name, members) = joined("ad", &["a", "d"]);
        let message = graph.with_edge_types([(name, &members[..])]).unwrap_err().to_string();
        assert_eq!(message, "the graph has no edge type `d` to merge");
    }

    proptest! {
        /// Against the definition: the set of all pairs, in order, self-loops behind.
        #[test]
        fn merging_is_the_union(
            types in proptest::collection::vec(proptest::collection::vec((0i64..9, 0i64..9), 0..40), 1..6),
        ) {
            let types: Vec<EdgeType> = types.iter().map(|pairs| edge_type("e", pairs)).collect();
            let all: BTreeSet<(i64, i64)> = types.iter().flat_map(pairs).collect();
            let (loops, edges): (Vec<_>, Vec<_>) = all.into_iter().partition(|(source, target)| source == target);
            let members: Vec<&EdgeType> = types.iter().collect();
            prop_assert_eq!(pairs(&EdgeType::merged("all", &members)), [edges, loops].concat());
        }
    }
}
