use std::collections::HashSet;

/// How the genes of several files become one list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Join {
    /// Genes that every file has, in the order of the first.
    #[default]
    Inner,
    /// Genes that any file has; what a file does not have is 0.
    Outer,
}

/// The genes of several files as one list, in the order that `anndata.concat` gives them; each list has no name twice.
///
/// Inner: those of the first that all others have, in its order. Outer: as `pandas.Index.union`, applied from left to right,
/// orders them: equal lists stay as they are, an empty one changes nothing, else all are sorted (by code points).
pub(super) fn joined<'a>(lists: &[&'a [String]], join: Join) -> Vec<&'a str> {
    let Some((first, others)) = lists.split_first() else { return Vec::new() };
    match join {
        Join::Inner => inner(first, others),
        Join::Outer => outer(first, others),
    }
}

fn inner<'a>(first: &'a [String], others: &[&'a [String]]) -> Vec<&'a str> {
    let mut genes: Vec<&str> = first.iter().map(String::as_str).collect();
    for other in others {
        let other: HashSet<&str> = other.iter().map(String::as_str).collect();
        genes.retain(|gene| other.contains(gene));
    }
    genes
}

fn outer<'a>(first: &'a [String], others: &[&'a [String]]) -> Vec<&'a str> {
    let mut genes: Vec<&str> = first.iter().map(String::as_str).collect();
    let mut seen: HashSet<&str> = genes.iter().copied().collect();
    let mut sorted = false;
    for other in others.iter().filter(|other| !other.is_empty()) {
        if genes.is_empty() {
            genes.extend(other.iter().map(String::as_str));
            seen.extend(&genes);
        } else if sorted || !genes.iter().eq(other.iter()) {
            // What is sorted stays so, whatever comes: once at the end is enough.
            sorted = true;
            genes.extend(other.iter().map(String::as_str).filter(|gene| seen.insert(gene)));
        }
    }
    if sorted {
        genes.sort_unstable();
    }
    genes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(lists: &[&str], join: Join) -> String {
        let lists: Vec<Vec<String>> = lists.iter().map(|list| list.chars().map(String::from).collect()).collect();
        let lists: Vec<&[String]> = lists.iter().map(Vec::as_slice).collect();
        joined(&lists, join).concat()
    }

    #[test]
    fn inner_keeps_the_order_of_the_first() {
        assert_eq!(join(&["dbca", "abcx", "cbd"], Join::Inner), "bc");
        assert_eq!(join(&["ba", "", "ab"], Join::Inner), "");
        assert_eq!(join(&["cab"], Join::Inner), "cab");
    }

    #[test]
    fn outer_sorts_what_differs() {
        assert_eq!(join(&["cab", "cab"], Join::Outer), "cab");
        assert_eq!(join(&["cab", "cab", "bac"], Join::Outer), "abc");
        assert_eq!(join(&["cab", ""], Join::Outer), "cab");
        assert_eq!(join(&["", "cab", "cab"], Join::Outer), "cab");
        assert_eq!(join(&["ca", "b", "äZ"], Join::Outer), "Zabcä");
        assert_eq!(join(&[], Join::Outer), "");
    }
}
