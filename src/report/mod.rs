//! Notes and comparison tables.
//!
//! Invariant: a figure never stands without its class, a rate per iteration never without samples/s, and exposed and
//! busy time are never added up.

mod arrival;
mod bottleneck;
mod cautions;
pub mod compare;
pub mod epoch_time;
mod estimators;
pub mod figures;
pub mod format;
mod frontmatter;
mod html;
mod note;
mod oversubscription;
pub mod pictures;
pub mod reference;
pub(crate) mod regions;
mod resumed;
mod run_totals;
mod samples;
mod sections;
mod shape;
mod table;
mod warning;
mod warnings;
mod worlds;

pub use bottleneck::{Bottleneck, MasksBy, StageShare};
pub use estimators::EstimatedRate;
pub use frontmatter::Frontmatter;
pub use html::{PageChart, write_markdown_page, write_page};
pub(crate) use note::check_name;
pub use note::{BUILT_IN, NoteOptions, Picture, generated, write_note};
pub use run_totals::{RunTotals, StageSeconds, StepSeconds};
pub use sections::{Learned, attempts, learned};
pub use table::Table;
pub use warning::{Bearing, Cause, Caution, Warning};
pub use warnings::warnings;
