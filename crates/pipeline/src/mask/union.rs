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
        let whole = |gene: i64| incidence.of(gene).iter().map(|position| *position as i32);
        match genes {
            [] => {}
            &[gene] => out.extend(whole(gene)),
            &[first, ref middle @ .., last] => {
                self.merged.clear();
                self.merged.extend(whole(first));
                for &gene in middle {
                    self.spare.clear();
                    merge(&self.merged, incidence.of(gene), &mut self.spare);
                    std::mem::swap(&mut self.merged, &mut self.spare);
                }
                merge(&self.merged, incidence.of(last), out);
            }
        }
    }
}

/// Append the union of two ascending lists, each without duplicates, to `out`.
///
/// Each step waits for the comparison of the last, so the lists are merged from both ends at once, which are two
/// independent chains: half of the steps each, whatever the values are. What stands in both lists, an edge between two
/// perturbed genes, is rare and removed afterwards.
fn merge(a: &[i32], b: &[u32], out: &mut Vec<i32>) {
    let start = out.len();
    let all = a.len() + b.len();
    out.resize(start + all, 0);
    let (front, back) = out[start..].split_at_mut(all / 2);
    let (mut i, mut j) = (0, 0);
    let (mut k, mut l) = (a.len(), b.len());
    let (middle, back) = back.split_at_mut(all % 2);
    for (low, high) in front.iter_mut().zip(back.iter_mut().rev()) {
        // A list that is used up never has the next entry.
        let (x, y) = (a.get(i).map_or(i32::MAX, |x| *x), b.get(j).map_or(i32::MAX, |y| *y as i32));
        *low = x.min(y);
        // Branch-free: which list is ahead is as good as random.
        i += usize::from(x <= y);
        j += usize::from(x > y);
        let x = a.get(k.wrapping_sub(1)).map_or(-1, |x| *x);
        let y = b.get(l.wrapping_sub(1)).map_or(-1, |y| *y as i32);
        *high = x.max(y);
        k -= usize::from(x > y);
        l -= usize::from(x <= y);
    }
    if let [last] = middle {
        *last = if i < k { a[i] } else { b[j] as i32 };
    }
    let merged = &mut out[start..];
    // Counting them all takes whole vectors, stopping at the first would not.
    if merged.iter().zip(merged.iter().skip(1)).filter(|(x, y)| x == y).count() > 0 {
        let mut kept = 1;
        for at in 1..merged.len() {
            if merged[at] != merged[at - 1] {
                merged[kept] = merged[at];
                kept += 1;
            }
        }
        out.truncate(start + kept);
    }
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
