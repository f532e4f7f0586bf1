//! Figures of hardware samples, over the measured steps of a rank.

use expctl_record::{HardwareSample, Run, Stage, StepRecord};

/// An interval between samples lies within the measured steps if so much of it does: a program may rest between two steps.
const WITHIN: f64 = 0.9;

/// What a rank took while it did its measured steps: means over that time; none of what its samples do not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taken {
    /// Processor time, percent of one processor.
    pub cpu_percent: Option<f64>,
    /// Read from disks, bytes per second.
    pub disk_read_per_s: Option<f64>,
    /// Share of time in which kernels ran on the GPU, percent.
    pub gpu_percent: Option<f64>,
    /// Power of the GPU, watts.
    pub gpu_power_w: Option<f64>,
    /// Share of time, at most, in which the GPU was idle while the step waited for data (derived): of each sample the smaller of
    /// what the GPU was idle and what steps waited for batches and for their way to the device.
    pub idle_for_data: Option<f64>,
}

/// The time from the sample before to a sample, as far as steps were measured in it, ns.
struct Stretch<'a> {
    sample: &'a HardwareSample,
    /// From the sample before to this one.
    whole: f64,
    /// The part of it in which steps were measured.
    measured: f64,
    /// What they waited for data in that part, the waits of each step spread evenly over it.
    waited: f64,
}

impl Taken {
    /// Of a rank with the samples and steps of each attempt, whose clocks begin anew. None where no interval between two samples
    /// lies within the measured steps: what is known then is mostly of other times.
    pub fn of(attempts: &[(&[HardwareSample], &[StepRecord])]) -> Option<Self> {
        let mut stretches: Vec<Stretch<'_>> = Vec::new();
        for (samples, steps) in attempts {
            let steps: Vec<&StepRecord> = steps.iter().filter(|step| step.measured).collect();
            stretches.extend(stretches_of(samples, &steps));
        }
        if !stretches.iter().any(|stretch| stretch.measured >= WITHIN * stretch.whole) {
            return None;
        }
        let mean = |of: &dyn Fn(&Stretch<'_>) -> Option<f64>| {
            let (mut sum, mut time) = (0.0, 0.0);
            for stretch in &stretches {
                if let Some(value) = of(stretch) {
                    sum += value * stretch.measured;
                    time += stretch.measured;
                }
            }
            (time > 0.0).then(|| sum / time)
        };
        let idle = |stretch: &Stretch<'_>| {
            let idle = 1.0 - stretch.sample.gpu_percent? / 100.0;
            Some(idle.min(stretch.waited / stretch.measured))
        };
        Some(Self {
            cpu_percent: mean(&|stretch| stretch.sample.cpu_percent),
            disk_read_per_s: mean(&|stretch| Some(stretch.sample.disk_read_bytes? as f64 / stretch.whole * 1e9)),
            gpu_percent: mean(&|stretch| stretch.sample.gpu_percent),
            gpu_power_w: mean(&|stretch| stretch.sample.gpu_power_w),
            idle_for_data: mean(&idle),
        })
    }

    /// Of each rank of a run that has samples; none of the others.
    pub fn of_ranks(run: &Run) -> Vec<Option<Self>> {
        let of_rank = |rank: usize| {
            let parts = run.parts.iter();
            let attempts =
                parts.filter_map(|part| Some((part.samples.get(rank)?.as_slice(), run.steps_of(part, rank))));
            Self::of(&attempts.collect::<Vec<_>>())
        };
        (0..run.ranks.len()).map(of_rank).collect()
    }
}

/// The most that any sample of any rank says, in all attempts whose steps count; none where none says it.
pub fn most(run: &Run, of: fn(&HardwareSample) -> Option<u64>) -> Option<u64> {
    run.parts.iter().flat_map(|part| &part.samples).flatten().filter_map(of).max()
}

/// The intervals between samples in which steps were measured.
fn stretches_of<'a>(samples: &'a [HardwareSample], steps: &[&StepRecord]) -> Vec<Stretch<'a>> {
    let mut found = Vec::new();
    let mut first = 0;
    for two in samples.windows(2) {
        let (Some(from), Some(to)) = (two[0].at_ns, two[1].at_ns) else { continue };
        let (mut measured, mut waited) = (0.0, 0.0);
        while steps.get(first).is_some_and(|step| end(step) <= from) {
            first += 1;
        }
        for step in steps[first..].iter().take_while(|step| (step.start_ns as i64) < to) {
            let both = (end(step).min(to) - (step.start_ns as i64).max(from)) as f64;
            measured += both;
            if step.wall_ns > 0 {
                waited += waits(step) as f64 / step.wall_ns as f64 * both;
            }
        }
        if measured > 0.0 {
            found.push(Stretch { sample: &two[1], whole: (to - from) as f64, measured, waited });
        }
    }
    found
}

