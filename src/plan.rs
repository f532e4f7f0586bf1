//! Views of a plan for the command line: its trials, upper bounds of their cost, and their models.
//!
//! Invariant: a cost is a bound from what is asked for, never a forecast, and says so.

use std::fmt::{self, Display};

use expctl_config::{ConfErrors, PastJob, Plan, UnknownName};
use expctl_ledger::JobRecord;
use expctl_settings::{NO_DATA_SET, PackGpu, Settings, Slurm, StoreKind, TRIAL_SCHEMA_VERSION, Trial, model_remarks};
use expctl_text::Table;
use expctl_text::format::{MISSING, count, thousands};

use crate::exit::{Exit, Failure};

impl From<ConfErrors> for Failure {
    fn from(errors: ConfErrors) -> Self {
        Self::rendered(Exit::Config, errors)
    }
}

impl From<UnknownName> for Failure {
    fn from(unknown: UnknownName) -> Self {
        Self::new(Exit::Usage, &unknown).hint(format_args!("variants are {}", unknown.variants.join(", ")))
    }
}

/// The job that running a plan would make. What only submitting knows is left open: the job id and the time are 0, the commit is
/// unknown.
pub fn job_record(plan: &Plan, backend: &str) -> JobRecord {
    JobRecord {
        schema: TRIAL_SCHEMA_VERSION,
        job: 0,
        backend: backend.to_owned(),
        config: plan.config.clone(),
        study: plan.study.clone(),
        config_path: plan.path.clone(),
        overrides: plan.overrides.clone(),
        submitted: 0,
        commit: None,
        expctl_version: env!("CARGO_PKG_VERSION").to_owned(),
        baseline: plan.baseline.clone(),
        estimators: plan.estimators.clone(),
        verifies: None,
        search: None,
        reruns: None,
        trials: plan.trials.clone(),
    }
}

/// A recorded job, for configs that are derived from it.
pub fn past_job(record: &JobRecord) -> PastJob<'_> {
    PastJob {
        job: record.job,
        config: &record.config,
        baseline: record.baseline.as_deref(),
        estimators: &record.estimators,
        trials: &record.trials,
    }
}

/// The trials as a table, a row each.
///
/// Without a sweep there is no column for its points, none for the store where all trials read the base store, none for the model where no
/// step computes one, and none for trials side by side where each runs alone.
pub fn table(plan: &Plan) -> Table {
    let swept = plan.trials.iter().any(|trial| !trial.point.is_empty());
    let mut header = vec!["Trial", "Variant"];
    if swept {
        header.push("Point");
    }
    let of_base = |trial: &Trial| {
        let settings = &trial.settings;
        settings.pipeline.store == StoreKind::Json && !settings.reads_array() && settings.data.set != NO_DATA_SET
    };
    let stores = plan.trials.iter().any(|trial| !of_base(trial));
    let repeat = header.len();
    header.push("Repeat");
    header.extend(stores.then_some("Store"));
    header.extend(["Processor", "Mode"]);
    let models = plan.trials.iter().any(|trial| trial.settings.computes_model());
    header.extend(models.then_some("Model"));
    let first_number = header.len();
    header.extend(["Batch", "Workers", "Ranks"]);
    let packs = plan.trials.iter().any(|trial| trial.settings.slurm.pack > 1);
    header.extend(packs.then_some("Side by side"));
    header.extend(["Warm-up", "Steps"]);
    let numbers = std::iter::once(repeat).chain(first_number..header.len());
    let mut table = Table::new(header.clone()).right(numbers);
    for trial in &plan.trials {
        let s = &trial.settings;
        let mut row = vec![trial.id.clone(), trial.variant.clone()];
        if swept {
            let point: Vec<String> = trial.point.iter().map(|(k, v)| format!("{k}={v}")).collect();
            row.push(point.join(", "));
        }
        row.push(trial.repeat.to_string());
        let store = match s.data.set.as_str() {
            NO_DATA_SET => NO_DATA_SET,
            _ if s.reads_array() => s.array.format.name(),
            _ => s.pipeline.store.name(),
        };
        row.extend(stores.then(|| store.to_owned()));
        row.extend([
            if s.runs_command() { "command" } else { s.pipeline.processor.name() }.to_owned(),
            s.train.mode.name().to_owned(),
        ]);
        row.extend(models.then(|| model_cell(trial)));
        row.extend([s.loader.batch_size.to_string(), s.loader.workers.to_string(), s.launch.ranks.to_string()]);
        row.extend(packs.then(|| s.slurm.pack.to_string()));
        row.extend([s.measure.warmup.to_string(), s.measure.steps.to_string()]);
        table.row(row);
    }
    table
}

