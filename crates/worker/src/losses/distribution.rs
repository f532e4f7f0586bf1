use expctl_dist::ProcessGroup;
use expctl_record::Gather;
use tch::{Kind, Tensor};

use super::{Buffer, LossError, sinkhorn};
use crate::activity::{Activity, Phase};

/// The term that compares the distribution of predictions with that of labels: the Sinkhorn divergence between those of a
/// batch together with some of earlier batches.
#[derive(Clone, Debug)]
pub struct Distribution {
    gather: Gather,
    buffer: Buffer,
}

impl Distribution {
    /// With an empty buffer.
    pub fn new(gather: Gather, buffer: Buffer) -> Self {
        Self { gather, buffer }
    }

    /// The term, scalar, of a batch in `epoch`; `prediction` and `labels` float32 `[B]`, in the units of training. None
    /// until the buffer has been filled, and with fewer than two samples. All ranks of `group` call it together, with as
    /// many samples each: the sampler deals all ranks as many ([`DistributedSampler::samples_per_rank`]), and so every
    /// batch of an epoch is as long on all.
    ///
    /// # Errors
    /// A peer is gone, or libtorch refuses.
    ///
    /// [`DistributedSampler::samples_per_rank`]: graph_loader::DistributedSampler::samples_per_rank
    pub fn of(
        &mut self,
        prediction: &Tensor,
        labels: &Tensor,
        epoch: u64,
        group: &ProcessGroup,
        activity: &Activity,
    ) -> Result<Option<Tensor>, LossError> {
        let (predictions, labels) = self.gathered(prediction, labels, group, activity)?;
        let known = Vec::<f32>::try_from(predictions.f_detach()?)?;
        // On a device the gathering is only waited for here.
        activity.phase(Phase::Forward);
        self.buffer.push(known.into_iter().zip(Vec::<f32>::try_from(&labels)?));
        if !self.buffer.is_full() {
            return Ok(None);
        }
        let (earlier, their_labels) = self.buffer.draw(labels.numel(), epoch);
        if labels.numel() + earlier.len() < 2 {
            return Ok(None);
        }
        let joined = |now: &Tensor, earlier: &[f32]| -> Result<Tensor, LossError> {
            Ok(Tensor::f_cat(&[now, &Tensor::f_from_slice(earlier)?.f_to_device(now.device())?], 0)?)
        };
        let term = sinkhorn(&joined(&predictions, &earlier)?, &joined(&labels, &their_labels)?)?;
        if self.gather != Gather::Joined || group.world() == 1 {
            return Ok(Some(term));
        }
        // Each rank holds the gradient of its own predictions only, and the mean over the ranks would make it a share of
        // what one rank with the whole batch has. The value stays: what is added is 0.
        let extra = term.f_sub(&term.f_detach()?)?.f_mul_scalar(f64::from(group.world() - 1))?;
        Ok(Some(term.f_add(&extra)?))
    }

    /// Predictions and labels of the ranks that the term sees.
    fn gathered(
        &self,
        prediction: &Tensor,
        labels: &Tensor,
        group: &ProcessGroup,
        activity: &Activity,
    ) -> Result<(Tensor, Tensor), LossError> {
        let prediction = prediction.f_to_kind(Kind::Float)?;
        if self.gather == Gather::Off || group.world() == 1 {
            return Ok((prediction, labels.shallow_clone()));
        }
        let own = Tensor::f_stack(&[&prediction.f_detach()?, labels], 0)?;
        activity.phase(Phase::Gather);
        let all = group.all_gather(&own)?;
        let own = group.rank() as usize;
        let mut predictions: Vec<Tensor> = all.iter().map(|part| part.f_get(0)).collect::<Result<_, _>>()?;
        let labels: Vec<Tensor> = all.iter().map(|part| part.f_get(1)).collect::<Result<_, _>>()?;
        if self.gather == Gather::Joined {
            predictions[own] = prediction;
        }
        Ok((Tensor::f_cat(&predictions, 0)?, Tensor::f_cat(&labels, 0)?))
    }

    /// What it remembers.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The same, to put it back.
    pub fn buffer_mut(&mut self) -> &mut Buffer {
        &mut self.buffer
    }
}
