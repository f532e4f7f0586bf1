use super::Samples;
use super::rng::Stream;

/// Label and p-value of each sample.
pub(crate) struct Labels {
    pub values: Vec<f64>,
    pub p_values: Vec<f64>,
}

/// From this many samples on, the smallest and the largest published label are among them.
pub(crate) const EXTREMES_FROM: u64 = 10_000;
/// Half-width of the standard distribution before it is fitted.
const CUT: f64 = 30.0;

impl Labels {
    /// `count` labels: Student's t with two degrees of freedom (cut off at ±30), shifted and scaled so that mean and
    /// population standard deviation over these `count` samples are the published ones.
    pub(crate) fn new(published: &Samples, count: u64, seed: u64, scale: f64) -> Self {
        let mut stream = Stream::new(seed, scale, "labels");
        let values: Vec<f64> = (0..count).map(|_| student_t2(&mut stream)).collect();
        let mut fixed = None;
        if count >= EXTREMES_FROM {
            let low = stream.below(count);
            let high = (low + 1 + stream.below(count - 1)) % count;
            fixed = Some([(low as usize, published.label_min), (high as usize, published.label_max)]);
        }
        Self::fitted(values, published, fixed, &mut stream)
    }

    /// These values with the published mean and population standard deviation: labels that follow from the genes. None is
    /// set to a published extreme, which would not follow from anything.
    pub(crate) fn planted(values: Vec<f64>, published: &Samples, seed: u64, scale: f64) -> Self {
        Self::fitted(values, published, None, &mut Stream::new(seed, scale, "planted p-values"))
    }

    fn fitted(
        mut values: Vec<f64>,
        published: &Samples,
        fixed: Option<[(usize, f64); 2]>,
        stream: &mut Stream,
    ) -> Self {
        fit(&mut values, published, fixed);
        let p_value = |value: &f64| {
            let z = (value - published.label_mean) / published.label_sd;
            stream.unit() / (1.0 + z * z)
        };
        let p_values = values.iter().map(p_value).collect();
        Self { values, p_values }
    }
}

/// Quantile of Student's t with two degrees of freedom, which needs no more than a square root, at a random level.
fn student_t2(stream: &mut Stream) -> f64 {
    loop {
        let u = stream.unit();
        let t = (2.0 * u - 1.0) / (2.0 * u * (1.0 - u)).sqrt();
        if t.abs() <= CUT {
            return t;
        }
    }
}

/// Mean and population standard deviation.
pub(crate) fn statistics(values: &[f64]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / n;
    (mean, variance.sqrt())
}

/// Shift and scale the values, but for those that are fixed, until all together have the published mean and standard
/// deviation and lie within the published range. Too few or equal values keep what spread they have.
fn fit(values: &mut [f64], published: &Samples, fixed: Option<[(usize, f64); 2]>) {
    let n = values.len() as f64;
    let fixed = fixed.as_ref().map_or(&[][..], |pair| &pair[..]);
    let free = n - fixed.len() as f64;
    // What the free values must sum up to, around the published mean.
    let sum = -fixed.iter().map(|(_, value)| value - published.label_mean).sum::<f64>();
    let squares = n * published.label_sd * published.label_sd
        - fixed.iter().map(|(_, value)| (value - published.label_mean) * (value - published.label_mean)).sum::<f64>();
    let mean = sum / free;
    let sd = (squares / free - mean * mean).max(0.0).sqrt();
    // A second round removes what rounding left; more are needed only where an outlier had to be pulled in.
    for round in 0..200 {
        for &(index, _) in fixed {
            // Stands in for the free mean, so that the fixed ones do not disturb the statistics of the others.
            values[index] = 0.0;
        }
        let total: f64 = values.iter().sum();
        let centre = total / free;
        let spread = (values.iter().map(|v| (v - centre) * (v - centre)).sum::<f64>()
            - fixed.len() as f64 * centre * centre)
            .max(0.0)
            / free;
        let factor = if spread > 0.0 { sd / spread.sqrt() } else { 0.0 };
        let mut outside = false;
        for value in &mut *values {
            *value = published.label_mean + mean + (*value - centre) * factor;
            let inside = value.clamp(published.label_min * 0.99, published.label_max * 0.99);
            outside |= inside != *value;
            *value = inside;
        }
        if !outside && round > 0 {
            break;
        }
    }
    for &(index, value) in fixed {
        values[index] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published() -> Samples {
        Samples {
            count: 332_313,
            genes_per_sample: 3,
            record: "record.json".into(),
            label_mean: -0.008024,
            label_sd: 0.063264,
            label_min: -1.0816,
            label_max: 1.128043,
        }
    }

    #[test]
    fn mean_and_deviation_are_the_published_ones_at_any_count() {
        let published = published();
        for count in [2, 3, 10, 100, 999, 1000, 10_000, 332_313] {
            for seed in 0..if count < 2000 { 20 } else { 2 } {
                let labels = Labels::new(&published, count, seed, 1.0);
                let (mean, sd) = statistics(&labels.values);
                assert!((mean - published.label_mean).abs() < 1e-12, "{count}: mean {mean}");
                assert!((sd - published.label_sd).abs() < 1e-12, "{count}: sd {sd}");
                let (low, high) = labels.values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
                assert!(low >= published.label_min && high <= published.label_max, "{count}: {low} {high}");
                if count >= EXTREMES_FROM {
                    assert_eq!((low, high), (published.label_min, published.label_max));
                }
                assert!(labels.p_values.iter().all(|p| *p > 0.0 && *p < 1.0));
            }
        }
    }

    #[test]
    fn labels_are_heavy_tailed() {
        let published = published();
        let labels = Labels::new(&published, 100_000, 0, 1.0);
        let beyond = |k: f64| {
            let far = |v: &&f64| (**v - published.label_mean).abs() > k * published.label_sd;
            labels.values.iter().filter(far).count()
        };
        // A normal distribution would have 6 of 100,000 beyond four deviations.
        assert!(beyond(4.0) > 300, "{}", beyond(4.0));
    }
}
