use std::collections::BTreeMap;

use expctl_record::Monitored;
use tch::Tensor;

/// What a figure has to get better by, relative to the best one.
const THRESHOLD: f64 = 1e-4;
/// A fall of less than this is left out.
const SMALLEST_FALL: f64 = 1e-8;

/// Lower the rate when a figure has not become better for a while.
///
/// Source: `ReduceLROnPlateau` of PyTorch 2.11 with its defaults (relative threshold 1e-4, no cooldown), mode `min` for the
/// loss and `max` for Pearson's correlation. As there, the threshold of a negative best correlation lies below it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plateau {
    monitor: Monitored,
    factor: f64,
    patience: u64,
    min: f64,
    rate: f64,
    best: f64,
    waited: u64,
}

impl Plateau {
    /// From `rate` on by `factor` each time, down to `min`, after more than `patience` figures without a better one.
    pub fn new(monitor: Monitored, rate: f64, factor: f64, patience: u64, min: f64) -> Self {
        let best = worst(monitor);
        Self { monitor, factor, patience, min, rate, best, waited: 0 }
    }

    /// The rate from here on.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// A validation came to `figure`. NaN is never better.
    pub fn validated(&mut self, figure: f64) {
        let better = match self.monitor {
            Monitored::Loss => figure < self.best * (1.0 - THRESHOLD),
            Monitored::Pearson => figure > self.best * (1.0 + THRESHOLD),
        };
        if better {
            (self.best, self.waited) = (figure, 0);
            return;
        }
        self.waited += 1;
        if self.waited > self.patience {
            self.waited = 0;
            let lower = (self.rate * self.factor).max(self.min);
            if self.rate - lower > SMALLEST_FALL {
                self.rate = lower;
            }
        }
    }

    /// The state by name: float64 `[3]`, the rate, the best figure and how many came since.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        vec![(key(self.monitor), Tensor::from_slice(&[self.rate, self.best, self.waited as f64]))]
    }

    /// Take over a state, if there is one. Of a run that watched another figure the rate stays, and waiting begins anew.
    ///
    /// # Errors
    /// It has another shape.
    pub fn restore(&mut self, state: &BTreeMap<String, Tensor>) -> Result<(), String> {
        let found = Monitored::ALL.into_iter().find_map(|figure| Some((figure, state.get(&key(figure))?)));
        let Some((figure, kept)) = found else { return Ok(()) };
        let kept = Vec::<f64>::try_from(kept).map_err(|e| format!("{}: {e}", key(figure)))?;
        let &[rate, best, waited] = kept.as_slice() else { return Err(format!("{} has another shape", key(figure))) };
        self.rate = rate;
        (self.best, self.waited) =
            if figure == self.monitor { (best, waited as u64) } else { (worst(self.monitor), 0) };
        Ok(())
    }
}

/// Anything is better.
const fn worst(monitor: Monitored) -> f64 {
    match monitor {
        Monitored::Loss => f64::INFINITY,
        Monitored::Pearson => f64::NEG_INFINITY,
    }
}

fn key(monitor: Monitored) -> String {
    format!("schedule/plateau/{}", monitor.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(plateau: &mut Plateau, figures: &[f64]) -> Vec<f64> {
        figures
            .iter()
            .map(|figure| {
                plateau.validated(*figure);
                plateau.rate()
            })
            .collect()
    }

    #[test]
    fn it_falls_after_more_than_its_patience() {
        let mut plateau = Plateau::new(Monitored::Loss, 0.1, 0.5, 2, 0.03);
        // 0.99995 is not better than 1 by a ten thousandth.
        let got = rates(&mut plateau, &[1.0, 0.99995, 2.0, 1.5, 0.9, 0.9, f64::NAN, 0.9, 0.9, 0.9, 0.9]);
        assert_eq!(got, [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.03, 0.03, 0.03, 0.03]);
    }

    #[test]
    fn of_a_correlation_the_larger_is_the_better() {
        let mut plateau = Plateau::new(Monitored::Pearson, 0.1, 0.5, 0, 0.0);
        let got = rates(&mut plateau, &[0.2, 0.3, 0.3, 0.4, 0.1]);
        assert_eq!(got, [0.1, 0.1, 0.05, 0.05, 0.025]);
        // As PyTorch has it: −0.2 · 1.0001 is below −0.2.
        let mut plateau = Plateau::new(Monitored::Pearson, 0.1, 0.5, 0, 0.0);
        assert_eq!(rates(&mut plateau, &[-0.2, -0.2]), [0.1, 0.1]);
    }

    #[test]
    fn falls_too_small_to_matter_are_left_out() {
        let mut plateau = Plateau::new(Monitored::Loss, 1.5e-8, 0.5, 0, 0.0);
        assert_eq!(rates(&mut plateau, &[1.0, 1.0]), [1.5e-8, 1.5e-8]);
    }

    #[test]
    fn a_state_that_was_put_back_goes_on_alike() {
        let figures = [1.0, 1.1, 0.8, 0.9, 0.9, 0.7, 0.9, 0.9];
        let mut whole = Plateau::new(Monitored::Loss, 0.1, 0.5, 1, 0.0);
        let all = rates(&mut whole, &figures);
        let mut first = Plateau::new(Monitored::Loss, 0.1, 0.5, 1, 0.0);
        rates(&mut first, &figures[..4]);
        let mut second = Plateau::new(Monitored::Loss, 0.1, 0.5, 1, 0.0);
        second.restore(&first.state().into_iter().collect()).unwrap();
        assert_eq!(rates(&mut second, &figures[4..]), all[4..]);
        assert!(all.iter().any(|rate| *rate < 0.1));
        let wrong = BTreeMap::from([(key(Monitored::Loss), Tensor::from_slice(&[1.0f64]))]);
        assert!(second.restore(&wrong).unwrap_err().contains("another shape"));
    }

    /// Where labels or predictions do not vary there is no correlation: that is no better figure.
    #[test]
    fn a_correlation_that_does_not_exist_is_waited_through() {
        let mut plateau = Plateau::new(Monitored::Pearson, 0.1, 0.5, 1, 0.0);
        let none = f64::NAN;
        assert_eq!(
            rates(&mut plateau, &[none, none, 0.1, none, none, none, 0.2]),
            [0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025]
        );
    }

    #[test]
    fn the_state_of_a_run_that_watched_another_figure_leaves_the_rate_alone() {
        let mut before = Plateau::new(Monitored::Loss, 0.1, 0.5, 1, 0.0);
        rates(&mut before, &[0.9, 1.0, 1.0, 1.0]);
        let mut after = Plateau::new(Monitored::Pearson, 0.1, 0.5, 1, 0.0);
        after.restore(&before.state().into_iter().collect()).unwrap();
        // The loss's 0.9 is no correlation to beat, and its waiting is over.
        assert_eq!(rates(&mut after, &[0.1, 0.1, 0.1]), [0.05, 0.05, 0.025]);
    }
}
