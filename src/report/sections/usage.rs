//! Processors, memory, disks and GPU of each variant, from hardware samples during the measured steps; and fetches of remote files.

use expctl_ledger::{HardwareSample, MeasuredJob, RemoteCounts, Run, Stage, StepRecord};
use expctl_stats::mean;
use expctl_text::Table;
use expctl_text::format::{self, missing};

/// Resource usage as columns of a table: its own, or that of the step times if they are few.
#[derive(Clone, Debug)]
pub struct UsageTable {
    /// Names of the columns.
    pub columns: Vec<&'static str>,
    /// The cells of each variant, by its label, in the order of the job.
    pub rows: Vec<(String, Vec<String>)>,
    /// Whether it has figures of hardware samples.
    pub sampled: bool,
    /// Whether it has figures of GPUs.
    pub gpu: bool,
}

impl UsageTable {
    /// Whether the columns are few enough to stand beside the step times: processor time, memory and disk reads.
    pub fn is_narrow(&self) -> bool {
        self.columns.len() <= MAX_COLUMNS_BESIDE
    }

    /// A table of its own, a row per variant.
    pub fn table(&self) -> Table {
        let header = std::iter::once("Variant").chain(self.columns.iter().copied());
        let mut table = Table::new(header).right(1..=self.columns.len());
        for (label, cells) in &self.rows {
            table.row(std::iter::once(label.clone()).chain(cells.iter().cloned()));
        }
        table
    }

    /// The cells of a variant.
    pub fn cells(&self, label: &str) -> Vec<String> {
        let row = self.rows.iter().find(|(other, _)| other == label);
        row.map_or_else(|| vec![missing(); self.columns.len()], |(_, cells)| cells.clone())
    }
}

/// Columns up to which resource usage has no table of its own.
const MAX_COLUMNS_BESIDE: usize = 3;

/// Resource usage of each variant: processors, memory, disks and GPU, and fetches of remote files from servers and cache. `None` without any
/// figure.
pub fn usage(job: &MeasuredJob) -> Option<UsageTable> {
    let groups: Vec<(String, Vec<&Run>)> = job
        .by_label()
        .into_iter()
        .map(|(label, runs)| (label, runs.into_iter().filter(|run| run.completed()).collect()))
        .collect();
    let runs = || groups.iter().flat_map(|(_, runs)| runs.iter().copied());
    let remote = runs().any(|run| fetched(run).is_some());
    let sampled = runs().any(|run| SampledUsage::by_rank(run).iter().any(Option::is_some));
    let gpu = sampled && runs().any(has_gpu);
    let (name, peak): (_, fn(&Run) -> Option<u64>) = if runs().any(|run| peak_in_use(run).is_some()) {
        ("Peak memory of a rank", peak_in_use)
    } else {
        ("Peak resident memory of a rank", peak_resident)
    };
    if !remote && !sampled && runs().all(|run| peak(run).is_none()) {
        return None;
    }
    let mut columns = Vec::new();
    columns.extend(sampled.then_some("CPU of a rank"));
    columns.push(name);
    columns.extend(sampled.then_some("From disks"));
    columns.extend(["GPU busy", "GPU memory", "GPU power", "GPU idle for data"].into_iter().filter(|_| gpu));
    let of_remote = ["Requests", "Repeated", "From servers", "From the cache", "Of its blocks there"];
    columns.extend(of_remote.into_iter().filter(|_| remote));
    let mut rows = Vec::new();
    for (label, runs) in &groups {
        let max = runs.iter().filter_map(|run| peak(run)).max();
        let peak = max.map_or_else(missing, |n| format::bytes(n as f64));
        let mut cells = Vec::new();
        if sampled {
            let SampledCells { cpu, disk, gpu: of_gpu } = SampledCells::from_runs(runs);
            cells.extend([cpu, peak, disk]);
            cells.extend(of_gpu.into_iter().filter(|_| gpu));
        } else {
            cells.push(peak);
        }
        if remote {
            let all: Vec<RemoteCounts> = runs.iter().filter_map(|run| fetched(run)).collect();
            cells.extend(fetch_figures(&all));
        }
        rows.push((label.clone(), cells));
    }
    Some(UsageTable { columns, rows, sampled, gpu })
}

