//! The profiler of a rank: which steps it records, and what is added to its trace. Invariants: a trace is whole or absent; starting the
//! profiler and writing the trace are in no step; without a profile nothing here costs time.

use std::collections::VecDeque;

use expctl_ledger::{TRACE_SCHEMA_VERSION, TraceClock, TraceMeta};
use expctl_settings::ProfileWindow;
use loader_core::{BatchTimes, Batcher, Loaded, Loader};
use torch_dist::{ProfileOptions, ProfilerRange, Reducer, RunningProfile};

use crate::activity::Phase;
use crate::device::DeviceError;
use crate::error::RankError;
use crate::session::Session;

mod clock;
mod trace;

use clock::{ClockOffset, ClockPair, measure_offset, monotonic_at, monotonic_ns};
use trace::TraceFile;

pub use trace::TraceError;

/// Records the steps that the settings name, one trace for each window of steps.
pub struct StepProfiler<'a> {
    session: Session<'a>,
    options: ProfileOptions,
    /// Windows that are still to come.
    windows: VecDeque<ProfileWindow>,
    /// Both clocks at the start; one pair for all windows, so that their times are comparable.
    clock: ClockPair,
    /// Start of the loader's clock, ns of `CLOCK_MONOTONIC`, once it was read.
    loader_start: Option<i64>,
    offset: ClockOffset,
    /// Whether the profiler is prepared for the first of `windows`.
    is_prepared: bool,
    recording: Option<WindowRecording>,
}

/// A window that is being recorded.
struct WindowRecording {
    window: ProfileWindow,
    profile: RunningProfile,
    batches: Vec<BatchTimes>,
    /// Number of batches that the loader has before step 0.
    shift: u64,
    /// Step, index in the step, and start and end in ns of `CLOCK_MONOTONIC`.
    buckets: Vec<(u64, usize, (i64, i64))>,
    /// `CLOCK_MONOTONIC` at the start of the step, ns.
    step_start: i64,
}

impl<'a> StepProfiler<'a> {
    /// The profiler of this rank; `None` where the rank records nothing. All ranks of a trial call this together, because those that record
    /// compare their clocks with that of rank 0.
    ///
    /// # Errors
    /// A rank does not answer.
    pub fn new(session: Session<'a>, cuda: bool) -> Result<Option<Self>, RankError> {
        let (settings, env) = (session.settings(), session.env);
        let ranks: Vec<u32> = (0..env.world_size).filter(|rank| !settings.profile_windows(*rank).is_empty()).collect();
        let records = ranks.contains(&env.rank);
        if !records && (ranks.is_empty() || env.rank != 0) {
            return Ok(None);
        }
        let offset = measure_offset(session.store, env, &ranks)?;
        let options = ProfileOptions {
            cuda,
            record_shapes: settings.profile.record_shapes,
            memory: settings.profile.memory,
            stack: settings.profile.stack,
        };
        let windows = settings.profile_windows(env.rank).into();
        let clock = ClockPair::now();
        Ok(records.then_some(Self {
            session,
            options,
            windows,
            clock,
            loader_start: None,
            offset,
            is_prepared: false,
            recording: None,
        }))
    }

    /// End a window in front of `step`, or begin one. Returns whether that took time, which belongs to no step.
    ///
    /// # Errors
    /// libtorch's profiler fails, or the trace cannot be written.
    pub fn before_step<B: Batcher>(&mut self, step: u64, loader: &Loader<B>) -> Result<bool, RankError> {
        let mut busy = false;
        if self.recording.as_ref().is_some_and(|recording| step >= recording.window.end) {
            self.end_window(step, loader)?;
            busy = true;
        }
        // An attempt that resumes behind the start of a window cannot record it.
        while self.windows.front().is_some_and(|window| window.first < step) {
            self.windows.pop_front();
        }
        let Some(window) = self.windows.front().copied() else { return Ok(busy) };
        // At the step that the window names; in an attempt that resumes behind that, at its first step.
        if step >= window.prepare && !self.is_prepared {
            self.session.activity.enter(Phase::Profile);
            RunningProfile::prepare(self.options).map_err(DeviceError::from)?;
            self.is_prepared = true;
            busy = true;
        }
        if step == window.first {
            self.session.activity.enter(Phase::Profile);
            self.windows.pop_front();
            let profile = RunningProfile::start(self.options).map_err(DeviceError::from)?;
            self.is_prepared = false;
            let (batches, buckets) = (Vec::new(), Vec::new());
            self.recording = Some(WindowRecording { window, profile, batches, shift: 0, buckets, step_start: 0 });
            busy = true;
        }
        Ok(busy)
    }

