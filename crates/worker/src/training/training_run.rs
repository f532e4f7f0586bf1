use expctl_record::{
    AttemptDir, JobDir, LearningRecord, Monitored, RecordError, Settings, Validation, append_learning, steps_before,
};
use tch::Tensor;

use super::epoch_loss::EpochLoss;
use super::weights::{Which, write_weights};
use super::{Progress, Validator};
use crate::activity::Phase;
use crate::session::Session;
use crate::stop::Stop;
use crate::trainer::{ADVICE, Trainer, all_finite};

/// The epochs of a training run.
pub(crate) struct TrainingRun {
    progress: Progress,
    batches_per_epoch: u64,
    losses: EpochLoss,
    /// None where the run is not divided into epochs.
    epochs: Option<Epochs>,
}

/// What happens at the end of an epoch.
pub(crate) struct Epochs {
    /// Of this trial.
    pub(crate) count: u64,
    /// None where nothing is validated.
    pub(crate) validator: Option<Validator>,
}

/// Whether training goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    GoOn,
    /// It stopped getting better.
    Over,
}

impl TrainingRun {
    /// Training that has come to `progress`.
    pub(crate) fn new(progress: Progress, batches_per_epoch: u64, epochs: Option<Epochs>) -> Self {
        Self { progress, batches_per_epoch, losses: EpochLoss::default(), epochs }
    }

    /// The attempt goes on at `first`: what the epoch's earlier steps lost is in the journals.
    ///
    /// # Errors
    /// A journal cannot be read, or lacks a step.
    pub(crate) fn resume(&mut self, first: u64, attempt: &AttemptDir, rank: u32) -> Result<(), RecordError> {
        if self.epochs.is_none() {
            return Ok(());
        }
        let begin = first - first % self.batches_per_epoch;
        self.losses = EpochLoss::of(&steps_before(&earlier(attempt)?, rank, begin, first)?);
        Ok(())
    }

    /// What goes into a checkpoint beside the trainer's state.
    pub(crate) fn state(&self) -> Vec<(String, Tensor)> {
        self.progress.state()
    }

    /// A step of this many samples had this loss.
    pub(crate) fn stepped(&mut self, loss: f64, samples: u64) {
        self.losses.add(loss, samples);
    }

    /// Whether `step` was the last one of an epoch that is to be concluded.
    pub(crate) fn ends_epoch(&self, step: u64) -> bool {
        self.epochs.is_some() && (step + 1).is_multiple_of(self.batches_per_epoch)
    }

    /// Conclude the epoch whose last step was `step`: all ranks come here together, and leave together.
    ///
    /// # Errors
    /// A batch cannot be validated, a peer is gone, a file cannot be written, or the figures are no numbers any more.
    pub(crate) fn end_epoch(
        &mut self,
        step: u64,
        trainer: &mut Trainer,
        session: &Session<'_>,
    ) -> Result<Verdict, Stop> {
        let Some(epochs) = &self.epochs else { return Ok(Verdict::GoOn) };
        let settings = session.settings();
        let epoch = self.progress.first_epoch + step / self.batches_per_epoch;
        let done = step / self.batches_per_epoch + 1;
        session.activity.enter(Phase::Meet);
        let train_loss = self.losses.take(session.group)?;
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
                let loss = validation.loss;
                return Err(Stop::Invalid(format!("the validation loss of epoch {epoch} is {loss}. {ADVICE}")));
            }
            let figure = monitored(validation, settings);
            best = self.progress.validated(figure, settings.train.monitor);
            // A correlation that does not exist counts as one that is not better.
            trainer.validated(figure.unwrap_or(f64::NAN));
        }
        let stopped = validation.is_some() && !last && self.progress.is_over(settings.train.patience);
        self.progress.next_epoch = epoch + 1;
        let steps = self.progress.steps_before + step + 1;
        session.activity.enter(Phase::Meet);
        trainer.share_state(session.group)?;
        if session.env.rank == 0 {
            session.activity.enter(Phase::Checkpoint);
            self.write(steps, best, trainer, session)?;
            let record = LearningRecord { epoch, step: steps, learning_rate, train_loss, validation, best, stopped };
            append_learning(&session.attempt.learning_path(), &record)?;
            tracing::info!("{}", line(&record));
        }
        // The others' next step must not wait for what rank 0 writes.
        session.activity.enter(Phase::Meet);
        session.group.barrier()?;
        Ok(if stopped { Verdict::Over } else { Verdict::GoOn })
    }

    /// Write `last.safetensors`, and `best.safetensors` if it is the best epoch.
    fn write(&self, steps: u64, best: bool, trainer: &Trainer, session: &Session<'_>) -> Result<(), Stop> {
        let mut state = trainer.state();
        // In front of both files: what is in the one is in the other.
        all_finite(&state)?;
        if best {
            write_weights(session.attempt, Which::Best, &trainer.weights())?;
        }
        state.extend(self.progress.state_at_end(steps));
        write_weights(session.attempt, Which::Last, &state)
    }
}

/// The figure that decides.
fn monitored(validation: &Validation, settings: &Settings) -> Option<f64> {
    match settings.train.monitor {
        Monitored::Loss => Some(validation.loss),
        Monitored::Pearson => validation.pearson,
    }
}

/// The attempts of this one's trial in front of it, oldest first.
fn earlier(attempt: &AttemptDir) -> Result<Vec<AttemptDir>, RecordError> {
    let trial = attempt.path().parent();
    let Some((job, trial)) = trial.and_then(|path| path.parent().zip(path.file_name())) else { return Ok(Vec::new()) };
    let mut attempts = JobDir::new(job).attempts(&trial.to_string_lossy())?;
    attempts.retain(|other| other.number() < attempt.number());
    Ok(attempts)
}

/// For the log.
fn line(record: &LearningRecord) -> String {
    let LearningRecord { epoch, train_loss, validation, best, stopped, .. } = record;
    let validation = validation.as_ref().map_or_else(String::new, |v| {
        let pearson = v.pearson.map_or_else(|| "none".to_owned(), |pearson| format!("{pearson:.4}"));
        format!(", validation loss {:.6}, Pearson {pearson}", v.loss)
    });
    let mark = if *best { ", the best so far" } else { "" };
    let end = if *stopped { "; training ends early" } else { "" };
    format!("epoch {epoch}: training loss {train_loss:.6}{validation}{mark}{end}")
}