/// The model that the steps of a trial compute, marked where nothing said which.
fn model_cell(trial: &Trial) -> String {
    match (trial.settings.computes_model(), trial.default_model) {
        (false, _) => MISSING.to_owned(),
        (true, false) => trial.settings.model.words(),
        (true, true) => format!("{} (default)", trial.settings.model.words()),
    }
}

/// The most that Slurm may charge for a plan: every trial with all its CPUs up to its time limit. A task that runs trials side by side asks
/// for the CPUs of all of them, also where fewer are left.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Cost {
    /// Number of trials.
    pub trials: u64,
    /// Most trials that run side by side; none where each runs alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side_by_side: Option<u64>,
    /// Fewest and most ranks of a trial.
    pub ranks: (u64, u64),
    /// Fewest and most processors of a trial.
    pub cpus: (u64, u64),
    /// Fewest and most GPUs of a trial.
    pub gpus: (u64, u64),
    /// Smallest and largest memory of a trial with all its ranks, MiB. `None`: a trial sets none, and the cluster's default applies.
    pub memory_mib: Option<(u64, u64)>,
    /// Smallest and largest limit of the batches that a rank holds, MiB; none where a trial has none.
    pub buffer_mib: Option<(u64, u64)>,
    /// Shortest and longest time limit, minutes; none where a trial has none.
    pub time_min: Option<(u64, u64)>,
    /// Processor hours of all trials, at most; none without time limits, or where whole nodes are asked for.
    pub cpu_hours_at_most: Option<f64>,
    /// GPU hours of all trials, at most; none where processor hours are, and where no GPU is asked for.
    pub gpu_hours_at_most: Option<f64>,
    /// A trial asks for whole nodes, whose size the config does not know.
    pub exclusive: bool,
}

/// Upper bounds of a plan's cost on Slurm; none for a plan without trials.
pub fn cost(plan: &Plan) -> Option<Cost> {
    let trials = &plan.trials;
    let span = |of: &dyn Fn(&Trial) -> u64| Some((trials.iter().map(of).min()?, trials.iter().map(of).max()?));
    let ranks = |trial: &Trial| u64::from(trial.settings.launch.ranks);
    let cpus = |trial: &Trial| ranks(trial) * u64::from(trial.settings.slurm.cpus_per_rank);
    let gpus = |trial: &Trial| ranks(trial) * u64::from(trial.settings.slurm.gpus_per_rank);
    let minutes = |trial: &Trial| trial.settings.slurm.time_min;
    // 0 stands for no limit of the config.
    let limit = |of: &dyn Fn(&Trial) -> u64| span(of).filter(|(least, _)| *least > 0);
    let time_min = limit(&minutes);
    let exclusive = trials.iter().any(|trial| trial.settings.slurm.exclusive);
    let empty = empty_lanes(trials);
    let hours = |of: &dyn Fn(&Trial) -> f64| {
        let known = time_min.is_some() && !exclusive;
        let of_lane = |trial: &Trial| of(trial) * minutes(trial) as f64 / 60.0;
        known.then(|| trials.iter().chain(empty.iter().copied()).map(of_lane).sum::<f64>())
    };
    let gpus_of_lane = |trial: &Trial| match trial.settings.slurm {
        Slurm { pack, pack_gpu: PackGpu::Shared, .. } => gpus(trial) as f64 / f64::from(pack),
        _ => gpus(trial) as f64,
    };
    Some(Cost {
        trials: trials.len() as u64,
        side_by_side: span(&|trial| u64::from(trial.settings.slurm.pack))
            .map(|(_, most)| most)
            .filter(|most| *most > 1),
        ranks: span(&ranks)?,
        cpus: span(&cpus)?,
        gpus: span(&gpus)?,
        memory_mib: limit(&|trial| trial.settings.slurm.memory_mib),
        buffer_mib: limit(&|trial| trial.settings.loader.buffer_mib),
        time_min,
        cpu_hours_at_most: hours(&|trial| cpus(trial) as f64),
        gpu_hours_at_most: hours(&gpus_of_lane).filter(|hours| *hours > 0.0),
        exclusive,
    })
}

