//! A training run around its steps: epochs, validation, weights, early stopping. Invariants: no step's time includes any of it; every figure is over the samples of all ranks, so all ranks decide alike; a run that was stopped and resumes from a checkpoint
//! leaves the same learning curve as one that was not.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use expctl_ledger::{
    AttemptDir, JobDir, LearningRecord, LedgerError, StepRecord, Validation, WeightsDir, append_learning, steps_before,
};
use expctl_settings::{Monitored, Settings};
use graph_loader::GraphBatcher;
use loader_core::{Loader, LoaderOptions};
use tch::Tensor;
use torch_dist::{DistError, ProcessGroup};

use crate::activity::Phase;
use crate::device_masks::DeviceMaskMaker;
use crate::error::RankError;
use crate::metrics::{RegressionMetrics, gather_predictions};
use crate::progress::Progress;
use crate::session::Session;
use crate::state::{all_finite, write_state};
use crate::trainer::Trainer;

/// The epochs of a training run.
pub struct TrainingRun {
    progress: Progress,
    batches_per_epoch: u64,
    losses: EpochLoss,
    /// `None` where the run is not divided into epochs.
    epochs: Option<Epochs>,
}

/// The epochs of a trial, and what happens at the end of each.
pub struct Epochs {
    /// Number of epochs.
    pub count: u64,
    /// `None` where nothing is validated.
    pub validator: Option<Validator>,
}

/// Whether training goes on after an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochOutcome {
    Continue,
    /// The monitored figure has stopped improving.
    Stop,
}

impl TrainingRun {
    /// A run that has made `progress`.
    pub fn new(progress: Progress, batches_per_epoch: u64, epochs: Option<Epochs>) -> Self {
        Self { progress, batches_per_epoch, losses: EpochLoss::default(), epochs }
    }

    /// The attempt resumes at `first`: the losses of the epoch's earlier steps are read from the journals.
    ///
    /// # Errors
    /// A journal cannot be read, or lacks a step.
    pub fn resume(&mut self, first: u64, attempt: &AttemptDir, rank: u32) -> Result<(), LedgerError> {
        if self.epochs.is_none() {
            return Ok(());
        }
        let begin = first - first % self.batches_per_epoch;
        self.losses = EpochLoss::from_steps(&steps_before(&earlier_attempts(attempt)?, rank, begin, first)?);
        Ok(())
    }

