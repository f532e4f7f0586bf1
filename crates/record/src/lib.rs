//! The contract of launcher and worker: what a trial is told, and what it leaves in the ledger.
//!
//! Invariant: both sides only ever exchange the files described here. Every file is complete under its
//! final name (written to a temporary name and renamed), except the step journal, which is append-only.

mod atomic;
mod bench_record;
mod cause;
mod checkpoint;
mod data_read;
mod device;
mod environment;
mod error;
mod hardware_sample;
pub mod hostlist;
mod job_record;
mod joined;
mod journal;
mod layout;
mod learning;
mod operation;
mod outcome;
mod page_cache;
mod program;
mod rank;
mod samples_file;
mod shuffle;
mod slurm_usage;
mod stage;
mod step;
mod steps_columns;
mod steps_file;
#[cfg(test)]
mod test_file;
mod totals;
mod trace_meta;
mod usage;
mod weights;

pub use atomic::{write_atomic, write_json};
pub use bench_record::{BENCH_SCHEMA_VERSION, BenchFigure, BenchInterval, BenchRecord};
pub use cause::Cause;
pub use checkpoint::{CHECKPOINT_SCHEMA_VERSION, CheckpointDir, CheckpointRecord};
pub use data_read::{ArrayRead, DataRead, FileSize};
pub use device::{CudaFacts, RankDevice};
pub use environment::{Environment, Gpu, Hardware};
pub use error::RecordError;
pub use expctl_settings::{
    Aggregation, Array, ArrayFormat, BackendChoice, Checkpoint, Collation, Data, DeviceChoice, DeviceMasks, Draw,
    Estimator, Experiment, Fetch, Gather, GradientCompression, GraphType, ISOLATION_SUFFIX, Implementation, Join,
    LabelSource, Launch, LearningSchedule, Loader, LocalHead, Loss, MaskSource, Measure, Mode, Model, ModelKind,
    Monitored, Networks, Norm, OPERANDS, Optimizer, Output, Pipeline, Precision, Processor, Profile, ProfileWindow,
    Reconstruction, SampleSet, Sampler, SamplerPreset, Select, Settings, Slurm, Split, StoreKind, TRIAL_SCHEMA_VERSION,
    TraceAt, Train, Trial, Walk, Worker, graph_types, is_url, looks_secret, samples_per_rank,
};
pub use hardware_sample::HardwareSample;
pub use job_record::JobRecord;
pub use joined::{JoinedPart, JoinedSteps, is_measured, joined_steps, steps_before};
pub use journal::{Journal, JournalTail, read_journal};
pub use layout::{AttemptDir, JobDir, RendezvousFile};
pub use learning::{LearningRecord, Validation, append_learning, joined_learning, read_learning, stopped_early};
pub use operation::{Operation, OperationTime};
pub use outcome::{
    EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PEER_LOST, EXIT_STORAGE, EXIT_STUCK, Outcome, RankExit, RankStatus, TrialState,
};
pub use page_cache::{DroppedPages, drop_from_page_cache};
pub use program::ProgramFacts;
pub use rank::{
    LastWords, Place, RankEnv, RankEnvError, free_memory, group_memory, hardware, meeting_place, peak_resident,
    share_gpus, variables, write_table,
};
pub use samples_file::{SAMPLES_SCHEMA_VERSION, read_sample_journal, read_samples, write_samples};
pub use shuffle::{LabelMixing, ShuffleQuality};
pub use slurm_usage::{SlurmStep, SlurmTry, SlurmUsage};
pub use stage::{PerStage, Stage};
pub use step::StepRecord;
pub use steps_file::{STEPS_SCHEMA_VERSION, StepsFile, read_steps, write_steps};
pub use totals::{Rates, StepTotals};
pub use trace_meta::{TRACE_SCHEMA_VERSION, TraceClock, TraceMeta, trace_microseconds, trace_nanoseconds, trace_rows};
pub use usage::{RankUsage, RemoteCounts};
pub use weights::WeightsDir;
