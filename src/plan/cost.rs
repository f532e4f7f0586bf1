//! What a plan may cost. Invariant: it is a bound from what is asked for, never a forecast, and says so.

use std::fmt::{self, Display};

use expctl_record::Trial;
use expctl_text::format::count;

use super::plan_type::Plan;

/// What Slurm may charge for a plan, at most: every trial with all its processors up to its time limit.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Cost {
    /// Number of trials.
    pub trials: u64,
    /// Fewest and most ranks of a trial.
    pub ranks: (u64, u64),
    /// Fewest and most processors of a trial.
    pub cpus: (u64, u64),
    /// Fewest and most GPUs of a trial.
    pub gpus: (u64, u64),
    /// Shortest and longest time limit, minutes; none where a trial has none.
    pub time_min: Option<(u64, u64)>,
    /// Processor hours of all trials, at most; none without time limits, or where whole nodes are asked for.
    pub cpu_hours_at_most: Option<f64>,
    /// GPU hours of all trials, at most; none where processor hours are, and where no GPU is asked for.
    pub gpu_hours_at_most: Option<f64>,
    /// A trial asks for whole nodes, whose size the config does not know.
    pub exclusive: bool,
}

/// What is known of a plan's cost on Slurm. None for a plan without trials.
pub fn cost(plan: &Plan) -> Option<Cost> {
    let trials = &plan.trials;
    let span = |of: &dyn Fn(&Trial) -> u64| Some((trials.iter().map(of).min()?, trials.iter().map(of).max()?));
    let ranks = |trial: &Trial| u64::from(trial.settings.launch.ranks);
    let cpus = |trial: &Trial| ranks(trial) * u64::from(trial.settings.slurm.cpus_per_rank);
    let gpus = |trial: &Trial| ranks(trial) * u64::from(trial.settings.slurm.gpus_per_rank);
    let minutes = |trial: &Trial| trial.settings.slurm.time_min;
    let time_min = span(&minutes).filter(|(shortest, _)| *shortest > 0);
    let exclusive = trials.iter().any(|trial| trial.settings.slurm.exclusive);
    let hours = |of: &dyn Fn(&Trial) -> u64| {
        let known = time_min.is_some() && !exclusive;
        known.then(|| trials.iter().map(|trial| of(trial) as f64 * minutes(trial) as f64 / 60.0).sum::<f64>())
    };
    Some(Cost {
        trials: trials.len() as u64,
        ranks: span(&ranks)?,
        cpus: span(&cpus)?,
        gpus: span(&gpus)?,
        time_min,
        cpu_hours_at_most: hours(&cpus),
        gpu_hours_at_most: hours(&gpus).filter(|hours| *hours > 0.0),
        exclusive,
    })
}

impl Cost {
    /// The same for trials that run on this machine, where nothing is charged and no limit holds.
    pub fn on_this_machine(&self) -> String {
        format!("{} on this machine, one after another", self.shape())
    }

    /// `6 trials × 2 ranks`.
    fn shape(&self) -> String {
        let (fewest, most) = self.ranks;
        let ranks = if fewest == most { count(most, "rank") } else { format!("{fewest} to {most} ranks") };
        format!("{} × {ranks}", count(self.trials, "trial"))
    }
}

/// One line: `6 trials × 2 ranks: at most 24.0 GPU h, 96.0 CPU h (time limit 120 min)`.
impl Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |(low, high): (u64, u64)| if low == high { low.to_string() } else { format!("{low} to {high}") };
        write!(f, "{}: ", self.shape())?;
        let limit = self.time_min.map_or_else(
            || "no time limit in the config: the partition's holds".to_owned(),
            |limit| format!("time limit {} min", range(limit)),
        );
        if let Some(cpu_hours) = self.cpu_hours_at_most {
            let gpu_hours = self.gpu_hours_at_most.map(|hours| format!("{} GPU h, ", figure(hours)));
            return write!(f, "at most {}{} CPU h ({limit})", gpu_hours.unwrap_or_default(), figure(cpu_hours));
        }
        let gpus = if self.gpus.1 > 0 { format!("{} GPUs and ", range(self.gpus)) } else { String::new() };
        let nodes = if self.exclusive { "whole nodes with at least " } else { "" };
        write!(f, "{nodes}{gpus}{} CPUs per trial ({limit})", range(self.cpus))
    }
}

/// Hours with the digits that matter for a bill.
fn figure(hours: f64) -> String {
    if hours < 10.0 { format!("{hours:.2}") } else { format!("{hours:.1}") }
}