/// The trials of a plan that run side by side: the first one of each row, and how many repeats that ask for the same it has.
fn packed_rows(trials: &[Trial]) -> Vec<(&Trial, usize)> {
    let asks_for = |trial: &Trial| {
        let Settings { launch, slurm, .. } = &trial.settings;
        (trial.settings_hash().to_owned(), launch.ranks, slurm.clone(), trial.settings.can_resume())
    };
    let mut alike: Vec<(&Trial, usize)> = Vec::new();
    for trial in trials.iter().filter(|trial| trial.settings.slurm.pack > 1) {
        match alike.iter_mut().find(|(first, _)| asks_for(first) == asks_for(trial)) {
            Some((_, n)) => *n += 1,
            None => alike.push((trial, 1)),
        }
    }
    alike
}

/// A trial for each lane that a task asks resources for and no trial of the plan runs in.
fn empty_lanes(trials: &[Trial]) -> Vec<&Trial> {
    let mut empty = Vec::new();
    for (trial, n) in packed_rows(trials) {
        let pack = trial.settings.slurm.pack as usize;
        empty.extend(std::iter::repeat_n(trial, n.next_multiple_of(pack) - n));
    }
    empty
}

impl Cost {
    /// The same for trials that run on this machine, where nothing is charged and no limit holds.
    pub fn on_this_machine(&self) -> String {
        let buffer = self.buffer_mib.map(|mib| format!(", each rank with at most {} MiB of batches", range(mib)));
        let order = if self.side_by_side.is_some() { "" } else { ", one after another" };
        format!("{} on this machine{order}{}", self.shape(), buffer.unwrap_or_default())
    }

    /// `6 trials × 2 ranks`, `6 trials × 2 ranks, up to 3 side by side`.
    fn shape(&self) -> String {
        let (fewest, most) = self.ranks;
        let ranks = if fewest == most { count(most, "rank") } else { format!("{fewest} to {most} ranks") };
        let beside = self.side_by_side.map(|most| format!(", up to {most} side by side")).unwrap_or_default();
        format!("{} × {ranks}{beside}", count(self.trials, "trial"))
    }
}

/// `2`, `2 to 4`.
fn range((low, high): (u64, u64)) -> String {
    if low == high { thousands(low) } else { format!("{} to {}", thousands(low), thousands(high)) }
}

/// One line: `6 trials × 2 ranks: at most 24.0 GPU h, 96.0 CPU h (time limit 120 min)`.
impl Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.shape())?;
        let limit = self.time_min.map_or_else(
            || "no time limit in the config: the partition's holds".to_owned(),
            |limit| format!("time limit {} min", range(limit)),
        );
        let memory = self.memory_mib.map(|mib| format!(", {} MiB of memory per trial", range(mib))).unwrap_or_default();
        if let Some(cpu_hours) = self.cpu_hours_at_most {
            let gpu_hours = self.gpu_hours_at_most.map(|hours| format!("{} GPU h, ", figure(hours)));
            return write!(f, "at most {}{} CPU h ({limit}{memory})", gpu_hours.unwrap_or_default(), figure(cpu_hours));
        }
        let gpus = if self.gpus.1 > 0 { format!("{} GPUs and ", range(self.gpus)) } else { String::new() };
        let nodes = if self.exclusive { "whole nodes with at least " } else { "" };
        write!(f, "{nodes}{gpus}{} CPUs per trial ({limit}{memory})", range(self.cpus))
    }
}

