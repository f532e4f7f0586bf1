use crate::graph::Incidence;

/// Union of the incident edges of a sample's genes, ascending. Keeps its buffers between samples.
#[derive(Clone, Debug, Default)]
pub struct RemovedEdges {
    merged: Vec<u32>,
    spare: Vec<u32>,
}

impl RemovedEdges {
    /// Positions of the removed edges of one sample in one edge type, ascending, each once.
    ///
    /// The lists of the incidence are sorted, so merging them finds the edges between two perturbed genes, which stand
    /// in both lists, without a set and without looking at the edges.
    pub fn of(&mut self, incidence: &Incidence, genes: &[i64]) -> &[u32] {
        self.merged.clear();
        for &gene in genes {
            let list = incidence.of(gene);
            if self.merged.is_empty() {
                self.merged.extend_from_slice(list);
            } else {
                merge(&self.merged, list, &mut self.spare);
                std::mem::swap(&mut self.merged, &mut self.spare);
            }
        }
        &self.merged
    }
}

/// Merge two ascending lists without duplicates into `out`.
fn merge(a: &[u32], b: &[u32], out: &mut Vec<u32>) {
    out.clear();
    out.reserve(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i], b[j]);
        out.push(x.min(y));
        // Branch-free: which list is ahead is as good as random.
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    out.extend_from_slice(&a[i..]);
    out.extend_from_slice(&b[j..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn merging_is_the_union(a: BTreeSet<u32>, b: BTreeSet<u32>) {
            let list = |s: &BTreeSet<u32>| s.iter().copied().collect::<Vec<_>>();
            let mut out = Vec::new();
            merge(&list(&a), &list(&b), &mut out);
            prop_assert_eq!(out, list(&(&a | &b)));
        }
    }
}
