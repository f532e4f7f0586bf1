//! A rank that is connected to its peers, and the signals that it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use expctl_ledger::{AttemptDir, LastWords, RankEnv};
use expctl_settings::{Settings, Trial};
use host_metrics::MetricsRecorder;
use torch_dist::{ProcessGroup, Store};

use crate::activity::Activity;
use crate::monitor::Monitor;

/// Flags that signals to the process set.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// End at the next step (TERM, INT).
    pub stop: Arc<AtomicBool>,
    /// Write a checkpoint and go on (USR1).
    pub checkpoint: Arc<AtomicBool>,
}

/// A rank that is connected to its peers: its trial, its records, and its connections.
#[derive(Clone, Copy)]
pub struct Session<'a> {
    pub attempt: &'a AttemptDir,
    pub trial: &'a Trial,
    pub env: RankEnv,
    pub stop: &'a AtomicBool,
    pub last_words: &'a LastWords,
    pub activity: &'a Activity,
    pub store: &'a Store,
    pub monitor: &'a Monitor,
    pub group: &'a ProcessGroup,
    /// `None` where no hardware metrics are taken.
    pub metrics: Option<&'a MetricsRecorder>,
}

impl<'a> Session<'a> {
    /// The settings of the trial.
    pub fn settings(&self) -> &'a Settings {
        &self.trial.settings
    }

    /// Whether this process was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}