/// Hours with the digits that matter for a bill.
fn figure(hours: f64) -> String {
    if hours < 10.0 { format!("{hours:.2}") } else { format!("{hours:.1}") }
}

/// The model of a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantModel {
    /// Name of the variant.
    pub variant: String,
    /// Its model, or models where points of a sweep have several: `lazy, replicated, 1,781,187 parameters (derived)`. The number
    /// follows from the settings, and is left out where these do not tell it. Empty where no trial of the variant computes a model.
    pub words: String,
    /// Whether nothing said which model, so that it is the one by default.
    pub by_default: bool,
}

/// The model of each variant of a plan, in the order of the variants. `genes` tells how many genes the graph has that a trial with these
/// settings reads.
pub fn models(plan: &Plan, genes: &mut dyn FnMut(&Settings) -> Option<u64>) -> Vec<VariantModel> {
    plan.variants().into_iter().map(|variant| model_of_variant(plan, variant, genes)).collect()
}

fn model_of_variant(plan: &Plan, variant: String, genes: &mut dyn FnMut(&Settings) -> Option<u64>) -> VariantModel {
    // Repeats share their model.
    let computes = |trial: &&Trial| trial.variant == variant && trial.repeat == 1 && trial.settings.computes_model();
    let trials: Vec<&Trial> = plan.trials.iter().filter(computes).collect();
    let mut models: Vec<String> = Vec::new();
    for trial in &trials {
        let model = &trial.settings.model;
        let count = genes(&trial.settings).and_then(|genes| model.parameter_count(genes));
        let words = match count {
            Some(count) => format!("{}, {} parameters (derived)", model.words(), thousands(count)),
            None => model.words(),
        };
        if !models.contains(&words) {
            models.push(words);
        }
    }
    VariantModel { words: models.join("; "), by_default: trials.iter().any(|trial| trial.default_model), variant }
}

/// Remarks on the models of a plan, a line each: the variants, and a sentence about them.
pub fn remarks(plan: &Plan) -> Vec<String> {
    let trials = plan.trials.iter();
    by_variants(trials.flat_map(|trial| model_remarks(&trial.settings).into_iter().map(move |said| (trial, said))))
}

/// Warnings of trials that are to run side by side and of which fewer will, a line each: the variants, and a sentence about them.
pub fn pack_warnings(plan: &Plan) -> Vec<String> {
    let rows = packed_rows(&plan.trials);
    by_variants(rows.into_iter().filter_map(|(trial, n)| Some((trial, pack_warning(trial.settings.slurm.pack, n)?))))
}

/// What `repeats` of a trial do that do not fill packs of `pack`; `None` if they do.
fn pack_warning(pack: u32, repeats: usize) -> Option<String> {
    let (pack, repeats) = (u64::from(pack), repeats as u64);
    let left = repeats.checked_rem(pack).filter(|left| *left > 0)?;
    let asks = format!("on Slurm the task asks for the resources of {pack} trials all the same");
    Some(if repeats < pack {
        format!(
            "too few repeats ({repeats}) for {pack} side by side (slurm.pack), and {asks}; set measure.repeats to a multiple of {pack}, or \
             slurm.pack to {repeats}"
        )
    } else {
        let full = repeats - left;
        format!(
            "{repeats} repeats are no whole packs of {pack} (slurm.pack): a rest of {left} runs with fewer side by side, and {asks}; set \
             measure.repeats to {full} or {}",
            full + pack
        )
    })
}

/// Sentences about trials, each once, behind the variants of its trials.
fn by_variants<'a>(all: impl Iterator<Item = (&'a Trial, String)>) -> Vec<String> {
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    for (trial, said) in all {
        let known = found.iter().position(|(sentence, _)| *sentence == said);
        let known = known.unwrap_or_else(|| {
            found.push((said, Vec::new()));
            found.len() - 1
        });
        let variants = &mut found[known].1;
        if !variants.contains(&trial.variant.as_str()) {
            variants.push(&trial.variant);
        }
    }
    found.into_iter().map(|(said, variants)| format!("{}: {said}", variants.join(", "))).collect()
}