    /// The state that a checkpoint contains besides the trainer's.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        self.progress.state()
    }

    /// A step on this many samples had this loss.
    pub fn record_loss(&mut self, loss: f64, samples: u64) {
        self.losses.add(loss, samples);
    }

    /// Whether `step` was the last one of an epoch.
    pub fn ends_epoch(&self, step: u64) -> bool {
        self.epochs.is_some() && (step + 1).is_multiple_of(self.batches_per_epoch)
    }

    /// End the epoch whose last step was `step`: all ranks come here together, and leave together.
    ///
    /// # Errors
    /// A batch cannot be validated, a peer is gone, a file cannot be written, or the figures are not finite.
    pub fn end_epoch(
        &mut self,
        step: u64,
        trainer: &mut Trainer,
        session: &Session<'_>,
    ) -> Result<EpochOutcome, RankError> {
        let Some(epochs) = &self.epochs else { return Ok(EpochOutcome::Continue) };
        let settings = session.settings();
        let epoch = self.progress.first_epoch + step / self.batches_per_epoch;
        let done = step / self.batches_per_epoch + 1;
        session.activity.enter(Phase::Rendezvous);
        let train_loss = self.losses.take_mean(session.group)?;
        let learning_rate = trainer.learning_rate();
        let last = done == epochs.count;
        let due = last || done.is_multiple_of(settings.train.validate_every.max(1));
        let validation = match epochs.validator.as_ref().filter(|_| due) {
            Some(validator) => Some(validator.run(trainer, session)?),
            None => None,
        };
        let mut best = false;
        if let Some(validation) = &validation {
            if !validation.loss.is_finite() || !validation.mse.is_finite() {
                return Err(RankError::ValidationLossNotFinite { epoch, loss: validation.loss });
            }
            let figure = monitored_figure(validation, settings);
            best = self.progress.record_validation(figure, settings.train.monitor);
            // A correlation that does not exist counts as one that is not better.
            trainer.report_validation(figure.unwrap_or(f64::NAN));
        }
        let stopped = validation.is_some() && !last && self.progress.is_exhausted(settings.train.patience);
        self.progress.next_epoch = epoch + 1;
        let steps = self.progress.steps_before + step + 1;
        session.activity.enter(Phase::Rendezvous);
        trainer.share_state(session.group)?;
        if session.env.rank == 0 {
            session.activity.enter(Phase::Checkpoint);
            self.write_weights(steps, best, trainer, session)?;
            let record = LearningRecord { epoch, step: steps, learning_rate, train_loss, validation, best, stopped };
            append_learning(&session.attempt.learning_path(), &record)?;
            tracing::info!("{}", log_line(&record));
        }
        // The others' next step must not wait for what rank 0 writes.
        session.activity.enter(Phase::Rendezvous);
        session.group.barrier()?;
        Ok(if stopped { EpochOutcome::Stop } else { EpochOutcome::Continue })
    }

    /// Write `last.safetensors`, and `best.safetensors` if this was the best epoch.
    fn write_weights(&self, steps: u64, best: bool, trainer: &Trainer, session: &Session<'_>) -> Result<(), RankError> {
        let mut state = trainer.state();
        // Before either file is written: the weights of the one are in the other.
        all_finite(&state)?;
        if best {
            replace_weights(session.attempt, WeightsDir::best_path, &trainer.weights())?;
        }
        state.extend(self.progress.state_at_end(steps));
        replace_weights(session.attempt, WeightsDir::last_path, &state)
    }
}

/// Replace a file of the trial's weights by these tensors.
fn replace_weights(
    attempt: &AttemptDir,
    path: impl Fn(&WeightsDir) -> PathBuf,
    tensors: &[(String, Tensor)],
) -> Result<(), RankError> {
    if attempt.is_closed() {
        return Err(RankError::Closed);
    }
    let weights = WeightsDir::new(attempt);
    let written: Result<(), LedgerError> = weights.replace(&path(&weights), |to| write_state(to, tensors));
    Ok(written?)
}

/// The figure that `train.monitor` names.
fn monitored_figure(validation: &Validation, settings: &Settings) -> Option<f64> {
    match settings.train.monitor {
        Monitored::Loss => Some(validation.loss),
        Monitored::Pearson => validation.pearson,
    }
}

/// The earlier attempts of this one's trial, oldest first.
fn earlier_attempts(attempt: &AttemptDir) -> Result<Vec<AttemptDir>, LedgerError> {
    let trial = attempt.path().parent();
    let Some((job, trial)) = trial.and_then(|path| path.parent().zip(path.file_name())) else { return Ok(Vec::new()) };
    let mut attempts = JobDir::new(job).attempts(&trial.to_string_lossy())?;
    attempts.retain(|other| other.number() < attempt.number());
    Ok(attempts)
}

fn log_line(record: &LearningRecord) -> String {
    let LearningRecord { epoch, train_loss, validation, best, stopped, .. } = record;
    let validation = validation.as_ref().map_or_else(String::new, |v| {
        let pearson = v.pearson.map_or_else(|| "none".to_owned(), |pearson| format!("{pearson:.4}"));
        format!(", validation loss {:.6}, Pearson {pearson}", v.loss)
    });
    let mark = if *best { ", the best so far" } else { "" };
    let end = if *stopped { "; training ends early" } else { "" };
    format!("epoch {epoch}: training loss {train_loss:.6}{validation}{mark}{end}")
}