/// Peak memory in use by a rank, over all samples of the attempts that count; `None` if a sample covers several ranks.
pub fn peak_in_use(run: &Run) -> Option<u64> {
    max_sample(run, HardwareSample::memory_in_use).filter(|_| ranks_of_samples(run) == 1)
}

/// Peak resident memory of a rank, pages of files included: of our ranks by the kernel, of programs by their own report. It differs from
/// [`peak_in_use`], so the two never share a column.
fn peak_resident(run: &Run) -> Option<u64> {
    let usage = run.parts.iter().flat_map(|part| &part.usage);
    let said = || run.environments().filter_map(|found| found.program.as_ref()?.peak_memory_bytes).max();
    usage.filter_map(|rank| rank.peak_resident_bytes).max().or_else(said)
}

/// Number of ranks that a sample covers: all of a node if a program starts them itself.
fn ranks_of_samples(run: &Run) -> u32 {
    let settings = &run.trial.settings;
    if settings.worker.starts_ranks { settings.launch.ranks / settings.launch.nodes.max(1) } else { 1 }
}

/// Whether `run` used a GPU that its samples cover.
fn has_gpu(run: &Run) -> bool {
    let elsewhere = |environment: &expctl_ledger::Environment| !environment.device.starts_with("cpu");
    let mut samples = run.parts.iter().flat_map(|part| &part.samples).flatten();
    run.environments().any(elsewhere) && samples.any(|sample| sample.gpu_percent.or(sample.gpu_power_w).is_some())
}

/// Cells of a variant from hardware samples: means over ranks, then over runs.
struct SampledCells {
    cpu: String,
    disk: String,
    gpu: [String; 4],
}

impl SampledCells {
    fn from_runs(runs: &[&Run]) -> Self {
        let taken: Vec<(u32, Vec<SampledUsage>)> = runs
            .iter()
            .map(|run| (ranks_of_samples(run), SampledUsage::by_rank(run).into_iter().flatten().collect()))
            .collect();
        let ranks = || taken.iter().flat_map(|(_, ranks)| ranks);
        let over_ranks = |of: fn(&SampledUsage) -> Option<f64>| mean(&ranks().filter_map(of).collect::<Vec<f64>>());
        let cpu =
            taken.iter().flat_map(|(n, ranks)| ranks.iter().filter_map(move |r| Some(r.cpu_percent? / f64::from(*n))));
        // The reads of a run are only known if all of its ranks (or nodes) have samples.
        let disk = taken.iter().zip(runs).filter_map(|((n, ranks), run)| {
            let all: Vec<f64> = ranks.iter().filter_map(|rank| rank.disk_read_per_s).collect();
            (all.len() as u32 * n == run.trial.settings.launch.ranks).then(|| all.iter().sum::<f64>())
        });
        let percent = |value: Option<f64>| value.map_or_else(missing, |v| format!("{} %", format::round(v, 0)));
        let memory = runs.iter().filter_map(|run| max_sample(run, |sample| sample.gpu_memory_bytes)).max();
        Self {
            cpu: percent(mean(&cpu.collect::<Vec<f64>>())),
            disk: mean(&disk.collect::<Vec<f64>>()).map_or_else(missing, |v| format!("{}/s", format::bytes(v))),
            gpu: [
                percent(over_ranks(|rank| rank.gpu_percent)),
                memory.map_or_else(missing, |bytes| format::bytes(bytes as f64)),
                over_ranks(|rank| rank.gpu_power_w).map_or_else(missing, |w| format!("{} W", format::round(w, 0))),
                over_ranks(|rank| rank.idle_for_data).map_or_else(missing, |s| format!("≤ {}", format::percent(s))),
            ],
        }
    }
}

/// Fetches of all ranks of `run`, summed; `None` for local files, and if an attempt that counts ended before its last step, because its
/// fetches are not known.
fn fetched(run: &Run) -> Option<RemoteCounts> {
    let known = !run.resumed() || run.parts.iter().all(|part| part.usage.len() == run.ranks.len());
    let usage = run.parts.iter().flat_map(|part| &part.usage);
    usage.filter_map(|rank| rank.remote).reduce(RemoteCounts::plus).filter(|_| known)
}

