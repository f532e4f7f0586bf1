//! Slurm's short form of node names: `n[1-3,07-12],gpu5,rack[1-2]n[01-02]`.
//!
//! Invariant: memory is bounded. A list of more than [`MAX_HOSTS`] names, or with a name longer than [`MAX_NAME`], is an error before any name
//! is expanded.

/// Maximum number of names of a list.
pub const MAX_HOSTS: usize = 100_000;
/// Maximum length of a name, bytes: more than that of a host name.
pub const MAX_NAME: usize = 255;

/// Why a list of hosts cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    /// A name is missing: the list is empty, or has two commas in a row.
    #[error("a list of hosts has an empty name")]
    Empty,
    /// Brackets are not in pairs.
    #[error("a list of hosts has a bracket without its counterpart")]
    Brackets,
    /// Text in brackets is neither a number nor a rising range of numbers.
    #[error("{0:?} in a list of hosts is not a number or a rising range of numbers")]
    Range(String),
    /// More than [`MAX_HOSTS`] names.
    #[error("a list of hosts stands for more than {MAX_HOSTS} names")]
    TooMany,
    /// A name is longer than [`MAX_NAME`].
    #[error("a list of hosts has a name of more than {MAX_NAME} bytes")]
    TooLong,
}

/// Expand `list` to its names, in its order, with repeated ones.
///
/// # Errors
/// The list does not have Slurm's form, or is too long.
pub fn expand(list: &str) -> Result<Vec<String>, HostlistError> {
    let mut names = Vec::new();
    for item in split(list)? {
        let parts = parts(item)?;
        let count = parts.iter().try_fold(1usize, |product, part| product.checked_mul(part.count()));
        let total = count.and_then(|count| count.checked_add(names.len()));
        if total.is_none_or(|total| total > MAX_HOSTS) {
            return Err(HostlistError::TooMany);
        }
        if parts.iter().map(NamePart::max_len).sum::<usize>() > MAX_NAME {
            return Err(HostlistError::TooLong);
        }
        let mut expanded = vec![String::new()];
        for part in &parts {
            expanded = part.append_to(&expanded);
        }
        names.append(&mut expanded);
    }
    Ok(names)
}

/// Items of a list, which are separated by commas outside of brackets.
fn split(list: &str) -> Result<Vec<&str>, HostlistError> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'[' | b']' if inside == (byte == b'[') => return Err(HostlistError::Brackets),
            b'[' | b']' => inside = !inside,
            b',' if !inside => {
                items.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(list[start..].trim());
    if inside {
        return Err(HostlistError::Brackets);
    }
    if items.iter().any(|item| item.is_empty()) { Err(HostlistError::Empty) } else { Ok(items) }
}

/// A part of an item.
enum NamePart<'a> {
    Text(&'a str),
    Numbers(Vec<NumberRange>),
}

/// Numbers from `first` to `last`, with at least `width` digits.
struct NumberRange {
    first: u64,
    last: u64,
    width: usize,
}

/// Split `rack[1-2]n[01-02]-ib` into texts and brackets, which alternate. Brackets are known to be in pairs.
fn parts(item: &str) -> Result<Vec<NamePart<'_>>, HostlistError> {
    let mut parts = Vec::new();
    let mut rest = item;
    while let Some((text, tail)) = rest.split_once('[') {
        let (inside, tail) = tail.split_once(']').ok_or(HostlistError::Brackets)?;
        parts.push(NamePart::Text(text));
        parts.push(NamePart::Numbers(inside.split(',').map(range).collect::<Result<_, _>>()?));
        rest = tail;
    }
    parts.push(NamePart::Text(rest));
    Ok(parts)
}

fn range(text: &str) -> Result<NumberRange, HostlistError> {
    let text = text.trim();
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let wrong = || HostlistError::Range(text.chars().take(40).collect());
    let number = |digits: &str| {
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|_| plain).ok_or_else(wrong)
    };
    let range = NumberRange { first: number(first)?, last: number(last)?, width: first.len() };
    if range.first <= range.last { Ok(range) } else { Err(wrong()) }
}

impl NumberRange {
    fn count(&self) -> Option<usize> {
        usize::try_from(self.last - self.first).ok()?.checked_add(1)
    }
}

