//! Names of genes and columns: checks, lists in messages, and the closest match.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

/// The message for a missing name: `what`, the closest of `names`, and the first of `names`.
pub(crate) fn missing_name<'a>(
    what: &str,
    plural: &str,
    name: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> String {
    /// Largest number of names in the list.
    const LISTED: usize = 20;
    /// Largest edit distance of a suggestion.
    const DISTANCE: usize = 2;
    let lower = name.to_lowercase();
    let far = |other: &str| {
        // The edit distance is at least the difference in length.
        if other.len().abs_diff(name.len()) > 2 * DISTANCE {
            usize::MAX
        } else {
            strsim::levenshtein(&lower, &other.to_lowercase())
        }
    };
    let closest = names
        .clone()
        .map(|other| (far(other), other))
        .min()
        .filter(|(distance, _)| *distance <= DISTANCE && *distance < name.chars().count());
    let count = names.clone().count();
    let listed: Vec<&str> = names.take(LISTED).collect();
    let mut text = what.to_owned();
    if let Some((_, closest)) = closest {
        text += &format!("; is {closest:?} meant?");
    }
    match count {
        0 => text + &format!("; there are no {plural}"),
        _ if count > LISTED => text + &format!("; the {plural} are {} and {} more", listed.join(", "), count - LISTED),
        _ => text + &format!("; the {plural} are {}", listed.join(", ")),
    }
}

/// Fails with a list of the names that occur more than once.
pub(crate) fn check_unique(genes: &[String]) -> Result<(), String> {
    /// Largest number of names in the list.
    const LISTED: usize = 10;
    let mut seen = HashSet::with_capacity(genes.len());
    let mut listed = HashSet::new();
    let twice: Vec<&str> =
        genes.iter().map(String::as_str).filter(|gene| !seen.insert(*gene) && listed.insert(*gene)).collect();
    if twice.is_empty() {
        return Ok(());
    }
    let mut text = format!("gene names that come more than once: {}", twice[..twice.len().min(LISTED)].join(", "));
    if twice.len() > LISTED {
        let _ = write!(text, " and {} more", twice.len() - LISTED);
    }
    Err(text)
}

/// A file with more unnamed genes is taken for damaged.
const MAX_UNNAMED: u64 = 1 << 22;

/// Names `gene_0`, `gene_1`, … for a file that does not name its genes; an error above [`MAX_UNNAMED`].
pub(crate) fn numbered_genes(genes: u64) -> Result<Vec<String>, String> {
    if genes > MAX_UNNAMED {
        return Err(format!("rows of {genes} genes, which have no names, are more than {MAX_UNNAMED}"));
    }
    Ok((0..genes).map(|gene| format!("gene_{gene}")).collect())
}

/// Deduplicates a list of names: returns the equal list of `known`, or adds `names` to `known`.
pub(crate) fn deduplicate(names: Arc<[String]>, known: &mut Vec<Arc<[String]>>) -> Arc<[String]> {
    if let Some(same) = known.iter().find(|same| **same == names) {
        return Arc::clone(same);
    }
    known.push(Arc::clone(&names));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_is_named() {
        let say = |name, names: &[&'static str]| missing_name("there is no x", "names", name, names.iter().copied());
        assert_eq!(say("kidn", &["kind", "depth"]), "there is no x; is \"kind\" meant?; the names are kind, depth");
        assert_eq!(say("KIND", &["depth", "kind"]), "there is no x; is \"kind\" meant?; the names are depth, kind");
        assert_eq!(say("donor", &["kind", "depth"]), "there is no x; the names are kind, depth");
        assert_eq!(say("ab", &["xy"]), "there is no x; the names are xy");
        assert_eq!(say("", &[]), "there is no x; there are no names");
        let many = ["a"; 23];
        assert!(say("zzzz", &many).ends_with("a and 3 more"));
    }
}
