//! Steps: batch size, warm-up, how many steps a run has, the learning rate over them, which of them a profiler records, and what is sampled
//! beside them.
//!
//! Invariant: a profile that a config asks for is recorded whole, or the config is refused.

use expctl_settings::{
    Array, Data, Launch, LearningSchedule, Loader, Measure, Mode, NO_DATA_SET, Profile, ProfileWindow, SampleSet,
    Sampler, Select, Split, TraceAt, Train, Worker, is_url, samples_per_rank,
};

use super::Judge;
use crate::config::Values;
use crate::problem::Problem;

/// Steps of warm-up where nothing calls for more.
const DEFAULT_WARMUP: u64 = 10;

/// Steps that are measured where nothing says how many.
const DEFAULT_STEPS: u64 = 100;

/// Processor time is counted in hundredths of a second: over less than this, a sample says nothing.
const MIN_SAMPLE_INTERVAL_S: f64 = 0.1;

impl Judge<'_> {
    /// There are enough samples for a full step.
    pub fn batches(&self, values: &Values, problems: &mut Vec<Problem>) {
        let Some((batch, ranks, samples)) = step_and_samples(values) else { return };
        if values.get(Data::SET).as_deref() == Some(NO_DATA_SET) {
            return;
        }
        let together = batch.saturating_mul(ranks);
        if together > samples {
            let message = format!(
                "one step takes {batch} samples on each of {ranks} ranks, {together} in all, but there are {samples}"
            );
            let keys = [Loader::BATCH_SIZE.name(), Launch::RANKS.name(), Data::SAMPLES.name()];
            let key = keys.into_iter().find(|key| values.at(key).is_some()).unwrap_or(keys[0]);
            let problem = Problem::new(self.at(values, key), message, no_full_step(values));
            problems.push(problem.help("take a smaller batch, fewer ranks or more samples"));
        }
    }

    /// A selection leaves a full step. How many samples are metabolic is not known before the data set is built.
    pub fn selection(&self, values: &Values, problems: &mut Vec<Problem>) {
        let Some((batch, ranks, samples)) = step_and_samples(values) else { return };
        let Some(split) = values.get(Select::SPLIT) else { return };
        let Some(selected) = selected_samples(values, split, samples) else { return };
        let together = batch.saturating_mul(ranks);
        // Too few samples before any selection are reported by `batches`.
        if together <= selected || together > samples {
            return;
        }
        let keys = [Select::SPLIT.name(), Select::SUBSET.name()];
        let key = keys.into_iter().find(|key| values.at(key).is_some()).unwrap_or(keys[1]);
        let message = format!(
            "one step takes {batch} samples on each of {ranks} ranks, {together} in all, but the selection leaves \
             {selected} of {samples}"
        );
        let problem = self.conflict(values, key, &Loader::BATCH_SIZE, message, no_full_step(values));
        problems.push(problem.help("take a smaller batch, fewer ranks, a larger subset or another split"));
    }

    /// Batches that were loaded ahead cost the step nothing: the first measured step must not be served from them.
    pub fn warm_up(&self, values: &mut Values, problems: &mut Vec<Problem>) {
        let (workers, factor) = (values.number(Loader::WORKERS), values.number(Loader::PREFETCH_FACTOR));
        let (Some(workers), Some(factor)) = (workers, factor) else { return };
        let ahead = workers.saturating_mul(factor);
        values.derive_missing(Measure::WARMUP, Some(ahead.max(DEFAULT_WARMUP)));
        let Some(warm_up) = values.get(Measure::WARMUP).filter(|steps| *steps < ahead) else { return };
        let message = format!(
            "{workers} workers × prefetch factor {factor} load up to {ahead} batches ahead, but only {warm_up} steps are \
             warm-up"
        );
        let label = "the first measured steps would find their batches ready, and look too fast";
        let problem = Problem::new(self.at(values, &Measure::WARMUP), message, label);
        problems.push(problem.help(format!("set measure.warmup to at least {ahead}")));
    }

    /// Hardware samples at an interval that they can say something about.
    pub fn sampling(&self, values: &Values, problems: &mut Vec<Problem>) {
        let key = Measure::SAMPLE_EVERY_S;
        let too_short = |s: &f64| *s > 0.0 && *s < MIN_SAMPLE_INTERVAL_S;
        let Some(every) = values.get(key).filter(too_short) else { return };
        let message = format!("`{key}` is {every}: processor time is counted in hundredths of a second");
        let problem = Problem::new(self.at(values, &key), message, "too short to measure");
        problems.push(problem.help(format!("take {MIN_SAMPLE_INTERVAL_S} or more, or 0 for no samples")));
    }

    /// Files that can be dropped from the page cache, and that steps read.
    pub fn cold_cache(&self, values: &Values, problems: &mut Vec<Problem>) {
        let key = Measure::COLD_CACHE;
        if values.get(key) != Some(true) {
            return;
        }
        let files = values.get(Array::FILES).unwrap_or_default();
        let no_data_set = values.get(Data::SET).as_deref() == Some(NO_DATA_SET);
        let (message, other, help) = if no_data_set && files.is_empty() {
            let message = format!("`{key}` is set, but which files the program reads is not known");
            let help = "set data.set or array.files, or have the program drop its files itself";
            (message, Worker::COMMAND.name(), help)
        } else if values.get(Array::MEMORY) == Some(true) {
            let message = format!("`{key}` is set, but all rows are read into memory before the first step");
            (message, Array::MEMORY.name(), "leave one of the two out")
        } else if files.iter().any(|file| is_url(file)) {
            let message = format!("`{key}` is set, but objects of servers are in no page cache");
            let help = "leave it out; array.cache_mib = 0 reads every byte from the server";
            (message, Array::FILES.name(), help)
        } else {
            return;
        };
        problems.push(self.conflict(values, &key, other, message, "would have no effect").help(help));
    }

    /// Epochs, and the steps that they have.
    pub fn epochs(&self, values: &mut Values, problems: &mut Vec<Problem>) {
        self.accumulation(values, problems);
        let epochs = values.get(Train::EPOCHS).unwrap_or(0);
        let measured = values.get(Measure::EPOCHS).unwrap_or(0);
        if epochs > 0 && measured > 0 {
            let message = format!("`{}` and `{}` both say how long the run is", Measure::EPOCHS, Train::EPOCHS);
            let at = self.at(values, &Measure::EPOCHS);
            problems.push(Problem::new(at, message, "only one of them can").help("leave one out"));
        }
        if epochs == 0 {
            if measured > 0 {
                self.steps_of_epochs(values, &Measure::EPOCHS, measured, problems);
            } else {
                values.derive_missing(Measure::STEPS, Some(DEFAULT_STEPS));
            }
            if values.get(Train::PATIENCE).is_some_and(|patience| patience > 0) {
                let message = format!("`{}` is set, but without epochs nothing is validated", Train::PATIENCE);
                let at = self.at(values, &Train::PATIENCE);
                problems.push(Problem::new(at, message, "would have no effect").help("set train.epochs"));
            }
            return;
        }
        if let Some(mode) = values.get(Train::MODE).filter(|mode| *mode != Mode::Train) {
            let message = format!("`{}` is set, but mode `{}` does not train", Train::EPOCHS, mode.name());
            let help = "set train.mode to \"train\", or leave epochs out";
            let at = self.at(values, &Train::EPOCHS);
            problems.push(Problem::new(at, message, "would have no effect").help(help));
        }
        let validates = values.get(Train::VALIDATE_EVERY).is_some_and(|every| every > 0) && !values.reads_array();
        let split = values.get(Select::SPLIT).filter(|split| matches!(split, Split::All | Split::Val));
        if let Some(split) = split.filter(|_| validates) {
            let message = format!("split `{}` is trained on, and `val`, which is in it, is validated on", split.name());
            let help = "set select.split to \"train\", or train.validate_every to 0";
            let at = self.at(values, &Select::SPLIT);
            problems.push(Problem::new(at, message, "the figures would say nothing").help(help));
        }
        self.steps_of_epochs(values, &Train::EPOCHS, epochs, problems);
    }

    /// Derives the steps of the epochs that `key` asks for.
    fn steps_of_epochs(&self, values: &mut Values, key: &str, epochs: u64, problems: &mut Vec<Problem>) {
        let mut report = |key: &str, message: String, label: &str, help: &str| {
            problems.push(Problem::new(self.at(values, key), message, label).help(help));
        };
        if values.has(&Measure::STEPS) {
            if values.at(&Measure::STEPS).is_some() {
                let message = format!("`{}` and `{key}` both say how long the run is", Measure::STEPS);
                report(&Measure::STEPS, message, "only one of them can", "leave one out");
            }
            return;
        }
        let (total, warm_up) = (epoch_steps(values, epochs), values.get(Measure::WARMUP));
        let steps = total.zip(warm_up).and_then(|(total, warm_up)| total.checked_sub(warm_up));
        let steps = steps.filter(|steps| *steps > 0);
        // What is not known here follows from a mistake that is reported where it is, as too few samples for one step are.
        let too_few = values.get(Data::SET).as_deref() != Some(NO_DATA_SET)
            && step_and_samples(values).is_some_and(|(batch, ranks, samples)| batch.saturating_mul(ranks) > samples);
        if steps.is_none() && values.get(Select::SAMPLES) == Some(SampleSet::Metabolic) {
            let message = "how many samples are metabolic is not known before the data set is built".to_owned();
            let help = format!("set measure.steps instead of {key}");
            report(key, message, "its steps cannot be counted", &help);
        } else if let (Some(total), Some(warm_up), None) = (total, warm_up, steps)
            && !too_few
        {
            let message =
                format!("the run has {total} steps, the warm-up takes {warm_up}{}", why_warm_up(values, warm_up));
            let help = "set more epochs, fewer workers, or measure.warmup to less";
            report(key, message, "nothing would be measured", help);
        } else if total.is_none() && epoch_steps(values, 1).is_some() {
            report(key, format!("{epochs} epochs have too many steps to count"), "too many", "set fewer epochs");
        }
        values.derive(Measure::STEPS, steps);
    }

    /// Entries of `train.accumulation` are pairs of an epoch and a number of batches.
    pub fn accumulation(&self, values: &Values, problems: &mut Vec<Problem>) {
        let key = Train::ACCUMULATION;
        let Some(entries) = values.get(key) else { return };
        if let Err((i, reason)) = Train::accumulation_pairs(&entries) {
            let help = "for example [\"0:1\", \"10:4\"]: from epoch 10 on, four batches a step";
            let problem = Problem::new(self.item_at(values, &key, i), format!("`{key}`: {reason}"), "this one");
            problems.push(problem.help(help));
        }
    }

    /// Settings of the learning rate that contradict each other, or of which one would have no effect.
    pub fn schedule(&self, values: &Values, problems: &mut Vec<Problem>) {
        const SCHEDULE: &str = Train::SCHEDULE.name();
        let Some(schedule) = values.get(Train::SCHEDULE) else { return };
        let mut report = |key: &str, other: &str, message: String, label: &str, help: &str| {
            let mut problem = Problem::new(self.at(values, key), message, label);
            // One array of a sweep may set both.
            if let Some(at) = values.at(other).filter(|at| values.at(key) != Some(*at)) {
                problem = problem.also(at, format!("`{other}`"));
            }
            problems.push(problem.help(help));
        };
        if let (Some(min), Some(rate)) = (values.get(Train::SCHEDULE_MIN), values.get(Train::LEARNING_RATE))
            && schedule != LearningSchedule::Constant
            && min > rate
        {
            let (key, other) = (Train::SCHEDULE_MIN, Train::LEARNING_RATE);
            let message = format!("`{key}` = {min} is above `{other}` = {rate}");
            report(&key, &other, message, "the rate could not fall", "set schedule_min to at most learning_rate");
        }
        if let (Some(rising), Some(cycle)) = (values.get(Train::SCHEDULE_WARMUP), values.get(Train::SCHEDULE_EPOCHS))
            && schedule == LearningSchedule::CosineRestarts
            && rising >= cycle
        {
            let (key, other) = (Train::SCHEDULE_WARMUP, Train::SCHEDULE_EPOCHS);
            let message = format!("`{key}` = {rising} leaves nothing of a cycle of {cycle} epochs");
            report(&key, &other, message, "the rate would only rise", "set schedule_warmup below schedule_epochs");
        }
        if schedule == LearningSchedule::Plateau {
            let validation = [Train::EPOCHS, Train::VALIDATE_EVERY];
            if let Some(missing) = validation.into_iter().find(|key| values.get(*key) == Some(0)) {
                let message = format!("`{SCHEDULE}` = \"plateau\" waits for validations, of which there are none");
                report(SCHEDULE, &missing, message, "would have no effect", &format!("set {missing}"));
            }
        } else if values.at(&Train::SCHEDULE_PATIENCE).is_some() {
            let key = Train::SCHEDULE_PATIENCE;
            let message = format!("`{key}` is set, but schedule `{}` waits for nothing", schedule.name());
            let help = "set it where the schedule is \"plateau\", for example in a variant; train.patience ends training early";
            report(&key, SCHEDULE, message, "would have no effect", help);
        }
    }

    /// Windows of the profiler against the steps and the ranks of the trial.
    pub fn profiler(&self, values: &Values, problems: &mut Vec<Problem>) {
        let (active, at_step) = (values.get(Profile::ACTIVE), values.get(TraceAt::AT_STEP));
        let (Some(active), Some(at_step)) = (active, at_step) else { return };
        if active == 0 && at_step == 0 {
            return self.profiler_is_off(values, problems);
        }
        let key = if at_step > 0 { TraceAt::AT_STEP } else { Profile::ACTIVE };
        if values.runs_command() {
            let message = format!("`{key}` profiles expctl's own worker, but `{}` runs in its place", Worker::COMMAND);
            let problem = Problem::new(self.at(values, &key), message, "not possible");
            problems.push(problem.help("profile within the program, or leave it out"));
            return;
        }
        if active > 0 && at_step > 0 {
            let message = format!("`{}` and `{}` both say which steps are recorded", TraceAt::AT_STEP, Profile::ACTIVE);
            let problem = Problem::new(self.at(values, &key), message, "only one of them can");
            problems.push(problem.help("leave one out"));
            return;
        }
        self.profiled_ranks(values, problems);
        let (Some(profile), Some(warmup), Some(steps)) =
            (profiler_schedule(values, active), values.get(Measure::WARMUP), values.get(Measure::STEPS))
        else {
            return;
        };
        let all = warmup.saturating_add(steps);
        let Some(last) = profile.windows(TraceAt { at_step }, warmup).pop().filter(|window| window.end > all) else {
            return;
        };
        let message = format!(
            "the profiler would record {}, but the last of {all} steps ({warmup} of warm-up) is step {}",
            recorded_steps(last),
            all.saturating_sub(1)
        );
        let help = match at_step {
            0 => "record fewer steps or cycles, wait less, or set measure.steps higher".to_owned(),
            _ => format!("set at_step to at most {}", all.saturating_sub(1)),
        };
        problems.push(self.conflict(values, &key, &Measure::STEPS, message, "beyond the end").help(help));
    }

    /// A profiler that never runs. Texts may keep settings of it for `--set` to turn on, so only a schedule without a word on whether it is on is
    /// reported.
    fn profiler_is_off(&self, values: &Values, problems: &mut Vec<Problem>) {
        // A config that keeps its schedule ready, with active = 0, says so itself.
        if values.at(&Profile::ACTIVE).is_some() || values.at(&TraceAt::AT_STEP).is_some() {
            return;
        }
        let schedule = [Profile::WAIT.name(), Profile::WARMUP.name(), Profile::REPEAT.name(), Profile::RANKS.name()];
        if let Some(at) = schedule.iter().find_map(|key| values.at(key)) {
            let problem = Problem::new(at, "`[profile]` is set, but records no step", "would have no effect");
            problems.push(problem.help("set profile.active to the number of steps to record"));
        }
    }

    /// Ranks that record exist, and are named once.
    fn profiled_ranks(&self, values: &Values, problems: &mut Vec<Problem>) {
        let key = Profile::RANKS;
        let (Some(all), Some(ranks)) = (values.get(Launch::RANKS), values.get(key)) else { return };
        for (i, rank) in ranks.iter().enumerate() {
            let at = self.item_at(values, &key, i);
            if *rank >= all {
                let message = format!("`{key}` names rank {rank}, but there are {all} ranks, counted from 0");
                let help = "ranks that record: those below launch.ranks; empty is all";
                problems.push(Problem::new(at, message, "no such rank").help(help));
            } else if ranks[..i].contains(rank) {
                problems.push(Problem::new(at, format!("`{key}` names rank {rank} twice"), "each rank once"));
            }
        }
    }

    /// Operations are timed inside expctl's own worker.
    pub fn operations(&self, values: &Values, problems: &mut Vec<Problem>) {
        let key = Profile::OPERATIONS;
        if values.get(key) != Some(true) || !values.runs_command() {
            return;
        }
        let message = format!("`{key}` is of expctl's own worker, but `{}` runs in its place", Worker::COMMAND);
        problems.push(Problem::new(self.at(values, &key), message, "not possible").help("leave it out"));
    }
}