impl NamePart<'_> {
    /// Number of texts that the part stands for; `usize::MAX` if there are more.
    fn count(&self) -> usize {
        match self {
            Self::Text(_) => 1,
            Self::Numbers(ranges) => {
                let sum = ranges.iter().try_fold(0usize, |sum, range| sum.checked_add(range.count()?));
                sum.unwrap_or(usize::MAX)
            }
        }
    }

    /// Maximum length of the texts that the part stands for, bytes.
    fn max_len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Numbers(ranges) => {
                ranges.iter().map(|r| r.width.max(r.last.to_string().len())).max().unwrap_or_default()
            }
        }
    }

    fn append_to(&self, heads: &[String]) -> Vec<String> {
        match self {
            Self::Text(text) => heads.iter().map(|head| format!("{head}{text}")).collect(),
            Self::Numbers(ranges) => {
                let numbers = || ranges.iter().flat_map(|r| (r.first..=r.last).map(move |n| (n, r.width)));
                heads.iter().flat_map(|head| numbers().map(move |(n, width)| format!("{head}{n:0width$}"))).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn joined(list: &str) -> String {
        expand(list).unwrap().join(" ")
    }

    #[test]
    fn slurms_short_forms_are_written_out() {
        assert_eq!(joined("n1"), "n1");
        assert_eq!(joined("n[1-3,07-12],gpu5"), "n1 n2 n3 n07 n08 n09 n10 n11 n12 gpu5");
        assert_eq!(joined("rack[1-2]n[01-02]"), "rack1n01 rack1n02 rack2n01 rack2n02");
        assert_eq!(joined("n[8-10]-ib,login.a.b"), "n8-ib n9-ib n10-ib login.a.b");
        assert_eq!(joined("c[098-101]"), "c098 c099 c100 c101");
        assert_eq!(joined("a, b[2]"), "a b2");
    }

    /// As sets, what ClusterShell 1.10.1 (`nodeset -e`) makes of the same lists; that of Slurm is compared in the tests of the cluster.
    #[test]
    fn lists_stand_for_the_names_that_clustershell_gives() {
        for (list, names) in [
            ("n[1-3,07-12],gpu5", "gpu5 n1 n2 n3 n07 n08 n09 n10 n11 n12"),
            ("n[8-10]-ib", "n8-ib n9-ib n10-ib"),
            ("tux[1-2,5-6],linux[00-03]", "linux00 linux01 linux02 linux03 tux1 tux2 tux5 tux6"),
            ("a[1-2]b[3-4]c", "a1b3c a1b4c a2b3c a2b4c"),
            ("node[001-003,010]x", "node001x node002x node003x node010x"),
            ("foo[1-2]-[0-1]", "foo1-0 foo1-1 foo2-0 foo2-1"),
            ("n[2,1],n[1,1]", "n1 n2"),
            ("n[09-11]", "n09 n10 n11"),
            ("e[1-3],e[2-4]", "e1 e2 e3 e4"),
        ] {
            let expected: BTreeSet<String> = names.split(' ').map(str::to_owned).collect();
            assert_eq!(expand(list).unwrap().into_iter().collect::<BTreeSet<_>>(), expected, "{list}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for (list, why) in [
            ("", HostlistError::Empty),
            ("a,,b", HostlistError::Empty),
            ("n[1-2", HostlistError::Brackets),
            ("n1-2]", HostlistError::Brackets),
            ("n[[1]]", HostlistError::Brackets),
            ("n[]", HostlistError::Range(String::new())),
            ("n[3-1]", HostlistError::Range("3-1".to_owned())),
            ("n[1-x]", HostlistError::Range("1-x".to_owned())),
            ("n[+1]", HostlistError::Range("+1".to_owned())),
            ("n[1-99999999999999999999]", HostlistError::Range("1-99999999999999999999".to_owned())),
        ] {
            assert_eq!(expand(list), Err(why), "{list}");
        }
    }

    #[test]
    fn a_list_beyond_any_cluster_is_an_error_and_not_memory() {
        assert_eq!(expand("n[1-100000]").map(|n| n.len()), Ok(MAX_HOSTS));
        for list in ["n[0-100000]", "n[0-18446744073709551615]", "n[1-9999][1-9999][1-9999]", "a[1-60000],b[1-60000]"] {
            assert_eq!(expand(list), Err(HostlistError::TooMany), "{list}");
        }
        let long = format!("{}[1-90000]", "x".repeat(1 << 16));
        assert_eq!(expand(&long), Err(HostlistError::TooLong));
        assert_eq!(expand(&format!("n[{}1]", "0".repeat(1 << 16))), Err(HostlistError::TooLong));
        assert_eq!(expand(&"[0-9]".repeat(64)), Err(HostlistError::TooMany));
        assert_eq!(expand(&"[0]".repeat(300)), Err(HostlistError::TooLong));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(list in "[a-c0-9\\[\\],\\- ]{0,40}|.{0,30}") {
            if let Ok(names) = expand(&list) {
                prop_assert!(!names.is_empty() && names.len() <= MAX_HOSTS);
            }
        }

        /// Whatever the short form was, what it stands for is a list that stands for itself.
        #[test]
        fn what_was_written_out_stays(
            items in prop::collection::vec(
                ("[a-z]{1,4}", prop::collection::vec((0u64..200, 0u64..30, 0usize..5), 0..4), "[a-z]{0,3}"), 1..5)
        ) {
            let mut list = Vec::new();
            let mut expected = Vec::new();
            for (head, ranges, tail) in &items {
                let texts: Vec<String> =
                    ranges.iter().map(|(n, more, width)| format!("{n:0width$}-{}", n + more)).collect();
                let brackets = if texts.is_empty() { String::new() } else { format!("[{}]", texts.join(",")) };
                list.push(format!("{head}{brackets}{tail}"));
                if texts.is_empty() {
                    expected.push(format!("{head}{tail}"));
                }
                for (n, more, width) in ranges {
                    expected.extend((*n..=n + more).map(|i| format!("{head}{i:0width$}{tail}")));
                }
            }
            let names = expand(&list.join(",")).unwrap();
            prop_assert_eq!(&names, &expected);
            prop_assert_eq!(expand(&names.join(",")).unwrap(), names);
        }
    }
}
