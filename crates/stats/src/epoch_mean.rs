use super::student::Student;
use super::{ALPHA, Estimate, Interval, mean};

/// Mean of the times of some epochs of one run, with its 95 % interval over these epochs; none of no epoch, and where a time is not
/// positive.
///
/// The interval is symmetric on the log scale, as those of rates are: Student's t of the mean of the logarithms, about the arithmetic
/// mean. None of a single epoch, and of epochs that do not differ. It says nothing of other runs.
pub fn epoch_mean(times: &[f64]) -> Option<Estimate> {
    if times.iter().any(|time| !time.is_finite() || *time <= 0.0) {
        return None;
    }
    let value = mean(times)?;
    let logs: Vec<f64> = times.iter().map(|time| time.ln()).collect();
    let student = Student::of_mean(&logs).and_then(Student::with_spread);
    let interval = student.map(|student| {
        let reach = student.half_width(ALPHA).exp();
        Interval { low: value / reach, high: value * reach }
    });
    Some(Estimate { value, interval, error: student.map(|student| student.error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_logarithms_about_the_mean() {
        // The standard error of the logarithms times 2.776 445 105 2, the 97.5 % quantile of t with 4 degrees of freedom.
        let found = epoch_mean(&[9.0, 8.0, 8.1, 8.2, 7.9]).unwrap();
        let interval = found.interval.unwrap();
        assert!((found.value - 8.24).abs() < 1e-12, "{found:?}");
        assert!(((interval.high / found.value).ln() - 0.064_351_720_4).abs() < 1e-8, "{found:?}");
        assert!((interval.low * interval.high - found.value * found.value).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn one_epoch_and_equal_epochs_have_no_interval() {
        assert_eq!(epoch_mean(&[2.0]), Some(Estimate::plain(2.0)));
        assert_eq!(epoch_mean(&[2.0, 2.0]), Some(Estimate::plain(2.0)));
        assert_eq!([&[][..], &[1.0, 0.0], &[1.0, f64::NAN]].map(epoch_mean), [None, None, None]);
    }
}