/// ` (loader.workers 8 × prefetch_factor 4)`, where the steps of warm-up follow from them.
fn why_warm_up(values: &Values, warm_up: u64) -> String {
    match (values.at(&Measure::WARMUP), values.number(Loader::WORKERS), values.number(Loader::PREFETCH_FACTOR)) {
        (None, Some(workers), Some(factor)) if warm_up > DEFAULT_WARMUP => {
            format!(" ({} {workers} × prefetch_factor {factor})", Loader::WORKERS.name())
        }
        _ => String::new(),
    }
}

/// Samples of a rank's batch, ranks, and samples that there are.
fn step_and_samples(values: &Values) -> Option<(u64, u64, u64)> {
    Some((values.get(Loader::BATCH_SIZE)?, values.number(Launch::RANKS)?, values.get(Data::SAMPLES)?))
}

/// Label for too few samples.
fn no_full_step(values: &Values) -> &'static str {
    match values.get(Loader::DROP_LAST) {
        Some(true) => "with `drop_last` there would be no batch at all",
        _ => "no step could be full",
    }
}

/// Samples that split and subset leave of `samples`, if all are candidates.
fn selected_samples(values: &Values, split: Split, samples: u64) -> Option<u64> {
    let subset = values.get(Select::SUBSET)?;
    let all = split.size(samples);
    Some(if subset == 0 { all } else { split.size(subset).min(all) })
}

