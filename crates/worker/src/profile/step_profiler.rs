use std::collections::VecDeque;

use expctl_dist::{Profile, ProfileOptions, Range, Reducer, Store};
use expctl_record::{AttemptDir, ProfileWindow, RankEnv, TRACE_SCHEMA_VERSION, TraceClock, TraceMeta, Trial};
use loader_core::{BatchTimes, Batcher, Loaded, Loader};

use super::clock::{ClockPair, monotonic, monotonic_of};
use super::offset::{Offset, agree};
use super::trace_file::TraceFile;
use crate::activity::{Activity, Phase};
use crate::device::DeviceError;
use crate::stop::Stop;

/// Records the steps that the settings name, a trace for each window of them.
pub(crate) struct StepProfiler<'a> {
    attempt: &'a AttemptDir,
    trial: &'a Trial,
    env: RankEnv,
    activity: &'a Activity,
    options: ProfileOptions,
    /// Those that are still to come.
    windows: VecDeque<ProfileWindow>,
    /// The same for all windows: what two of them show is at the same time in both.
    clock: ClockPair,
    /// Start of the loader's clock, of `CLOCK_MONOTONIC`, once it was asked for.
    loader_start: Option<i64>,
    offset: Offset,
    /// For the first of `windows`.
    prepared: bool,
    recording: Option<Recording>,
}

/// A window that is being recorded.
struct Recording {
    window: ProfileWindow,
    profile: Profile,
    batches: Vec<BatchTimes>,
    /// In front of step 0 the loader has so many batches.
    shift: u64,
    /// Step, number, and times of `CLOCK_MONOTONIC`.
    buckets: Vec<(u64, usize, (i64, i64))>,
    /// `CLOCK_MONOTONIC` at the start of the step.
    step_start: i64,
}

impl<'a> StepProfiler<'a> {
    /// The profiler of this rank; none where it records nothing. All ranks of a trial call this together, because those that
    /// record compare their clocks with that of rank 0.
    ///
    /// # Errors
    /// A rank does not answer.
    pub(crate) fn new(
        attempt: &'a AttemptDir,
        trial: &'a Trial,
        env: RankEnv,
        activity: &'a Activity,
        store: &Store,
        cuda: bool,
    ) -> Result<Option<Self>, Stop> {
        let settings = &trial.settings;
        let ranks: Vec<u32> = (0..env.world_size).filter(|rank| !settings.profile_windows(*rank).is_empty()).collect();
        let records = ranks.contains(&env.rank);
        if !records && (ranks.is_empty() || env.rank != 0) {
            return Ok(None);
        }
        let offset = agree(store, env, &ranks)?;
        let options = ProfileOptions {
            cuda,
            record_shapes: settings.profile.record_shapes,
            memory: settings.profile.memory,
            stack: settings.profile.stack,
        };
        let windows = settings.profile_windows(env.rank).into();
        let clock = ClockPair::now();
        Ok(records.then_some(Self {
            attempt,
            trial,
            env,
            activity,
            options,
            windows,
            clock,
            loader_start: None,
            offset,
            prepared: false,
            recording: None,
        }))
    }

    /// In front of `step`: end a window, or begin one. True if that took time, which belongs to no step.
    ///
    /// # Errors
    /// libtorch's profiler cannot be had, or the trace cannot be written.
    pub(crate) fn arrive<B: Batcher>(&mut self, step: u64, loader: &Loader<B>) -> Result<bool, Stop> {
        let mut busy = false;
        if self.recording.as_ref().is_some_and(|recording| step >= recording.window.end) {
            self.end(step, loader)?;
            busy = true;
        }
        // An attempt that goes on behind the start of a window cannot record it.
        while self.windows.front().is_some_and(|window| window.first < step) {
            self.windows.pop_front();
        }
        let Some(window) = self.windows.front().copied() else { return Ok(busy) };
        // At its step; an attempt that goes on behind that, at its first one.
        if step >= window.prepare && !self.prepared {
            self.activity.enter(Phase::Profile);
            Profile::prepare(self.options).map_err(DeviceError::from)?;
            self.prepared = true;
            busy = true;
        }
        if step == window.first {
            self.activity.enter(Phase::Profile);
            self.windows.pop_front();
            let profile = Profile::start(self.options).map_err(DeviceError::from)?;
            self.prepared = false;
            let (batches, buckets) = (Vec::new(), Vec::new());
            self.recording = Some(Recording { window, profile, batches, shift: 0, buckets, step_start: 0 });
            busy = true;
        }
        Ok(busy)
    }