/// Means over runs; the share of the cache of all of them.
fn fetch_figures(runs: &[RemoteCounts]) -> [String; 5] {
    let Some(all) = runs.iter().copied().reduce(RemoteCounts::plus) else { return std::array::from_fn(|_| missing()) };
    let mean = |sum: u64| sum as f64 / runs.len() as f64;
    let count = |sum: u64| format::thousands(mean(sum).round() as u64);
    let looked_for = all.hits + all.misses;
    [
        count(all.requests),
        count(all.retries),
        format::bytes(mean(all.remote_bytes)),
        if looked_for > 0 { format::bytes(mean(all.cache_bytes)) } else { missing() },
        if looked_for > 0 { format::percent(all.hits as f64 / looked_for as f64) } else { missing() },
    ]
}

/// Share of an interval between samples that measured steps must cover for it to count: programs may pause between steps.
const MIN_COVERED: f64 = 0.9;

/// Resource usage of a rank during its measured steps, as means over that time; `None` if samples lack the figure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampledUsage {
    /// Processor time, percent of one processor.
    pub cpu_percent: Option<f64>,
    /// Read from disks, bytes per second.
    pub disk_read_per_s: Option<f64>,
    /// Share of time in which kernels ran on the GPU, percent.
    pub gpu_percent: Option<f64>,
    /// Power of the GPU, watts.
    pub gpu_power_w: Option<f64>,
    /// Upper bound for the share of time in which the GPU was idle while the step waited for data (derived): for each sample the smaller of
    /// the idle share of the GPU and the share of exposed loading and transfer.
    pub idle_for_data: Option<f64>,
}

/// The time from one sample to the next, ns.
struct SampleInterval<'a> {
    sample: &'a HardwareSample,
    /// Its length.
    whole: f64,
    /// Length covered by measured steps.
    measured: f64,
    /// Exposed loading and transfer in that part; the time of each step is spread evenly over it.
    waited: f64,
}

impl SampledUsage {
    /// Usage of a rank, given the samples and steps of each attempt (each attempt has its own clock). `None` if no interval between two samples lies
    /// within the measured steps.
    pub fn from_attempts(attempts: &[(&[HardwareSample], &[StepRecord])]) -> Option<Self> {
        let mut intervals: Vec<SampleInterval<'_>> = Vec::new();
        for (samples, steps) in attempts {
            let steps: Vec<&StepRecord> = steps.iter().filter(|step| step.measured).collect();
            intervals.extend(sample_intervals(samples, &steps));
        }
        if !intervals.iter().any(|interval| interval.measured >= MIN_COVERED * interval.whole) {
            return None;
        }
        let mean = |of: &dyn Fn(&SampleInterval<'_>) -> Option<f64>| {
            let (mut sum, mut time) = (0.0, 0.0);
            for interval in &intervals {
                if let Some(value) = of(interval) {
                    sum += value * interval.measured;
                    time += interval.measured;
                }
            }
            (time > 0.0).then(|| sum / time)
        };
        let idle = |interval: &SampleInterval<'_>| {
            let idle = 1.0 - interval.sample.gpu_percent? / 100.0;
            Some(idle.min(interval.waited / interval.measured))
        };
        Some(Self {
            cpu_percent: mean(&|interval| interval.sample.cpu_percent),
            disk_read_per_s: mean(&|interval| Some(interval.sample.disk_read_bytes? as f64 / interval.whole * 1e9)),
            gpu_percent: mean(&|interval| interval.sample.gpu_percent),
            gpu_power_w: mean(&|interval| interval.sample.gpu_power_w),
            idle_for_data: mean(&idle),
        })
    }

    /// Usage of each rank of a run; `None` for ranks without samples.
    pub fn by_rank(run: &Run) -> Vec<Option<Self>> {
        let of_rank = |rank: usize| {
            let parts = run.parts.iter();
            let attempts =
                parts.filter_map(|part| Some((part.samples.get(rank)?.as_slice(), run.steps_of(part, rank))));
            Self::from_attempts(&attempts.collect::<Vec<_>>())
        };
        (0..run.ranks.len()).map(of_rank).collect()
    }
}

/// Maximum of a figure over all samples of all ranks and attempts that count.
fn max_sample(run: &Run, of: fn(&HardwareSample) -> Option<u64>) -> Option<u64> {
    run.parts.iter().flat_map(|part| &part.samples).flatten().filter_map(of).max()
}