/// Steps of so many epochs on each rank; none where a number is not known.
fn epoch_steps(values: &Values, epochs: u64) -> Option<u64> {
    let samples = if values.reads_array() {
        // An epoch has all rows, or as many as `sampler.rows` says.
        let rows = values.get(Sampler::ROWS)?;
        if rows == 0 { values.get(Data::SAMPLES)? } else { rows }
    } else {
        if values.get(Select::SAMPLES)? != SampleSet::All {
            return None;
        }
        // A wrong split is reported already.
        let split = values.get(Select::SPLIT).unwrap_or_default();
        selected_samples(values, split, values.get(Data::SAMPLES)?)?
    };
    let batch = values.get(Loader::BATCH_SIZE)?;
    let drop_last = values.get(Loader::DROP_LAST)?;
    let samples = samples_per_rank(samples, values.get(Launch::RANKS)?, drop_last);
    let batches = if drop_last { samples / batch } else { samples.div_ceil(batch) };
    batches.checked_mul(epochs)
}

/// The cycles of the profiler.
fn profiler_schedule(values: &Values, active: u64) -> Option<Profile> {
    Some(Profile {
        wait: values.get(Profile::WAIT)?,
        warmup: values.get(Profile::WARMUP)?,
        active,
        repeat: values.get(Profile::REPEAT)?,
        ..Profile::default()
    })
}

/// `step 50`, `steps 50 to 52`.
fn recorded_steps(window: ProfileWindow) -> String {
    match window.end.saturating_sub(1) {
        last if last == window.first => format!("step {last}"),
        last => format!("steps {} to {last}", window.first),
    }
}
