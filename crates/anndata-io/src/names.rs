use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

/// The sentence for a name that is not there: those that are (the first of them, where they are many), and the closest.
pub(crate) fn not_there<'a>(
    what: &str,
    plural: &str,
    name: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> String {
    /// Names that are listed.
    const LISTED: usize = 20;
    /// Letters that a name that is meant can differ in.
    const DISTANCE: usize = 2;
    let lower = name.to_lowercase();
    let far = |other: &str| {
        // The distance is never less than the difference in length, which costs nothing to see.
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

/// An error that lists the names that come more than once.
pub(crate) fn all_different(genes: &[String]) -> Result<(), String> {
    /// Names that are listed.
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

/// More genes without names are taken for damage.
const MAX_UNNAMED: u64 = 1 << 22;

/// Names for genes of a file that does not name them; `Err` if there are too many.
pub(crate) fn numbered_genes(genes: u64) -> Result<Vec<String>, String> {
    if genes > MAX_UNNAMED {
        return Err(format!("rows of {genes} genes, which have no names, are more than {MAX_UNNAMED}"));
    }
    Ok((0..genes).map(|gene| format!("gene_{gene}")).collect())
}

/// A list of names, which is one in memory for all that have the same: `known` are those that there are.
pub(crate) fn shared(names: Arc<[String]>, known: &mut Vec<Arc<[String]>>) -> Arc<[String]> {
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
        let say = |name, names: &[&'static str]| not_there("there is no x", "names", name, names.iter().copied());
        assert_eq!(say("kidn", &["kind", "depth"]), "there is no x; is \"kind\" meant?; the names are kind, depth");
        assert_eq!(say("KIND", &["depth", "kind"]), "there is no x; is \"kind\" meant?; the names are depth, kind");
        assert_eq!(say("donor", &["kind", "depth"]), "there is no x; the names are kind, depth");
        assert_eq!(say("ab", &["xy"]), "there is no x; the names are xy");
        assert_eq!(say("", &[]), "there is no x; there are no names");
        let many = ["a"; 23];
        assert!(say("zzzz", &many).ends_with("a and 3 more"));
    }
}
