use crate::graph::Incidence;

/// Union of ascending lists, ascending. Keeps its buffer between samples.
#[derive(Clone, Debug, Default)]
pub struct Union {
    merged: Vec<i32>,
    spare: Vec<i32>,
}

impl Union {
    /// Append the removed edges of one sample in one edge type to `out`, ascending, each once.
    ///
    /// The lists of the incidence are sorted, so merging them finds the edges between two perturbed genes, which stand
    /// in both lists, without a set and without looking at the edges. The last merge writes to `out` itself.
    pub fn append(&mut self, incidence: &Incidence, genes: &[i64], out: &mut Vec<i32>) {
        let Some((&last, first)) = genes.split_last() else { return };
        self.merged.clear();
        for &gene in first {
            self.spare.clear();
            merge(&self.merged, incidence.of(gene), &mut self.spare);
            std::mem::swap(&mut self.merged, &mut self.spare);
        }
        merge(&self.merged, incidence.of(last), out);
    }
}

/// Append the union of two ascending lists to `out`.
fn merge(a: &[i32], b: &[u32], out: &mut Vec<i32>) {
    let start = out.len();
    out.resize(start + a.len() + b.len(), 0);
    let to = &mut out[start..];
    let (mut i, mut j, mut n) = (0, 0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i], b[j] as i32);
        to[n] = x.min(y);
        n += 1;
        // Branch-free: which list is ahead is as good as random.
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    let rest = &a[i..];
    to[n..n + rest.len()].copy_from_slice(rest);
    n += rest.len();
    for (to, from) in to[n..].iter_mut().zip(&b[j..]) {
        *to = *from as i32;
        n += 1;
    }
    out.truncate(start + n);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn merging_is_the_union(a: BTreeSet<u16>, b: BTreeSet<u16>) {
            let list = |s: &BTreeSet<u16>| s.iter().map(|v| i32::from(*v)).collect::<Vec<_>>();
            let other: Vec<u32> = b.iter().map(|v| u32::from(*v)).collect();
            let mut out = vec![-7];
            merge(&list(&a), &other, &mut out);
            prop_assert_eq!(&out[1..], &list(&(&a | &b))[..]);
            prop_assert_eq!(out[0], -7);
        }
    }
}
