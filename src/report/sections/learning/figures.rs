use expctl_record::{LearningRecord, Validation};

/// What a run had learned at one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct At<'a> {
    /// The epoch, from 1.
    pub epoch: u64,
    /// Mean training loss of the epoch.
    pub train_loss: f64,
    /// What the validation set said.
    pub validation: Option<&'a Validation>,
}

/// What a run had learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learned<'a> {
    /// Epochs done.
    pub epochs: u64,
    /// Training loss of the first epoch.
    pub first_loss: f64,
    /// The best epoch by what was monitored; none where no validated epoch was called so.
    pub best: Option<At<'a>>,
    /// The last validated epoch; the last one where nothing was.
    pub last: At<'a>,
    /// Training loss of the last epoch.
    pub last_loss: f64,
    /// Whether it ended for want of better figures.
    pub stopped: bool,
}

/// Of all epochs of a run; none of no epochs.
pub fn learned(records: &[LearningRecord]) -> Option<Learned<'_>> {
    let (first, end) = (records.first()?, records.last()?);
    let last = records.iter().rev().find(|record| record.validation.is_some()).unwrap_or(end);
    // Figures that are no numbers are never the best: that the last epoch was would be an invention.
    let best = records.iter().rev().find(|record| record.best && record.validation.is_some());
    Some(Learned {
        epochs: end.epoch + 1,
        first_loss: first.train_loss,
        best: best.map(at),
        last: at(last),
        last_loss: end.train_loss,
        stopped: end.stopped,
    })
}

fn at(record: &LearningRecord) -> At<'_> {
    At { epoch: record.epoch + 1, train_loss: record.train_loss, validation: record.validation.as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(epoch: u64, pearson: Option<f64>, best: bool) -> LearningRecord {
        let validation = pearson.map(|p| Validation { pearson: Some(p), ..Validation::default() });
        LearningRecord { epoch, train_loss: 1.0 / (epoch + 1) as f64, validation, best, ..LearningRecord::default() }
    }

    #[test]
    fn the_best_epoch_is_the_last_that_was_called_so() {
        let records = [
            record(0, Some(0.1), true),
            record(1, Some(0.4), true),
            record(2, Some(0.3), false),
            record(3, None, false),
        ];
        let found = learned(&records).unwrap();
        assert_eq!((found.epochs, found.best.unwrap().epoch, found.last.epoch), (4, 2, 3));
        assert_eq!((found.first_loss, found.last_loss), (1.0, 0.25));
        assert_eq!(learned(&[record(0, None, false)]).unwrap().best, None);
        assert_eq!(learned(&[record(0, Some(0.1), false)]).unwrap().best, None);
        assert_eq!(learned(&[]), None);
    }
}
