//! Configs: the TOML language, validated with spans.
//!
//! Invariant: every value keeps the place that it came from, through inheritance, variants, sweeps and `--set`; so every
//! problem points into a file or argument, and all problems are reported at once.

mod array_files;
mod array_rules;
mod batch_template;
mod contradictions;
mod device_rules;
mod document;
mod estimators;
mod files;
pub mod keys;
mod kind;
mod layer;
mod load;
mod mask_rules;
mod model_remarks;
mod model_rules;
mod node;
mod notes;
mod problem;
mod profile;
mod profile_find;
mod profiler_rules;
mod reference;
mod resolve;
mod semantics;
mod source;
mod suggest;
mod sweep;
mod sweep_read;
mod synonyms;
mod train_rules;
mod user;
mod values;
mod worker_rules;
mod yaml;

pub use array_files::matching;
pub use array_rules::{OF_BUILT_ROWS, of_other_family};
pub use batch_template::{SHIPPED_TEMPLATE, batch_template};
pub use kind::Kind;
pub use layer::{Layer, Setting};
pub use load::{Config, Run, load, load_text};
pub use model_remarks::model_remarks;
pub use notes::{LinkStyle, NotesSettings};
pub use problem::{ConfErrors, Problem};
pub use profile::{Container, Profile};
pub use profile_find::{SHIPPED_PROFILES, profile};
pub use reference::{reference, their_names};
pub use source::{Origin, Sources};
pub use suggest::closest;
pub use user::{UserDefaults, path as user_path};
pub use values::Values;
pub use worker_rules::NO_DATA_SET;
pub use yaml::{is_yaml, toml_of_yaml};
