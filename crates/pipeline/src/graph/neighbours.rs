use expctl_record::Walk;

use super::{Adjacency, CellGraph};

/// Finds the genes within some steps of others. Threads share it.
#[derive(Clone, Debug)]
pub struct Neighbours {
    lists: Vec<Adjacency>,
    hops: u32,
}

/// Marks of one search at a time. Keep it between samples: a new search needs no clearing.
#[derive(Clone, Debug, Default)]
pub struct Visited {
    /// The search that last found each gene.
    found: Vec<u64>,
    /// The walk that last stood on each gene; a search has one for each list.
    walked: Vec<u64>,
    now: u64,
    frontier: Vec<u32>,
}

impl Neighbours {
    /// `hops` steps of `walk` in `graph`.
    pub fn build(graph: &CellGraph, walk: Walk, hops: u32) -> Self {
        let genes = graph.num_genes();
        let lists = match walk {
            Walk::Union => vec![Adjacency::union(&graph.edge_types, genes)],
            Walk::PerType => graph.edge_types.iter().map(|e| Adjacency::sources(e, genes)).collect(),
        };
        Self { lists, hops }
    }

    /// The genes within the hops of `genes`, which are among them, into `out`, ascending.
    ///
    /// Breadth first; each list of a gene that was reached is read once per walk.
    pub fn find(&self, genes: &[i64], num_genes: usize, visited: &mut Visited, out: &mut Vec<u32>) {
        let Visited { found, walked, now, frontier } = visited;
        found.resize(num_genes, 0);
        walked.resize(num_genes, 0);
        let search = *now + 1;
        *now = search;
        let mut count = genes.len();
        genes.iter().for_each(|gene| found[*gene as usize] = search);
        for list in &self.lists {
            *now += 1;
            let walk = *now;
            frontier.clear();
            frontier.extend(genes.iter().map(|gene| *gene as u32));
            genes.iter().for_each(|gene| walked[*gene as usize] = walk);
            let mut start = 0;
            for _ in 0..self.hops {
                let end = frontier.len();
                // Once all are found no step can add any.
                if start == end || count == num_genes {
                    break;
                }
                for at in start..end {
                    for &gene in list.of(frontier[at]) {
                        if std::mem::replace(&mut walked[gene as usize], walk) != walk {
                            frontier.push(gene);
                            count += usize::from(std::mem::replace(&mut found[gene as usize], search) != search);
                        }
                    }
                }
                start = end;
            }
        }
        out.clear();
        out.extend((0..num_genes as u32).filter(|gene| found[*gene as usize] == search));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::EdgeType;

    /// A path 0 → 1 → 2 → 3 whose edges alternate between two types, and a gene apart.
    fn path() -> CellGraph {
        let edges = |edge_index: Vec<i64>| EdgeType { name: "e".into(), edge_index };
        CellGraph {
            genes: vec![String::new(); 5],
            edge_types: vec![edges(vec![0, 2, /* to */ 1, 3]), edges(vec![1, 4, /* to */ 2, 4])],
            metabolism: None,
        }
    }

    #[test]
    fn steps_change_types_in_the_union_and_go_up_in_the_published_walk() {
        let graph = path();
        let mut visited = Visited::default();
        let mut find = |walk, hops, genes: &[i64]| {
            let mut out = Vec::new();
            Neighbours::build(&graph, walk, hops).find(genes, 5, &mut visited, &mut out);
            out
        };
        assert_eq!(find(Walk::Union, 1, &[1]), [0, 1, 2]);
        assert_eq!(find(Walk::Union, 2, &[0]), [0, 1, 2]);
        assert_eq!(find(Walk::Union, 3, &[0, 4]), [0, 1, 2, 3, 4]);
        assert_eq!(find(Walk::PerType, 3, &[3]), [2, 3]);
        assert_eq!(find(Walk::PerType, 3, &[0]), [0]);
        assert_eq!(find(Walk::PerType, 1, &[1, 2]), [0, 1, 2]);
        assert!(find(Walk::Union, 3, &[]).is_empty());
    }
}
