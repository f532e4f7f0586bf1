use std::sync::atomic::{AtomicBool, Ordering};

use expctl_dist::{ProcessGroup, Store};
use expctl_record::{AttemptDir, LastWords, RankEnv, Settings, Trial};
use host_metrics::MetricsRecorder;

use crate::activity::Activity;
use crate::monitor::Monitor;

/// What a connected rank works with.
#[derive(Clone, Copy)]
pub(crate) struct Session<'a> {
    pub(crate) attempt: &'a AttemptDir,
    pub(crate) trial: &'a Trial,
    pub(crate) env: RankEnv,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) last_words: &'a LastWords,
    pub(crate) activity: &'a Activity,
    pub(crate) store: &'a Store,
    pub(crate) monitor: &'a Monitor,
    pub(crate) group: &'a ProcessGroup,
    /// None where no hardware samples are taken.
    pub(crate) metrics: Option<&'a MetricsRecorder>,
}

impl<'a> Session<'a> {
    /// The settings of the trial.
    pub(crate) fn settings(&self) -> &'a Settings {
        &self.trial.settings
    }

    /// Whether this process was asked to stop.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}
