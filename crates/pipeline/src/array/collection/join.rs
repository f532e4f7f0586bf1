use std::collections::{BTreeSet, HashSet};

use expctl_record::Join;

/// The genes of several files as one list, in the order that `anndata.concat` gives them; each list has no name twice.
///
/// Inner: those of the first that all others have, in its order. Outer: as `pandas.Index.union`, applied from left to right,
/// orders them: equal lists stay as they are, an empty one changes nothing, else all are sorted (by code points).
pub(super) fn joined<'a>(lists: &[&'a [String]], join: Join) -> Vec<&'a str> {
    let mut lists = lists.iter();
    let Some(first) = lists.next() else { return Vec::new() };
    let mut genes: Vec<&str> = first.iter().map(String::as_str).collect();
    for other in lists {
        if genes.iter().eq(other.iter()) {
            continue;
        }
        match join {
            Join::Inner => {
                let other: HashSet<&str> = other.iter().map(String::as_str).collect();
                genes.retain(|gene| other.contains(gene));
            }
            Join::Outer if other.is_empty() => {}
            Join::Outer if genes.is_empty() => genes = other.iter().map(String::as_str).collect(),
            Join::Outer => {
                let all: BTreeSet<&str> = genes.iter().copied().chain(other.iter().map(String::as_str)).collect();
                genes = all.into_iter().collect();
            }
        }
    }
    genes
}
