//! Names of genes and columns: checks, lists in messages, the closest match, and lists that several files share.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A name that is not there, with the closest of the names that are, and the first of them.
#[derive(Debug)]
pub struct MissingName {
    /// What is missing, such as `obs has no column "x"`.
    what: String,
    /// What the names are of, such as "columns".
    plural: &'static str,
    closest: Option<String>,
    /// The first names, and the number of all.
    listed: Vec<String>,
    count: usize,
}

/// Largest number of names in a message.
const MAX_LISTED: usize = 20;

impl MissingName {
    pub(crate) fn new<'a>(
        what: String,
        plural: &'static str,
        name: &str,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Box<Self> {
        let listed = names.clone().take(MAX_LISTED).map(str::to_owned).collect();
        Box::new(Self { what, plural, closest: closest_name(name, names.clone()), listed, count: names.count() })
    }
}

impl std::error::Error for MissingName {}

impl fmt::Display for MissingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, plural, closest, listed, count } = self;
        f.write_str(what)?;
        if let Some(closest) = closest {
            write!(f, "; is {closest:?} meant?")?;
        }
        match count {
            0 => write!(f, "; there are no {plural}"),
            _ => write!(f, "; the {plural} are {}{}", listed.join(", "), and_more(*count, listed.len())),
        }
    }
}

/// What follows a list of the first `listed` of `count` names.
fn and_more(count: usize, listed: usize) -> String {
    if count > listed { format!(" and {} more", count - listed) } else { String::new() }
}

/// The name that was probably meant.
fn closest_name<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
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
    names
        .map(|other| (far(other), other))
        .min()
        .filter(|(distance, _)| *distance <= DISTANCE && *distance < name.chars().count())
        .map(|(_, closest)| closest.to_owned())
}

/// Why names of genes cannot be those of the columns of a matrix.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// Names occur more than once.
    #[error("gene names that come more than once: {}{}", first.join(", "), and_more(*count, first.len()))]
    Repeated {
        /// The first of them.
        first: Vec<String>,
        /// Number of them.
        count: usize,
    },
    /// A file without names of genes has implausibly many.
    #[error("rows of {genes} genes, which have no names, are more than {MAX_UNNAMED}")]
    TooManyUnnamed {
        /// Number of genes.
        genes: u64,
    },
    /// int32 cannot number the genes.
    #[error("{genes} genes are more than there can be")]
    TooMany {
        /// Number of genes.
        genes: u64,
    },
}

/// Fails with a list of the names that occur more than once.
pub(crate) fn check_unique(genes: &[String]) -> Result<(), NameError> {
    /// Largest number of names in the list.
    const LISTED: usize = 10;
    let mut seen = HashSet::with_capacity(genes.len());
    let mut listed = HashSet::new();
    let mut first: Vec<String> =
        genes.iter().filter(|gene| !seen.insert(*gene) && listed.insert(*gene)).cloned().collect();
    if first.is_empty() {
        return Ok(());
    }
    let count = first.len();
    first.truncate(LISTED);
    Err(NameError::Repeated { first, count })
}

/// Fails if int32 cannot number so many genes.
pub(crate) fn check_count(genes: u64) -> Result<(), NameError> {
    i32::try_from(genes).map(drop).map_err(|_| NameError::TooMany { genes })
}

/// A file with more unnamed genes is taken for damaged.
const MAX_UNNAMED: u64 = 1 << 22;

/// Names `gene_0`, `gene_1`, … for a file that does not name its genes; an error above [`MAX_UNNAMED`].
pub(crate) fn numbered_genes(genes: u64) -> Result<Vec<String>, NameError> {
    if genes > MAX_UNNAMED {
        return Err(NameError::TooManyUnnamed { genes });
    }
    Ok((0..genes).map(|gene| format!("gene_{gene}")).collect())
}

/// Names as they were found in a file, in one buffer. They may be no UTF-8.
#[derive(Debug, Default)]
pub struct PackedNames {
    bytes: Vec<u8>,
    /// The end of each name in `bytes`.
    ends: Vec<usize>,
}

impl PackedNames {
    /// Appends a name.
    pub fn push(&mut self, name: &[u8]) {
        self.bytes.extend_from_slice(name);
        self.ends.push(self.bytes.len());
    }

