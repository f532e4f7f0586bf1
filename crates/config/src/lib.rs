//! Configs of experiments: TOML texts with inheritance, variants, sweeps and `--set`, validated, and expanded into trials.
//!
//! The way of a config: [`load`] reads the texts (`reader`) and lays their layers on top of each other (`resolve`); the rules judge
//! the settings of each run (`rules`); [`expand`] makes the trials of a [`Plan`]. Nothing here opens data: [`ProjectFiles`] answers for it.
//!
//! Invariant: every value keeps the place that it came from, through inheritance, variants, sweeps and `--set`; so every problem points into a
//! file or argument, and all problems are reported at once.

mod cluster_profile;
mod config;
mod document;
mod isolation;
mod layer;
mod node;
mod past_job;
mod plan;
mod problem;
mod project_files;
mod reader;
mod rerun;
mod resolve;
mod rules;
mod search;
mod snapshot_settings;
mod ssh_settings;
mod suggest;
mod sweep;
mod synonyms;
mod user;
mod verification;
mod yaml;

pub use cluster_profile::{
    ClusterProfile, Container, PYXIS, SHIPPED_PROFILES, has_profile, is_mount_of_pyxis, profile, profile_names,
};
pub use config::{Config, Run, Values, load, load_only, load_text, variant_names};
pub use isolation::{ISOLATED, Isolation, Modes, is_isolation, isolation_path};
pub use layer::{Layer, Setting};
pub use node::{Sources, ValueOrigin};
pub use past_job::{PastJob, Point};
pub use plan::{Plan, UnknownName, expand, trial_id};
pub use problem::{ConfErrors, Problem};
pub use project_files::{ArrayRefusal, GraphDataSet, NoteNameError, ProjectFiles, ProjectFolders, Reason};
pub use rerun::{Rerun, is_rerun, rerun_path};
pub use search::{RefusedPoint, SearchSpace, VariantPoints, set_arguments};
pub use snapshot_settings::SnapshotSettings;
pub use ssh_settings::SshSettings;
pub use suggest::closest;
pub use synonyms::their_names;
pub use user::{LinkStyle, NotesSettings, UserDefaults, path as user_path};
pub use verification::{
    ChangedSetting, Verification, VerifiedChange, VerifiedTrial, is_verification, verification_path,
};
pub use yaml::{is_yaml, toml_of_yaml};
