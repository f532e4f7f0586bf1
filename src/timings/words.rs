/// What all rows are called where no column tells methods or epochs apart.
pub(super) const ALL: &str = "all";

/// A number with its ordinal ending: `1st`, `10th`, `22nd`.
pub(super) fn ordinal(n: usize) -> String {
    let ending = match (n % 100, n % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// A chance: `p = 0.0004`, or `p < 0.0001`.
pub(super) fn chance(p: f64) -> String {
    if p < 1e-4 { "p < 0.0001".to_owned() } else { format!("p = {p:.4}") }
}

/// A name as part of a file's: lowercase letters, digits and `_`.
pub(super) fn stem(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    let parts: Vec<&str> = plain.split('_').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { ALL.to_owned() } else { parts.join("_") }
}

/// A stem for each name, no two the same: those that would be get a running number.
pub(super) fn stems<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut taken = std::collections::HashSet::new();
    let free = |name| {
        let stem = stem(name);
        let numbered = (2..).map(|n: u64| format!("{stem}_{n}"));
        let mut all = std::iter::once(stem.clone()).chain(numbered);
        all.find(|stem| taken.insert(stem.clone())).unwrap_or(stem)
    };
    names.into_iter().map(free).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings() {
        let shown = [1, 2, 3, 7, 10, 11, 12, 13, 21, 22, 101, 112].map(ordinal).join(" ");
        assert_eq!(shown, "1st 2nd 3rd 7th 10th 11th 12th 13th 21st 22nd 101st 112th");
        assert_eq!([stem("MappedCollection"), stem("a (x=1)"), stem("é")], ["mappedcollection", "a_x_1", "all"]);
        assert_eq!(stems(["a-1", "a_1", "b", "a 1", "a 1 2"]), ["a_1", "a_1_2", "b", "a_1_3", "a_1_2_2"]);
    }
}
