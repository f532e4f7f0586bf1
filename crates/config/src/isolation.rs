//! The config that isolates the parts of a past job: its variants on one rank, in each mode.

use std::fmt::Write;
use std::path::Path;

use expctl_settings::{Experiment, ISOLATION_SUFFIX, Launch, LearningSchedule, Measure, Mode, Slurm, Train, Trial};
use serde_json::Value as Json;

use crate::past_job::{PastJob, Point, recorded_value, sweep_row, toml_of, write_variant};
use crate::plan::UnknownName;
use crate::suggest::closest;

/// Keys that isolation sets; a sweep of the past job over one of them is left out.
pub const ISOLATED: [&str; 3] = [Train::MODE.name(), Launch::RANKS.name(), Launch::NODES.name()];
/// Keys over which a sweep of the past job is left out: those, the epochs, of which isolation runs none, and trials side by side.
const NOT_SWEPT: [&str; 7] = [
    ISOLATED[0],
    ISOLATED[1],
    ISOLATED[2],
    Train::EPOCHS.name(),
    Train::PATIENCE.name(),
    Slurm::PACK.name(),
    Slurm::PACK_GPU.name(),
];

/// A config as text, for [`load_text`](crate::load_text).
#[derive(Clone, Debug)]
pub struct Isolation {
    /// Name of the config: that of the past job's, and `_isolation`.
    pub name: String,
    /// TOML. Variants are written out line by line, so that a message about a line says whose it is.
    pub text: String,
    /// Which variant ran at which point of the past job's sweep, without the keys that isolation sets.
    pub ran: Vec<(String, Point)>,
}

/// The modes of an isolated job.
#[derive(Clone, Debug)]
pub struct Modes {
    modes: Vec<Mode>,
    left_out: Vec<(String, Mode)>,
}

impl Modes {
    /// All of them, from the data alone to the whole step.
    pub const ALL: [Mode; 4] = [Mode::Data, Mode::Forward, Mode::ForwardBackward, Mode::Train];

    /// One mode for every variant.
    pub fn one(mode: Mode) -> Self {
        Self { modes: vec![mode], left_out: Vec::new() }
    }

    /// Do not run `variant` in `mode`.
    pub fn leave_out(&mut self, variant: &str, mode: Mode) {
        self.left_out.push((variant.to_owned(), mode));
    }

    /// Whether no variant is left out of any mode.
    pub fn whole(&self) -> bool {
        self.left_out.is_empty()
    }

    fn runs(&self, variant: &str, mode: Mode) -> bool {
        !self.left_out.iter().any(|(name, left_out)| name == variant && *left_out == mode)
    }
}

impl Default for Modes {
    fn default() -> Self {
        Self { modes: Self::ALL.to_vec(), left_out: Vec::new() }
    }
}

impl Isolation {
    /// The variants of a job, or those that are named, on one rank in each of `modes`; everything else as it was resolved.
    /// A training run becomes as many steps as are usual. None for `repeats` keeps the job's.
    ///
    /// Files below `root`, the project, are named from there, so that ids do not depend on where it lies.
    ///
    /// # Errors
    /// A name that is none of the job's variants.
    pub fn new(
        root: &Path,
        past: PastJob<'_>,
        only: &[String],
        repeats: Option<u32>,
        modes: &Modes,
    ) -> Result<Self, UnknownName> {
        let variants = past.variants();
        if let Some(name) = only.iter().find(|name| !variants.contains(name)) {
            let near = closest(name, variants.iter().map(String::as_str)).map(str::to_owned);
            return Err(UnknownName { name: name.clone(), near, variants });
        }
        let chosen: Vec<&Trial> =
            past.trials.iter().filter(|trial| only.is_empty() || only.contains(&trial.variant)).collect();
        let mut ran: Vec<(String, Point)> = Vec::new();
        for trial in &chosen {
            let at = (trial.variant.clone(), residual(trial));
            if !ran.contains(&at) {
                ran.push(at);
            }
        }
        let name = match past.config.ends_with(ISOLATION_SUFFIX) {
            true => past.config.to_owned(),
            false => format!("{}{ISOLATION_SUFFIX}", past.config),
        };
        Ok(Self { name, text: text(root, past, &chosen, &ran, repeats, modes), ran })
    }

    /// Names of the variants, in order.
    pub fn variants(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for (variant, _) in &self.ran {
            if !names.contains(&variant.as_str()) {
                names.push(variant);
            }
        }
        names
    }
}

/// Name of the config of an isolated job in messages and the ledger, instead of a path.
pub fn isolation_path(job: u64) -> String {
    format!("job {job}, isolated")
}

