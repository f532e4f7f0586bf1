use super::keys::{KEYS, KeySpec, SECTIONS};

/// The candidate that `word` was probably meant to be.
pub fn closest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_ascii_lowercase().replace('-', "_");
    candidates
        .into_iter()
        .map(|candidate| {
            let other = candidate.to_ascii_lowercase().replace('-', "_");
            let mut near = strsim::normalized_damerau_levenshtein(&lower, &other);
            // `prefetch` for `prefetch_factor`, `kuzmin` for `006-kuzmin-tmi`.
            if lower.len() >= 4 && (other.contains(&lower) || lower.contains(&other)) {
                near = near.max(0.7);
            }
            (near, candidate)
        })
        .filter(|(near, _)| *near >= 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// The key that an unknown dotted key was probably meant to be: the same name in another section, a name that other
/// tools use, or a near spelling.
pub(super) fn closest_key(unknown: &str) -> Option<&'static KeySpec> {
    let (section, leaf) = unknown.rsplit_once('.').unwrap_or(("", unknown));
    let named = |spec: &&KeySpec| spec.leaf() == leaf || spec.also.contains(&leaf);
    if let Some(spec) = KEYS.iter().filter(|spec| spec.section() == section).find(named) {
        return Some(spec);
    }
    let here = KEYS.iter().filter(|spec| spec.section() == section);
    if let Some(near) = closest(leaf, here.map(KeySpec::leaf)) {
        return KEYS.iter().find(|spec| spec.section() == section && spec.leaf() == near);
    }
    if let Some(spec) = KEYS.iter().find(named) {
        return Some(spec);
    }
    let near = closest(leaf, KEYS.iter().map(KeySpec::leaf))?;
    KEYS.iter().find(|spec| spec.leaf() == near)
}

/// The section or other top-level name that was probably meant.
pub(super) fn closest_top(unknown: &str) -> Option<&'static str> {
    closest(unknown, SECTIONS.into_iter().chain(["extends", "variant", "compare", "sweep"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_found() {
        let meant = |key| closest_key(key).map(|spec| spec.key);
        assert_eq!(meant("loader.batchsize"), Some("loader.batch_size"));
        assert_eq!(meant("loader.num_workers"), Some("loader.workers"), "a name of other tools");
        assert_eq!(meant("loader.hidden"), Some("model.hidden"), "another section's key");
        assert_eq!(meant("train.lr"), Some("train.learning_rate"));
        assert_eq!(meant("loader.zebra"), None);
        assert_eq!(closest_top("varient"), Some("variant"));
        assert_eq!(closest("006_kuzmin_tmi", ["001-other", "006-kuzmin-tmi"]), Some("006-kuzmin-tmi"));
    }
}
