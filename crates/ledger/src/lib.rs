//! The ledger: what a trial is given, and what it leaves. Launcher, worker and reports share these files and nothing else.
//!
//! A job is a folder ([`JobDir`]) with a folder for each trial and attempt ([`AttemptDir`]). Ranks write steps ([`StepRecord`]) to a journal,
//! which becomes a table at their end ([`StepsTable`]). [`MeasuredJob`] reads a job back, with the steps of all attempts that count
//! ([`joined_steps()`]); [`Ledger`] finds jobs, including those that others published.
//!
//! Invariant: every file is complete under its final name (written to a temporary name and renamed), except the journals, which are
//! append-only.

mod attempt;
mod bench_record;
mod checkpoint;
mod code_snapshot;
mod component_kind;
mod data_read;
mod environment;
mod error;
pub mod hostlist;
mod job_record;
mod joined_steps;
mod layout;
mod learning;
mod ledger;
mod measured_job;
mod outcome;
mod panics;
mod provenance;
mod published_breakdown;
mod published_file;
mod rank_env;
mod samples_table;
mod slurm_usage;
mod stage;
mod step;
mod step_columns;
mod step_journal;
mod steps_table;
mod table;
mod trace_meta;

pub use attempt::{Attempt, AttemptState, read_attempts};
pub use bench_record::{BENCH_SCHEMA_VERSION, BenchFigure, BenchInterval, BenchRecord, BenchSitting};
pub use checkpoint::{CHECKPOINT_SCHEMA_VERSION, CheckpointDir, CheckpointRecord, WeightsDir};
pub use code_snapshot::{
    CodeSnapshot, LiveReason, SNAPSHOT_SCHEMA_VERSION, SnapshotContent, SnapshotEntry, SnapshotPath,
};
pub use component_kind::ComponentKind;
pub use data_read::{ArrayRead, DataRead, FileSize, LabelMixing, RankUsage, RemoteCounts, ShuffleQuality};
pub use environment::{CudaFacts, Environment, ProgramFacts, share_gpus, variables};
pub use error::{CheckpointMismatch, LedgerError, TableError};
// These stand in the ledger's files.
pub use host_metrics::{DroppedPages, Gpu, Hardware, HardwareSample, RankDevice};
pub use job_record::{
    JobArrays, JobHead, JobRecord, JobVariants, RecordedTrials, SearchRound, SubmittedArray, TaskTrial, TasksOfTrial,
    TrialTask, VerifiedPrediction, VerifiedPredictions,
};
pub use joined_steps::{JoinedPart, JoinedSteps, is_measured, joined_steps, steps_before};
pub use layout::{AttemptDir, JobDir, write_atomic, write_json};
pub use learning::{LearningRecord, Validation, append_learning, joined_learning, read_learning, stopped_early};
pub use ledger::{FindJobError, FoundJob, Ledger, LedgerFolders, LedgerJob};
pub use measured_job::{JobVerdictError, MeasuredJob, Run, RunPart, RunRecords, RunState};
pub use outcome::{
    Cause, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PEER_LOST, EXIT_STORAGE, EXIT_STUCK, LastWords, Outcome, RankExit,
    RankStatus, TrialState,
};
pub use panics::without_panics;
pub use provenance::{
    ConfigFile, ConfigOrigin, LibtorchFound, PROVENANCE_SCHEMA_VERSION, Program, Provenance, SourceState,
};
pub use published_breakdown::{Amount, FigureClass, PublishedBreakdown, PublishedComponent, TimeUnit};
pub use published_file::{
    FormMistake, MAX_BATCH, MAX_JOB, MAX_RANKS, ProgressText, PublishedError, PublishedFile, PublishedRow,
    PublishedSource, RateReading,
};
pub use rank_env::{RankEnv, RankEnvError, RendezvousAddress, RendezvousFile, Secret, rendezvous_address};
pub use samples_table::{
    SAMPLES_SCHEMA_VERSION, close_sample_journal, read_sample_journal, read_samples, write_samples,
};
pub use slurm_usage::{SlurmStep, SlurmTry, SlurmUsage};
pub use stage::{Operation, OperationTime, PerStage, Stage};
pub use step::{Rates, RunTotals, StageSeconds, StepRecord, StepSeconds, StepTotals};
pub use step_columns::{StepCell, StepColumn, StepColumnType, StepColumns};
pub use step_journal::{Journal, JournalTail, read_journal};
pub use steps_table::{STEPS_SCHEMA_VERSION, StepsTable, close_step_journal, read_steps, write_steps};
pub use trace_meta::{TRACE_SCHEMA_VERSION, TraceClock, TraceMeta, trace_microseconds, trace_nanoseconds, trace_rows};
