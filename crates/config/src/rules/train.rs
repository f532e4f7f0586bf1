//! Training: the schedule of the learning rate, and accumulation of gradients.

use expctl_settings::{LearningSchedule, Train};

use super::Judge;
use crate::config::Values;
use crate::problem::Problem;

impl Judge<'_> {
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
}