    /// Open the range of a step; `None` where the step is not recorded.
    pub fn open_step(&mut self, step: u64) -> Option<ProfilerRange> {
        let recording = self.recording.as_mut()?;
        recording.step_start = monotonic_ns();
        Some(ProfilerRange::open(&format!("step {step}")))
    }

    /// Record the times of the loader for the batch of `step`.
    pub fn record_batch<T>(&mut self, step: u64, loaded: &Loaded<T>) {
        if let Some(recording) = &mut self.recording {
            recording.shift = loaded.step.saturating_sub(step);
            recording.batches.push(BatchTimes::from(loaded));
        }
    }

    /// Record the buckets that `reducer` averaged in `step`.
    pub fn record_buckets(&mut self, step: u64, reducer: Option<&Reducer>) {
        let Some((recording, reducer)) = self.recording.as_mut().zip(reducer) else { return };
        let ns = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        for (index, (start, end)) in reducer.buckets().into_iter().enumerate() {
            // A step that only accumulates gradients leaves the buckets of the step before it.
            if ns(start) >= recording.step_start {
                recording.buckets.push((step, index, (ns(start), ns(end))));
            }
        }
    }

    /// Write the trace of a window that is open behind the last step, because training ended early.
    ///
    /// # Errors
    /// As [`Self::before_step`].
    pub fn finish<B: Batcher>(&mut self, end: u64, loader: &Loader<B>) -> Result<(), RankError> {
        match &self.recording {
            Some(recording) if end > recording.window.first => self.end_window(end, loader),
            _ => Ok(()),
        }
    }

    fn end_window<B: Batcher>(&mut self, end: u64, loader: &Loader<B>) -> Result<(), RankError> {
        let Some(WindowRecording { mut window, profile, mut batches, shift, buckets, .. }) = self.recording.take()
        else {
            return Ok(());
        };
        let env = self.session.env;
        self.session.activity.enter(Phase::Profile);
        window.end = window.end.min(end);
        let recorded = profile.stop().map_err(DeviceError::from)?;
        let drift_ns = ClockPair::now().drift_since(&self.clock);
        // Batches that were built within the window for steps behind it.
        batches.extend(loader.ahead());
        let mut trace = TraceFile::from_recorded(&recorded)?;
        drop(recorded);
        let (frame, clock) = (trace.frame, self.clock);
        let start = *self.loader_start.get_or_insert_with(|| monotonic_at(loader.clock()));
        let loader_start = clock.realtime_at(start);
        let at = |ns: u64| loader_start.saturating_add(i64::try_from(ns).unwrap_or(i64::MAX));
        trace.add(frame.loader(&batches, at, shift));
        let buckets: Vec<_> = buckets
            .into_iter()
            .map(|(step, index, (from, to))| (step, index, (clock.realtime_at(from), clock.realtime_at(to))))
            .collect();
        trace.add(frame.buckets(&buckets));
        let meta = TraceMeta {
            schema: TRACE_SCHEMA_VERSION,
            trial: self.session.trial.id.clone(),
            rank: env.rank,
            world_size: env.world_size,
            host: nix::unistd::gethostname().map(|host| host.to_string_lossy().into_owned()).unwrap_or_default(),
            window,
            pid: frame.pid,
            step_thread: trace.step_thread,
            clock: TraceClock {
                realtime_ns: clock.realtime,
                monotonic_ns: clock.monotonic,
                pair_uncertainty_ns: clock.width,
                drift_ns,
                offset_ns: self.offset.ns,
                offset_uncertainty_ns: self.offset.uncertainty_ns,
                boot_id: self.offset.boot_id.clone(),
            },
        };
        let path = self.session.attempt.trace_path(env.rank, window.cycle);
        trace.write(&path, &meta)?;
        tracing::info!("rank {}: steps {} to {} are in {}", env.rank, window.first, window.end - 1, path.display());
        Ok(())
    }
}
