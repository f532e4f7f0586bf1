//! The settings of a trial: a typed struct per section of a config, which is also what `trial.json` holds.
//!
//! A setting is declared once, as a field. The macro [`section`](expctl_settings_derive::section) makes the rest from it: the key
//! ([`Key`]), and a line of [`KEYS`] with type, default, help and the workloads that it matters for. Configs are read, checked and documented
//! by that table.
//!
//! Invariant: a ledger stays readable. Keys that a newer expctl wrote are ignored here (configs refuse them), and a field that is younger than the
//! first ledgers is `added`, with the value that trials had before.

// The macros name the crate, and are used in it alone.
extern crate self as expctl_settings;

mod advice;
mod array;
mod data;
mod emulation;
mod graph_type;
mod key;
mod launch;
mod measure;
mod model;
mod pipeline;
mod search;
mod secret;
mod settings;
mod train;

pub use advice::{Advice, Converted};
pub use array::{Array, ArrayFormat, Draw, Fetch, GeneJoin, Output, Sampler, SamplerPreset, is_url};
pub use data::{Data, LabelSource, Networks, SampleSet, Select, Split};
pub use emulation::{AcceleratorPreset, EmulatedStepTimes, PublishedStep, StepMs};
pub use graph_type::{GraphType, MergeError, MergeProblem, OPERANDS, graph_types};
pub use key::{InId, Key, KeyDefault, KeySpec, Section, SettingValue, ValueType, Workload, to_json};
pub use launch::{BackendChoice, DeviceChoice, Launch, PackGpu, Readers, Slurm, Worker};
pub use measure::{Estimator, Measure, Profile, ProfileWindow, TraceAt};
pub use model::{Aggregation, Implementation, LocalHead, Model, ModelKind, Norm, model_remarks};
pub use pipeline::{
    Collation, DeviceMasks, Loader, MaskSource, Pipeline, Processor, StoreKind, Walk, samples_per_rank,
};
pub use search::Search;
pub use secret::looks_secret;
pub use settings::{
    EMULATED, Experiment, ISOLATION_SUFFIX, KEYS, NO_DATA_SET, SECTIONS, Settings, TRIAL_SCHEMA_VERSION, Trial, find,
    reference, with_point,
};
pub use train::{
    Checkpoint, Gather, GradientCompression, LearningSchedule, Loss, Mode, Monitored, Optimizer, Precision,
    Reconstruction, Train,
};