/// The intervals between samples that overlap measured steps.
fn sample_intervals<'a>(samples: &'a [HardwareSample], steps: &[&StepRecord]) -> Vec<SampleInterval<'a>> {
    let mut found = Vec::new();
    let mut first = 0;
    for two in samples.windows(2) {
        let (Some(from), Some(to)) = (two[0].at_ns, two[1].at_ns) else { continue };
        let (mut measured, mut waited) = (0.0, 0.0);
        while steps.get(first).is_some_and(|step| step_end(step) <= from) {
            first += 1;
        }
        for step in steps[first..].iter().take_while(|step| (step.start_ns as i64) < to) {
            let both = (step_end(step).min(to) - (step.start_ns as i64).max(from)) as f64;
            measured += both;
            if step.wall_ns > 0 {
                waited += data_wait(step) as f64 / step.wall_ns as f64 * both;
            }
        }
        if measured > 0.0 {
            found.push(SampleInterval { sample: &two[1], whole: (to - from) as f64, measured, waited });
        }
    }
    found
}

fn step_end(step: &StepRecord) -> i64 {
    (step.start_ns + step.wall_ns) as i64
}

/// Exposed time of loading and transfer of a step, ns.
fn data_wait(step: &StepRecord) -> u64 {
    Stage::LOADER.iter().map(|stage| step.exposed[*stage]).sum::<u64>() + step.exposed[Stage::Transfer]
}

#[cfg(test)]
mod tests {
    use expctl_text::format::MISSING;

    use super::*;

    #[test]
    fn fetches_are_means_over_runs() {
        let one = RemoteCounts { requests: 100, retries: 4, remote_bytes: 2_000_000, ..RemoteCounts::default() };
        let other = RemoteCounts { requests: 301, remote_bytes: 4_000_000, ..RemoteCounts::default() };
        assert_eq!(fetch_figures(&[one, other]), ["201", "2", "3 MB", MISSING, MISSING]);
        let cached = RemoteCounts { hits: 3, misses: 1, cache_bytes: 5_000_000, ..one };
        assert_eq!(fetch_figures(&[cached]), ["100", "4", "2 MB", "5 MB", "75.0 %"]);
        assert_eq!(fetch_figures(&[]), [MISSING; 5]);
    }

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
        let taken = SampledUsage::from_attempts(&[(&samples, &steps)]).unwrap();
        let close = |found: Option<f64>, wanted: f64| assert!((found.unwrap() - wanted).abs() < 1e-9, "{found:?}");
        close(taken.cpu_percent, (50.0 + 200.0 + 200.0 + 25.0) / 3.0);
        close(taken.disk_read_per_s, (5.0 + 20.0 + 20.0) / 3.0);
        assert_eq!((taken.gpu_percent, taken.idle_for_data), (None, None));
        // Nothing is known of three steps between two samples that are far apart.
        assert_eq!(SampledUsage::from_attempts(&[(&[samples[0].clone(), sample(9.0, 1.0, 1, None)], &steps)]), None);
        assert_eq!(
            (SampledUsage::from_attempts(&[(&[], &steps)]), SampledUsage::from_attempts(&[(&samples, &[])])),
            (None, None)
        );
    }

    #[test]
    fn a_gpu_is_idle_for_data_no_longer_than_the_step_waited_for_it() {
        let steps = [step(0, 0.0), step(1, 0.5), step(2, 0.5), step(3, 0.1)];
        let gpu = |at: f64, percent: f64| sample(at, 0.0, 0, Some(percent));
        // 20 % idle and 50 % waited; 90 % idle and 50 % waited; 90 % idle and 10 % waited.
        let samples = [gpu(1.0, 0.0), gpu(2.0, 80.0), gpu(3.0, 10.0), gpu(4.0, 10.0)];
        let taken = SampledUsage::from_attempts(&[(&samples, &steps)]).unwrap();
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
        let cpu = |attempts: &[(&[HardwareSample], &[StepRecord])]| {
            SampledUsage::from_attempts(attempts).unwrap().cpu_percent
        };
        assert_eq!(cpu(&[(&slow, &first)]), Some(50.0));
        assert_eq!(cpu(&[(&slow, &first), (&fast, &second)]), Some(100.0));
        // One of the attempts has no samples, or only steps of the warm-up.
        assert_eq!(cpu(&[(&[], &first), (&fast, &second)]), Some(150.0));
        assert_eq!(cpu(&[(&slow, &first), (&fast, &first[..1])]), Some(50.0));
    }
}
