use expctl_record::{HardwareSample, group_memory};
use nix::unistd::{SysconfVar, sysconf};

use crate::amounts::{Growing, IoAmounts, NetworkAmounts};
use crate::clock;
use crate::gpu::Gpu;
use crate::network::network;
use crate::process::{self, Io, Resident};
use crate::shared_memory::Proportional;
use crate::tree::Watched;

/// Makes samples of a rank's processes and of its GPU.
pub(crate) struct Reader {
    watched: Watched,
    gpu: Option<Gpu>,
    ticks_per_s: u64,
    /// When the last sample was taken.
    before: Option<u64>,
    ticks: Growing,
    io: IoAmounts,
    network: NetworkAmounts,
    shared: Proportional,
}

impl Reader {
    pub fn new(watched: Watched, gpu: Option<Gpu>) -> Self {
        let ticks_per_s = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|n| u64::try_from(n).ok());
        Self {
            watched,
            gpu,
            ticks_per_s: ticks_per_s.filter(|n| *n > 0).unwrap_or(100),
            before: None,
            ticks: Growing::default(),
            io: IoAmounts::default(),
            network: NetworkAmounts::default(),
            shared: Proportional::default(),
        }
    }

    /// A sample of this moment; its place on the clock of the steps is for the caller to know.
    pub fn sample(&mut self) -> HardwareSample {
        let pids = self.watched.pids();
        let clock_ns = clock::now();
        let passed_s = self.before.replace(clock_ns).map(|before| clock_ns.saturating_sub(before) as f64 / 1e9);
        let ticks = self.ticks.more(self.all_ticks(&pids));
        let [disk_read_bytes, disk_written_bytes, call_read_bytes, call_written_bytes] =
            self.io.more(self.all_io(&pids));
        let [network_received_bytes, network_sent_bytes, loopback_bytes] = self.network.more(network());
        let (cgroup_memory_bytes, cgroup_memory_limit_bytes) = group_memory();
        let memory = resident(&pids);
        let proportion = self.shared.look(&pids);
        let mut sample = HardwareSample {
            clock_ns,
            processes: Some(pids.len() as u64),
            cpu_percent: ticks
                .zip(passed_s.filter(|s| *s > 0.0))
                .map(|(ticks, passed)| 100.0 * ticks as f64 / self.ticks_per_s as f64 / passed),
            rss_bytes: memory.map(|m| m.anon + m.file + m.shmem),
            rss_anon_bytes: memory.map(|m| m.anon),
            rss_file_bytes: memory.map(|m| m.file),
            rss_shmem_bytes: memory.map(|m| m.shmem),
            pss_bytes: proportion.map(|p| p.all),
            pss_anon_bytes: proportion.and_then(|p| p.anon),
            pss_shmem_bytes: proportion.and_then(|p| p.shmem),
            disk_read_bytes,
            disk_written_bytes,
            call_read_bytes,
            call_written_bytes,
            network_received_bytes,
            network_sent_bytes,
            loopback_bytes,
            cgroup_memory_bytes,
            cgroup_memory_limit_bytes,
            ..HardwareSample::default()
        };
        if let Some(gpu) = &self.gpu {
            gpu.add_to(&mut sample);
        }
        sample
    }

    /// Processor time of the processes, and of those that ended below them.
    fn all_ticks(&self, pids: &[i32]) -> Option<u64> {
        // A parent before its children: what ends in between is missing here, and with the parent next time.
        let of = |pid: &i32| process::ticks(&process::folder(*pid));
        let sum = pids.iter().filter_map(of).map(|ticks| ticks.own + ticks.ended_children).reduce(|a, b| a + b);
        match self.watched {
            Watched::Itself => sum,
            // What this process itself works at is watching; what it waited for was the rank's.
            Watched::Below => Some(sum.unwrap_or_default() + of(&(std::process::id() as i32))?.ended_children),
        }
    }

    /// Bytes in and out of them.
    fn all_io(&self, pids: &[i32]) -> Option<Io> {
        let of = |pid: &i32| process::io(&process::folder(*pid));
        let plus = |a: Io, b: Io| Io {
            disk_read: a.disk_read + b.disk_read,
            disk_written: a.disk_written + b.disk_written,
            call_read: a.call_read + b.call_read,
            call_written: a.call_written + b.call_written,
        };
        let sum = pids.iter().filter_map(of).reduce(plus);
        match self.watched {
            Watched::Itself => sum,
            // The kernel adds what a child moved to what its parent did, so the watcher's own few bytes come with that of orphans.
            Watched::Below => of(&(std::process::id() as i32)).map(|own| sum.map_or(own, |sum| plus(own, sum))),
        }
    }
}

/// Resident memory of all processes that have not ended; none where there is none.
fn resident(pids: &[i32]) -> Option<Resident> {
    let each = pids.iter().filter_map(|pid| process::resident(&process::folder(*pid)));
    each.reduce(|a, b| Resident { anon: a.anon + b.anon, file: a.file + b.file, shmem: a.shmem + b.shmem })
}
