//! The note of a job: its template, what the template is given, where the file lies, and how it is written again.

mod context;
mod earlier;
mod file;
mod links;
mod name;
mod options;
mod pictures;
mod prose;
mod template;
mod write;

pub(super) use file::submission;
pub(crate) use name::check_name;
pub use options::NoteOptions;
pub use pictures::Picture;
pub use template::BUILT_IN;
pub use write::{generated, write_note};