    /// The range of a step; none where it is not recorded.
    pub(crate) fn step(&mut self, step: u64) -> Option<Range> {
        let recording = self.recording.as_mut()?;
        recording.step_start = monotonic();
        Some(Range::open(&format!("step {step}")))
    }

    /// What the loader did for the batch of `step`.
    pub(crate) fn loaded<T>(&mut self, step: u64, loaded: &Loaded<T>) {
        if let Some(recording) = &mut self.recording {
            recording.shift = loaded.step.saturating_sub(step);
            recording.batches.push(BatchTimes::from(loaded));
        }
    }

    /// What `reducer` averaged in `step`.
    pub(crate) fn reduced(&mut self, step: u64, reducer: Option<&Reducer>) {
        let Some((recording, reducer)) = self.recording.as_mut().zip(reducer) else { return };
        let ns = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        for (number, (start, end)) in reducer.buckets().into_iter().enumerate() {
            // A step that only adds gradients up leaves the buckets of the one before it.
            if ns(start) >= recording.step_start {
                recording.buckets.push((step, number, (ns(start), ns(end))));
            }
        }
    }

    /// Behind the last step: what was recorded so far is kept, where training ended early.
    ///
    /// # Errors
    /// As [`Self::arrive`].
    pub(crate) fn finish<B: Batcher>(&mut self, end: u64, loader: &Loader<B>) -> Result<(), Stop> {
        match &self.recording {
            Some(recording) if end > recording.window.first => self.end(end, loader),
            _ => Ok(()),
        }
    }

    fn end<B: Batcher>(&mut self, end: u64, loader: &Loader<B>) -> Result<(), Stop> {
        let Some(Recording { mut window, profile, mut batches, shift, buckets, .. }) = self.recording.take() else {
            return Ok(());
        };
        self.activity.enter(Phase::Profile);
        window.end = window.end.min(end);
        let recorded = profile.stop().map_err(DeviceError::from)?;
        let drift_ns = ClockPair::now().drift_since(&self.clock);
        // Made within the window for steps behind it.
        batches.extend(loader.ahead());
        let mut trace = TraceFile::take(&recorded)?;
        drop(recorded);
        let (frame, clock) = (trace.frame, self.clock);
        let start = *self.loader_start.get_or_insert_with(|| monotonic_of(loader.clock()));
        let loader_start = clock.realtime_of(start);
        let at = |ns: u64| loader_start.saturating_add(i64::try_from(ns).unwrap_or(i64::MAX));
        trace.add(frame.loader(&batches, at, shift));
        let buckets: Vec<_> = buckets
            .into_iter()
            .map(|(step, number, (from, to))| (step, number, (clock.realtime_of(from), clock.realtime_of(to))))
            .collect();
        trace.add(frame.buckets(&buckets));
        let meta = TraceMeta {
            schema: TRACE_SCHEMA_VERSION,
            trial: self.trial.id.clone(),
            rank: self.env.rank,
            world_size: self.env.world_size,
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
        let path = self.attempt.trace_path(self.env.rank, window.cycle);
        trace.write(&path, &meta)?;
        tracing::info!(
            "rank {}: steps {} to {} are in {}",
            self.env.rank,
            window.first,
            window.end - 1,
            path.display()
        );
        Ok(())
    }
}
