//! Text of reports and messages: numbers ([`mod@format`]), tables ([`Table`]), and markdown notes whose generated regions keep what a writer
//! put around them ([`RegionLayout`], [`merge_regions`]).

pub mod format;
mod frontmatter;
mod merge;
mod note_name;
mod regions;
mod suggest;
mod table;

pub use frontmatter::{Frontmatter, with_updated};
pub use merge::{GeneratedText, MergedNote, merge_regions, tidy};
pub use note_name::{NoteName, NoteNameError};
pub use regions::{Marker, MarkerError, Region, RegionError, RegionLayout};
pub use suggest::closest;
pub use table::Table;
