//! Text of reports and messages: numbers ([`mod@format`]), tables ([`Table`]), and markdown notes whose generated regions keep what a writer
//! put around them ([`RegionLayout`], [`merge_regions`]).

pub mod format;
mod merge;
mod note;
mod regions;
mod table;

pub use merge::{GeneratedText, MergedNote, merge_regions, tidy};
pub use note::{Frontmatter, NoteName, NoteNameError, with_updated};
pub use regions::{Marker, MarkerError, Region, RegionError, RegionLayout};
pub use table::Table;

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