    /// Number of names.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all names.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The names, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(move |(start, end)| &self.bytes[start..*end])
    }

    /// The names as strings; `None` if one is no UTF-8.
    pub fn to_strings(&self) -> Option<Vec<String>> {
        self.iter().map(|name| std::str::from_utf8(name).ok().map(str::to_owned)).collect()
    }
}

/// Lists of names, equal ones once: files that are opened together mostly have the same genes.
#[derive(Debug, Default)]
pub struct NameLists {
    /// The lists by their [`hash_of`].
    known: Mutex<HashMap<u64, Vec<Arc<[String]>>>>,
}

impl NameLists {
    /// The known list of these names.
    pub fn find<'n>(&self, names: impl Iterator<Item = &'n [u8]> + Clone) -> Option<Arc<[String]>> {
        // Other threads do not wait until names are hashed or compared.
        let hash = hash_of(names.clone());
        let candidates = self.known().get(&hash)?.clone();
        candidates.into_iter().find(|list| list.iter().map(String::as_bytes).eq(names.clone()))
    }

    /// The equal list that is known already, or else this one, which is known from now on.
    pub fn shared(&self, names: Arc<[String]>) -> Arc<[String]> {
        let hash = hash_of(names.iter().map(String::as_bytes));
        let mut known = self.known();
        let candidates = known.entry(hash).or_default();
        if let Some(same) = candidates.iter().find(|list| list[..] == names[..]) {
            return Arc::clone(same);
        }
        candidates.push(Arc::clone(&names));
        names
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Vec<Arc<[String]>>>> {
        // No panic can leave the map half changed.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A hash of names in order.
fn hash_of<'n>(names: impl Iterator<Item = &'n [u8]>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for name in names {
        hasher.write(name);
        // In no UTF-8: it separates a name from the next one.
        hasher.write_u8(0xff);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_is_named() {
        let say = |name, names: &[&'static str]| {
            MissingName::new("there is no x".to_owned(), "names", name, names.iter().copied()).to_string()
        };
        assert_eq!(say("kidn", &["kind", "depth"]), "there is no x; is \"kind\" meant?; the names are kind, depth");
        assert_eq!(say("KIND", &["depth", "kind"]), "there is no x; is \"kind\" meant?; the names are depth, kind");
        assert_eq!(say("donor", &["kind", "depth"]), "there is no x; the names are kind, depth");
        assert_eq!(say("ab", &["xy"]), "there is no x; the names are xy");
        assert_eq!(say("", &[]), "there is no x; there are no names");
        let many = ["a"; 23];
        assert!(say("zzzz", &many).ends_with("a and 3 more"));
    }

    #[test]
    fn equal_lists_are_one() {
        let list = |names: [&str; 2]| -> Arc<[String]> { names.map(str::to_owned).into() };
        let lists = NameLists::default();
        let (first, other) = (lists.shared(list(["a", "b"])), lists.shared(list(["b", "a"])));
        let again = lists.shared(list(["a", "b"]));
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
        assert_eq!(other[..], ["b", "a"]);
        let find = |names: &[&str]| lists.find(names.iter().map(|name| name.as_bytes()));
        assert!(Arc::ptr_eq(&first, &find(&["a", "b"]).unwrap()) && Arc::ptr_eq(&other, &find(&["b", "a"]).unwrap()));
        for unknown in [&["a", "c"][..], &["a"], &["a", "b", ""], &["ab"], &["", "ab"], &[]] {
            assert_eq!(find(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn packed_names_are_the_names() {
        let mut packed = PackedNames::default();
        assert_eq!(packed.to_strings(), Some(Vec::new()));
        let names = ["CD3E", "", "\u{3b1}"];
        names.iter().for_each(|name| packed.push(name.as_bytes()));
        assert_eq!((packed.count(), packed.bytes()), (3, 6));
        assert!(packed.iter().eq(names.iter().map(|name| name.as_bytes())));
        assert_eq!(packed.to_strings().unwrap(), names);
        packed.push(b"\xff");
        assert_eq!(packed.to_strings(), None);
    }
}
