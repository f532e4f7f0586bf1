use std::sync::Arc;
use std::time::Instant;

use expctl_record::Validation;
use graph_loader::GraphBatcher;
use loader_core::{Loader, LoaderOptions};

use crate::activity::Phase;
use crate::device_masks::DeviceMaskMaker;
use crate::metrics::{Figures, gather};
use crate::session::Session;
use crate::stop::Stop;
use crate::trainer::Trainer;

/// Predicts the validation set, each rank its share: every sample once, and none to fill the ranks up.
pub(crate) struct Validator {
    /// None where this rank has no share.
    share: Option<Share>,
    masks: Option<Arc<DeviceMaskMaker>>,
}

/// What makes the batches of this rank.
pub(crate) struct Share {
    pub(crate) builder: GraphBatcher,
    pub(crate) options: LoaderOptions,
}

impl Validator {
    /// A validator of these batches, for which the step makes `masks`, if any.
    pub(crate) fn new(share: Option<Share>, masks: Option<Arc<DeviceMaskMaker>>) -> Self {
        Self { share, masks }
    }

    /// Validate once; all ranks together.
    ///
    /// # Errors
    /// A batch cannot be loaded or predicted, or a peer is gone.
    pub(crate) fn run(&self, trainer: &mut Trainer, session: &Session<'_>) -> Result<Validation, Stop> {
        let from = Instant::now();
        trainer.set_training(false)?;
        let (mut predictions, mut labels) = (Vec::new(), Vec::new());
        if let Some(Share { builder, options }) = &self.share {
            session.activity.enter(Phase::Validate);
            let mut loader = Loader::start(builder.clone(), *options)?;
            while let Some(loaded) = loader.next_batch() {
                let batch = loaded?.batch;
                let masks = self.masks.as_ref().map(|masks| masks.make(&batch.common)).transpose()?;
                let (predicted, known) = trainer.evaluate(&batch, masks.as_deref().unwrap_or_default())?;
                predictions.extend(predicted);
                labels.extend(known);
                drop(masks);
                loader.recycle(batch);
                session.activity.enter(Phase::Validate);
            }
        }
        trainer.set_training(true)?;
        session.activity.enter(Phase::Meet);
        let (predictions, labels) = gather(session.group, &predictions, &labels)?;
        let Figures { samples, mse, pearson, spearman } = Figures::of(&predictions, &labels);
        let loss = trainer.loss_of(&predictions, &labels)?;
        Ok(Validation { samples, loss, mse, pearson, spearman, seconds: from.elapsed().as_secs_f64() })
    }
}