/// Sum of the losses of an epoch so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct EpochLoss {
    sum: f64,
    samples: u64,
}

impl EpochLoss {
    /// The losses of these steps.
    fn from_steps(steps: &[StepRecord]) -> Self {
        let mut all = Self::default();
        for step in steps {
            all.add(step.loss.unwrap_or(f64::NAN), step.samples);
        }
        all
    }

    /// Add a batch.
    fn add(&mut self, loss: f64, samples: u64) {
        self.sum += loss * samples as f64;
        self.samples += samples;
    }

    /// Mean over the samples of all ranks; the sum restarts for the next epoch.
    fn take_mean(&mut self, group: &ProcessGroup) -> Result<f64, DistError> {
        let Self { sum, samples } = std::mem::take(self);
        let mut both = Tensor::from_slice(&[sum, samples as f64]);
        group.all_reduce_sum(&mut both)?;
        Ok(both.double_value(&[0]) / both.double_value(&[1]))
    }
}

/// Predicts the validation set, each rank its share: every sample once, and none to fill the ranks up.
pub struct Validator {
    /// `None` where this rank has no share.
    share: Option<ValidationShare>,
    masks: Option<Arc<DeviceMaskMaker>>,
}

/// A rank's batches of the validation set.
pub struct ValidationShare {
    pub builder: GraphBatcher,
    pub options: LoaderOptions,
}

impl Validator {
    /// A validator of these batches, for which the step makes `masks`, if any.
    pub fn new(share: Option<ValidationShare>, masks: Option<Arc<DeviceMaskMaker>>) -> Self {
        Self { share, masks }
    }

    /// Validate once; all ranks together.
    ///
    /// # Errors
    /// A batch cannot be loaded or predicted, or a peer is gone.
    pub fn run(&self, trainer: &mut Trainer, session: &Session<'_>) -> Result<Validation, RankError> {
        let from = Instant::now();
        trainer.set_training(false)?;
        let (mut predictions, mut labels) = (Vec::new(), Vec::new());
        if let Some(ValidationShare { builder, options }) = &self.share {
            session.activity.enter(Phase::Validate);
            let mut loader = Loader::start(builder.clone(), *options)?;
            while let Some(loaded) = loader.next_batch() {
                let batch = loaded?.batch;
                let masks = self.masks.as_ref().map(|masks| masks.make(&batch.common)).transpose()?;
                let (batch_predictions, batch_labels) =
                    trainer.evaluate(&batch, masks.as_deref().unwrap_or_default())?;
                predictions.extend(batch_predictions);
                labels.extend(batch_labels);
                drop(masks);
                loader.recycle(batch);
                session.activity.enter(Phase::Validate);
            }
        }
        trainer.set_training(true)?;
        session.activity.enter(Phase::Rendezvous);
        let (predictions, labels) = gather_predictions(session.group, &predictions, &labels)?;
        let RegressionMetrics { samples, mse, pearson, spearman } = RegressionMetrics::new(&predictions, &labels);
        let loss = trainer.prediction_loss(&predictions, &labels)?;
        Ok(Validation { samples, loss, mse, pearson, spearman, seconds: from.elapsed().as_secs_f64() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_are_read_back_sum_up_to_the_same_bits() {
        let steps: Vec<StepRecord> = (0..50)
            .map(|i| StepRecord {
                loss: Some(1.0 / f64::from(i + 3)),
                samples: 7 + i as u64 % 2,
                ..StepRecord::default()
            })
            .collect();
        let mut whole = EpochLoss::default();
        steps.iter().for_each(|s| whole.add(s.loss.unwrap(), s.samples));
        let mut resumed = EpochLoss::from_steps(&steps[..20]);
        steps[20..].iter().for_each(|s| resumed.add(s.loss.unwrap(), s.samples));
        assert_eq!(whole, resumed);
        assert_eq!(whole.samples, 50 * 7 + 25);
    }
}
