//! The circular block bootstrap of a mean, without drawing: its variance has a closed form.

use super::correlogram::{block_length, centred};
use super::student::critical;
use super::{ALPHA, Periods};

/// Whole periods below which nothing is said of how well a mean is known: of so few, the spread cannot be told.
pub const MIN_PERIODS_FOR_INTERVAL: usize = 5;
/// Halvings of the bracket of the degrees of freedom.
const HALVINGS: u32 = 30;

/// How well the mean of a series of dependent values is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Blocks {
    /// Standard error of the mean.
    pub error: f64,
    /// How many standard errors a 95 % interval reaches to each side.
    pub reach: f64,
    /// Values in a block; whole periods where there are some.
    pub length: usize,
}

impl Blocks {
    /// Half the width of the 95 % interval of the mean.
    pub fn half_width(&self) -> f64 {
        self.reach * self.error
    }

    /// Degrees of freedom at which Student's t reaches as far: for levels that Kiefer & Vogelsang have no value for.
    pub fn freedom(&self) -> f64 {
        // From a block in each third of the series, which are 3, to so many that it no longer matters.
        let (mut low, mut high) = (1.0_f64, 1000.0_f64);
        for _ in 0..HALVINGS {
            let middle = (low * high).sqrt();
            if critical(middle, ALPHA) > self.reach { low = middle } else { high = middle }
        }
        high
    }

    /// Of a series without a period; none below two values.
    ///
    /// The variance is that of the mean under the circular block bootstrap of Politis & Romano (1992) with infinitely many draws,
    /// which is the mean square of all block sums, and so Bartlett's estimate of the long-run variance. Its critical value is not that
    /// of the normal distribution but Kiefer & Vogelsang's for a block that is a fixed share of the series, because few blocks tell a
    /// variance badly: with 10 values and no dependence it is 2.26, as Student's t has it.
    ///
    /// Sources: D. N. Politis, J. P. Romano, *A circular block-resampling procedure for stationary data*, in: Exploring the Limits of
    /// Bootstrap (1992) 263–270; N. M. Kiefer, T. J. Vogelsang, *A new asymptotic theory for heteroskedasticity-autocorrelation robust
    /// tests*, Econometric Theory 21 (2005) 1130–1164, table 1 (Bartlett, 97.5 %).
    pub fn of(series: &[f64]) -> Option<Self> {
        if series.len() < 2 {
            return None;
        }
        let centred = centred(series);
        let block = block_length(&centred);
        let share = block as f64 / series.len() as f64;
        Some(Self {
            error: (bootstrap_variance(&centred, block) / series.len() as f64).sqrt(),
            reach: 1.9600 + share * (2.9694 + share * (0.4160 - share * 0.5324)),
            length: block,
        })
    }

    /// Of a series with periods, and its mean over whole ones; none below [`MIN_PERIODS_FOR_INTERVAL`] of them.
    ///
    /// The series is first summed over periods, so that no block has more of its slow steps than another. The mean is a ratio of sums,
    /// because not all periods have as many steps. Of few periods Student's t reaches farther than Kiefer & Vogelsang's value.
    pub fn of_periods(series: &[f64], periods: &Periods) -> Option<(Self, f64)> {
        let sums = periods.sums(series);
        if sums.len() < MIN_PERIODS_FOR_INTERVAL {
            return None;
        }
        let (steps, time) = sums.iter().fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
        let (n, mean) = (sums.len() as f64, time / steps);
        let length = steps / n;
        let means: Vec<f64> = sums.iter().map(|(steps, time)| (time - steps * mean) / length).collect();
        let blocks = Self::of(&means)?;
        let student = critical(n - 1.0, ALPHA) * (n / (n - 1.0)).sqrt();
        let length = (blocks.length as f64 * length).round() as usize;
        Some((Self { reach: blocks.reach.max(student), length, ..blocks }, mean))
    }
}

/// n × the variance of the mean of centred values under the circular block bootstrap.
fn bootstrap_variance(centred: &[f64], block: usize) -> f64 {
    let n = centred.len();
    let mut sum: f64 = centred[..block].iter().sum();
    let mut squares = 0.0;
    for start in 0..n {
        squares += sum * sum;
        sum += centred[(start + block) % n] - centred[start];
    }
    squares / (n * block) as f64
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn the_closed_form_is_what_drawing_comes_to() {
        let series: Vec<f64> = (0..120u64).map(|i| (i * i * 7919 % 1009) as f64 / 100.0).collect();
        let centred = centred(&series);
        let mut random = rand_pcg::Pcg64::seed_from_u64(1);
        let (block, draws) = (8, 40_000);
        let squares: f64 = (0..draws)
            .map(|_| {
                let sum: f64 = (0..series.len() / block)
                    .map(|_| {
                        let start = random.random_range(0..series.len());
                        (start..start + block).map(|i| centred[i % series.len()]).sum::<f64>()
                    })
                    .sum();
                (sum / series.len() as f64).powi(2)
            })
            .sum();
        let (drawn, closed) = (squares / f64::from(draws), bootstrap_variance(&centred, block) / series.len() as f64);
        assert!((drawn / closed - 1.0).abs() < 0.03, "{drawn} {closed}");
    }

    #[test]
    fn equal_values_have_no_error() {
        assert_eq!(Blocks::of(&[2.0; 50]).map(|b| b.error), Some(0.0));
        assert_eq!(Blocks::of(&[2.0]), None);
    }

    #[test]
    fn of_periods_only_what_differs_between_them_counts() {
        let times: Vec<f64> = (0..1000).map(|i| if i % 100 == 7 { 50.0 } else { 1.0 }).collect();
        let periods = Periods::new(100.0, &[0.0], 1000).unwrap();
        let (blocks, mean) = Blocks::of_periods(&times, &periods).unwrap();
        assert!(blocks.error < 1e-12 && (mean - 1.49).abs() < 1e-12, "{blocks:?} {mean}");
        assert!(Blocks::of(&times).unwrap().error > 0.05);
        let four = Periods::new(240.0, &[0.0], 1000).unwrap();
        assert_eq!(Blocks::of_periods(&times, &four), None);
    }
}