fn end(step: &StepRecord) -> i64 {
    (step.start_ns + step.wall_ns) as i64
}

/// What a step waited for its batch and for its way to the device, ns.
fn waits(step: &StepRecord) -> u64 {
    Stage::LOADER.iter().map(|stage| step.exposed[*stage]).sum::<u64>() + step.exposed[Stage::Transfer]
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// A step of a second that waited for data for `waited` of it.
    fn step(n: u64, waited: f64) -> StepRecord {
        let mut step = StepRecord { step: n, start_ns: n * S, wall_ns: S, measured: n > 0, ..StepRecord::default() };
        step.exposed[Stage::Collate] = (waited * S as f64) as u64;
        step
    }

    /// A sample at so many seconds.
    fn sample(at: f64, cpu: f64, read: u64, gpu: Option<f64>) -> HardwareSample {
        HardwareSample {
            at_ns: Some((at * S as f64) as i64),
            cpu_percent: Some(cpu),
            disk_read_bytes: Some(read),
            gpu_percent: gpu,
            ..HardwareSample::default()
        }
    }

    #[test]
    fn means_are_of_the_time_of_measured_steps() {
        // Step 0 is warm-up, so the sample at 1.5 s counts by half of its second, and that at 4.5 s too.
        let steps: Vec<StepRecord> = (0..4).map(|n| step(n, 0.0)).collect();
        let samples = [
            sample(-0.5, 900.0, 900, None),
            sample(0.5, 900.0, 900, None),
            sample(1.5, 100.0, 10, None),
            sample(2.5, 200.0, 20, None),
            sample(3.5, 200.0, 20, None),
            sample(4.5, 50.0, 0, None),
        ];
        let taken = Taken::of(&[(&samples, &steps)]).unwrap();
        let close = |found: Option<f64>, wanted: f64| assert!((found.unwrap() - wanted).abs() < 1e-9, "{found:?}");
        close(taken.cpu_percent, (50.0 + 200.0 + 200.0 + 25.0) / 3.0);
        close(taken.disk_read_per_s, (5.0 + 20.0 + 20.0) / 3.0);
        assert_eq!((taken.gpu_percent, taken.idle_for_data), (None, None));
        // Nothing is known of three steps between two samples that are far apart.
        assert_eq!(Taken::of(&[(&[samples[0].clone(), sample(9.0, 1.0, 1, None)], &steps)]), None);
        assert_eq!((Taken::of(&[(&[], &steps)]), Taken::of(&[(&samples, &[])])), (None, None));
    }

    #[test]
    fn a_gpu_is_idle_for_data_no_longer_than_the_step_waited_for_it() {
        let steps = [step(0, 0.0), step(1, 0.5), step(2, 0.5), step(3, 0.1)];
        let gpu = |at: f64, percent: f64| sample(at, 0.0, 0, Some(percent));
        // 20 % idle and 50 % waited; 90 % idle and 50 % waited; 90 % idle and 10 % waited.
        let samples = [gpu(1.0, 0.0), gpu(2.0, 80.0), gpu(3.0, 10.0), gpu(4.0, 10.0)];
        let taken = Taken::of(&[(&samples, &steps)]).unwrap();
        assert!((taken.idle_for_data.unwrap() - (0.2 + 0.5 + 0.1) / 3.0).abs() < 1e-9, "{taken:?}");
        assert!((taken.gpu_percent.unwrap() - 100.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn samples_of_an_attempt_go_with_its_own_steps() {
        // Both attempts have steps from 1 s to 4 s by their own clocks; the second takes three times the processor time.
        let first: Vec<StepRecord> = (0..4).map(|n| step(n, 0.0)).collect();
        let second: Vec<StepRecord> = first.iter().map(|of| StepRecord { step: of.step + 4, ..of.clone() }).collect();
        let every_second = |cpu: f64| (0..6).map(|n| sample(f64::from(n), cpu, 0, None)).collect::<Vec<_>>();
        let (slow, fast) = (every_second(50.0), every_second(150.0));
        let cpu = |attempts: &[(&[HardwareSample], &[StepRecord])]| Taken::of(attempts).unwrap().cpu_percent;
        assert_eq!(cpu(&[(&slow, &first)]), Some(50.0));
        assert_eq!(cpu(&[(&slow, &first), (&fast, &second)]), Some(100.0));
        // One of the attempts has no samples, or only steps of the warm-up.
        assert_eq!(cpu(&[(&[], &first), (&fast, &second)]), Some(150.0));
        assert_eq!(cpu(&[(&slow, &first), (&fast, &first[..1])]), Some(50.0));
    }
}
