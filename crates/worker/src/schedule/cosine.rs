/// Cosine annealing with warm restarts and a linear warm-up in each cycle, stepped once an epoch.
///
/// Source: `CosineAnnealingWarmupRestarts` of the Python package cosine-annealing-warmup, rate for rate. Its constructor
/// sets the smallest rate after its first step, so the whole first epoch runs at the smallest rate even without a warm-up:
/// that is what ran, and so it is here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CosineRestarts {
    /// Peak of the first cycle.
    pub max: f64,
    /// Where each cycle starts and ends.
    pub min: f64,
    /// Epochs of the first cycle.
    pub epochs: u64,
    /// Length of a cycle, without its warm-up, over that of the one before it.
    pub stretch: f64,
    /// Epochs at the start of each cycle in which the rate rises; fewer than `epochs`.
    pub warm_up: u64,
    /// Peak of a cycle over that of the one before it.
    pub factor: f64,
}

impl CosineRestarts {
    /// The rate in `epoch`, from 0.
    pub fn at(&self, epoch: u64) -> f64 {
        if epoch == 0 {
            return self.min;
        }
        let (mut length, mut place, mut cycle) = (self.epochs.max(self.warm_up + 1), epoch, 0u32);
        while place >= length {
            place -= length;
            cycle += 1;
            // Where the cycles shrink, the package divides by 0 in the end; here they keep one epoch behind the warm-up.
            length = (((length - self.warm_up) as f64 * self.stretch) as u64).max(1) + self.warm_up;
        }
        let rise = self.max * self.factor.powf(f64::from(cycle)) - self.min;
        if place < self.warm_up {
            return self.min + rise * place as f64 / self.warm_up as f64;
        }
        let gone = (place - self.warm_up) as f64 / (length - self.warm_up) as f64;
        self.min + rise * (1.0 + (std::f64::consts::PI * gone).cos()) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: CosineRestarts =
        CosineRestarts { max: 5e-4, min: 1e-6, epochs: 300, stretch: 0.75, warm_up: 0, factor: 0.5 };

    fn near(schedule: CosineRestarts, epoch: u64, expected: f64) {
        let got = schedule.at(epoch);
        assert!((got - expected).abs() < 1e-15, "epoch {epoch}: {got}, not {expected}");
    }

    #[test]
    fn the_published_cycles() {
        near(PUBLISHED, 0, 1e-6);
        let cosine = |max: f64, gone: f64| 1e-6 + (max - 1e-6) * (1.0 + (std::f64::consts::PI * gone).cos()) / 2.0;
        near(PUBLISHED, 1, cosine(5e-4, 1.0 / 300.0));
        near(PUBLISHED, 150, (5e-4 + 1e-6) / 2.0);
        near(PUBLISHED, 299, cosine(5e-4, 299.0 / 300.0));
        // A restart is not the start: it is at the peak at once.
        near(PUBLISHED, 300, 2.5e-4);
        near(PUBLISHED, 524, cosine(2.5e-4, 224.0 / 225.0));
        // 225 · 0.75 = 168.75, of which the fraction is dropped.
        near(PUBLISHED, 525, 1.25e-4);
        near(PUBLISHED, 525 + 168, 0.625e-4);
    }

    #[test]
    fn warm_up_in_each_cycle() {
        let schedule = CosineRestarts { max: 1.0, min: 0.0, epochs: 10, stretch: 1.5, warm_up: 4, factor: 0.5 };
        for (epoch, expected) in [(0, 0.0), (1, 0.25), (3, 0.75), (4, 1.0), (7, 0.5), (10, 0.0), (12, 0.25)] {
            near(schedule, epoch, expected);
        }
        // (10 − 4) · 1.5 + 4 = 13 epochs, then (13 − 4) · 1.5 + 4 = 17.
        near(schedule, 10 + 4, 0.5);
        near(schedule, 10 + 13, 0.0);
        near(schedule, 10 + 13 + 4, 0.25);
    }

    #[test]
    fn cycles_that_shrink_to_nothing_stay_one_epoch_long() {
        let schedule = CosineRestarts { epochs: 2, stretch: 0.5, ..PUBLISHED };
        assert!((0..200).all(|epoch| schedule.at(epoch).is_finite()));
    }
}
