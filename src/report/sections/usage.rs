use expctl_record::{HardwareSample, MeasuredJob, RemoteCounts, Run};

use crate::report::Table;
use crate::report::format::{self, MISSING};
use crate::report::samples::{Taken, most};
use crate::stats::mean;

/// A table, and what is in it.
#[derive(Clone, Debug)]
pub struct Usage {
    /// A row per variant.
    pub table: Table,
    /// It has figures of hardware samples.
    pub sampled: bool,
    /// Also of GPUs.
    pub gpu: bool,
}

/// What each variant took beside time: processors, memory, disks and GPU, and of remote files what came from servers and from the
/// cache. None where no run says any of it.
pub fn usage(job: &MeasuredJob) -> Option<Usage> {
    let groups: Vec<(String, Vec<&Run>)> = job
        .by_label()
        .into_iter()
        .map(|(label, runs)| (label, runs.into_iter().filter(|run| run.completed()).collect()))
        .collect();
    let runs = || groups.iter().flat_map(|(_, runs)| runs.iter().copied());
    let remote = runs().any(|run| fetched(run).is_some());
    let sampled = runs().any(|run| Taken::of_ranks(run).iter().any(Option::is_some));
    let gpu = sampled && runs().any(has_gpu);
    let (name, peak): (_, fn(&Run) -> Option<u64>) = if runs().any(|run| peak_in_use(run).is_some()) {
        ("Peak memory of a rank", peak_in_use)
    } else {
        ("Peak resident memory of a rank", peak_resident)
    };
    if !remote && !sampled && runs().all(|run| peak(run).is_none()) {
        return None;
    }
    let mut names = vec!["Variant"];
    names.extend(["CPU of a rank"].into_iter().filter(|_| sampled));
    names.push(name);
    names.extend(["From disks"].into_iter().filter(|_| sampled));
    names.extend(["GPU busy", "GPU memory", "GPU power", "GPU idle for data"].into_iter().filter(|_| gpu));
    let of_remote = ["Requests", "Repeated", "From servers", "From the cache", "Of its blocks there"];
    names.extend(of_remote.into_iter().filter(|_| remote));
    let columns = names.len();
    let mut table = Table::new(names).right(1..columns);
    for (label, runs) in &groups {
        let most = runs.iter().filter_map(|run| peak(run)).max();
        let peak = most.map_or_else(missing, |n| format::bytes(n as f64));
        let mut cells = vec![label.clone()];
        if sampled {
            let Sampled { cpu, disk, gpu: of_gpu } = Sampled::of(runs);
            cells.extend([cpu, peak, disk]);
            cells.extend(of_gpu.into_iter().filter(|_| gpu));
        } else {
            cells.push(peak);
        }
        if remote {
            let all: Vec<RemoteCounts> = runs.iter().filter_map(|run| fetched(run)).collect();
            cells.extend(figures(&all));
        }
        table.row(cells);
    }
    Some(Usage { table, sampled, gpu })
}

fn missing() -> String {
    MISSING.to_owned()
}

/// The most memory that any sample of a rank of `run` says was in use, where samples are of one rank each: from one source for our ranks
/// and for programs, over all attempts whose steps count.
pub fn peak_in_use(run: &Run) -> Option<u64> {
    most(run, HardwareSample::memory_in_use).filter(|_| ranks_of_samples(run) == 1)
}

/// The most memory that a rank of `run` had resident, pages of files too: one of ours as the kernel says at its end, a program as it
/// says itself. Another figure than [`peak_in_use`], so the two never share a column.
fn peak_resident(run: &Run) -> Option<u64> {
    let usage = run.parts.iter().flat_map(|part| &part.usage);
    let said = || run.environments().filter_map(|found| found.program.as_ref()?.peak_memory_bytes).max();
    usage.filter_map(|rank| rank.peak_resident_bytes).max().or_else(said)
}

/// Ranks that samples of one rank are of: all of a node, where a program starts them itself.
fn ranks_of_samples(run: &Run) -> u32 {
    let settings = &run.trial.settings;
    if settings.worker.starts_ranks { settings.launch.ranks / settings.launch.nodes.max(1) } else { 1 }
}

/// Whether steps of `run` were done on a GPU that its samples know.
fn has_gpu(run: &Run) -> bool {
    let elsewhere = |environment: &expctl_record::Environment| !environment.device.starts_with("cpu");
    let mut samples = run.parts.iter().flat_map(|part| &part.samples).flatten();
    run.environments().any(elsewhere) && samples.any(|sample| sample.gpu_percent.or(sample.gpu_power_w).is_some())
}

/// What samples say of a variant: means over ranks, then over runs.
struct Sampled {
    cpu: String,
    disk: String,
    gpu: [String; 4],
}

impl Sampled {
    fn of(runs: &[&Run]) -> Self {
        let taken: Vec<(u32, Vec<Taken>)> = runs
            .iter()
            .map(|run| (ranks_of_samples(run), Taken::of_ranks(run).into_iter().flatten().collect()))
            .collect();
        let ranks = || taken.iter().flat_map(|(_, ranks)| ranks);
        let over_ranks = |of: fn(&Taken) -> Option<f64>| mean(&ranks().filter_map(of).collect::<Vec<f64>>());
        let cpu =
            taken.iter().flat_map(|(n, ranks)| ranks.iter().filter_map(move |r| Some(r.cpu_percent? / f64::from(*n))));
        // What a run reads is only known where each of its ranks, or of its nodes, has samples.
        let disk = taken.iter().zip(runs).filter_map(|((n, ranks), run)| {
            let all: Vec<f64> = ranks.iter().filter_map(|rank| rank.disk_read_per_s).collect();
            (all.len() as u32 * n == run.trial.settings.launch.ranks).then(|| all.iter().sum::<f64>())
        });
        let percent = |value: Option<f64>| value.map_or_else(missing, |v| format!("{} %", format::round(v, 0)));
        let memory = runs.iter().filter_map(|run| most(run, |sample| sample.gpu_memory_bytes)).max();
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

/// What the ranks of `run` fetched, summed; none where all files were local, and where an attempt whose steps count ended before its
/// last step: what that one fetched is not known.
fn fetched(run: &Run) -> Option<RemoteCounts> {
    let known = !run.resumed() || run.parts.iter().all(|part| part.usage.len() == run.ranks.len());
    let usage = run.parts.iter().flat_map(|part| &part.usage);
    usage.filter_map(|rank| rank.remote).reduce(RemoteCounts::plus).filter(|_| known)
}

/// Means over runs; the share of the cache of all of them.
fn figures(runs: &[RemoteCounts]) -> [String; 5] {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_are_means_over_runs() {
        let one = RemoteCounts { requests: 100, retries: 4, remote_bytes: 2_000_000, ..RemoteCounts::default() };
        let other = RemoteCounts { requests: 301, remote_bytes: 4_000_000, ..RemoteCounts::default() };
        assert_eq!(figures(&[one, other]), ["201", "2", "3 MB", MISSING, MISSING]);
        let cached = RemoteCounts { hits: 3, misses: 1, cache_bytes: 5_000_000, ..one };
        assert_eq!(figures(&[cached]), ["100", "4", "2 MB", "5 MB", "75.0 %"]);
        assert_eq!(figures(&[]), [MISSING; 5]);
    }
}