/// Whether a config's path is such a name.
pub fn is_isolation(path: &Path) -> bool {
    let text = path.to_str().and_then(|text| text.strip_prefix("job ")?.strip_suffix(", isolated"));
    text.is_some_and(|number| number.parse::<u64>().is_ok())
}

/// The trial's point of the sweep, without the keys that isolation sets.
fn residual(trial: &Trial) -> Point {
    trial
        .point
        .iter()
        .filter(|(key, _)| !NOT_SWEPT.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn text(
    root: &Path,
    past: PastJob<'_>,
    chosen: &[&Trial],
    ran: &[(String, Point)],
    repeats: Option<u32>,
    modes: &Modes,
) -> String {
    let mut out = format!(
        "# Job {} (config {}) on one rank: the data alone, then the forward pass, the backward pass and the optimizer with it.\n",
        past.job, past.config
    );
    let mut points: Vec<&Point> = Vec::new();
    for (_, point) in ran {
        if !points.contains(&point) {
            points.push(point);
        }
    }
    past.write_job_settings(&mut out, chosen, |key| {
        let is = |other: &str| key == other;
        if is(&Experiment::TITLE) {
            Some(Json::from(format!("{} (job {}, isolated)", past.title(), past.job)))
        } else if is(&Experiment::DESCRIPTION) {
            Some(Json::from(
                "What do the data, the forward pass, the backward pass and the optimizer cost on one rank?",
            ))
        } else if is(&Experiment::MEASURES) {
            Some(Json::from(vec!["each variant alone, with more of the step in each mode"]))
        } else if is(&Experiment::DOES_NOT_MEASURE) {
            Some(Json::from(vec!["more than one rank, and with it the exchange of gradients"]))
        } else {
            None
        }
    });
    let mut written: Vec<&str> = Vec::new();
    for trial in chosen {
        if written.contains(&trial.variant.as_str()) {
            continue;
        }
        written.push(&trial.variant);
        let value = |key: &str, value: Json| isolated_value(key, root, trial, value, repeats);
        write_variant(&mut out, (&trial.variant, &trial.method), trial, &residual(trial), value);
    }
    past.write_comparison(&mut out, &written);
    let (run, names): (Vec<Mode>, Vec<&str>) = modes
        .modes
        .iter()
        .filter(|mode| written.iter().any(|variant| modes.runs(variant, **mode)))
        .map(|mode| (*mode, mode.name()))
        .unzip();
    let _ = writeln!(out, "\nsweep.grid.\"train.mode\" = {}", toml_of(&Json::from(names)));
    if points.iter().any(|point| !point.is_empty()) {
        let rows: Vec<String> = points.iter().map(|point| sweep_row(point)).collect();
        let _ = writeln!(out, "sweep.list = [{}]", rows.join(", "));
    }
    let mut left_out = Vec::new();
    for variant in &written {
        for mode in run.iter().filter(|mode| !modes.runs(variant, **mode)) {
            left_out.push(format!("{{ variant = \"{variant}\", \"train.mode\" = \"{}\" }}", mode.name()));
        }
    }
    if !left_out.is_empty() {
        let _ = writeln!(out, "sweep.exclude = [{}]", left_out.join(", "));
    }
    out
}

/// The value of a key in the isolated job; none where the config does not say it.
fn isolated_value(key: &str, root: &Path, trial: &Trial, value: Json, repeats: Option<u32>) -> Option<Json> {
    let trains_epochs = trial.settings.train.epochs > 0;
    let is = |other: &str| key == other;
    if is(&Train::MODE) {
        // The sweep says it.
        return None;
    }
    // Trials beside it would slow it.
    if is(&Launch::RANKS) || is(&Launch::NODES) || is(&Slurm::PACK) {
        return Some(Json::from(1));
    }
    if is(&Slurm::PACK_GPU) {
        return None;
    }
    if is(&Train::EPOCHS) || is(&Train::PATIENCE) {
        return Some(Json::from(0));
    }
    if is(&Measure::STEPS) && trains_epochs {
        // A training run of epochs gets the default number of steps.
        return None;
    }
    // The schedule waits for validations, of which there are none.
    let waits = trial.settings.train.schedule == LearningSchedule::Plateau;
    if trains_epochs && (is(&Train::SCHEDULE_PATIENCE) || is(&Train::SCHEDULE) && waits) {
        return None;
    }
    match repeats.filter(|_| is(&Measure::REPEATS)) {
        Some(repeats) => Some(Json::from(repeats)),
        None => recorded_value(key, root, trial, value),
    }
}
