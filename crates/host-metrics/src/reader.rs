//! `MetricsReader` takes one `HardwareSample` of some processes and their GPU from /proc, the control group and NVML.
//! Invariant: processor time and moved bytes are increases since the sample before, and never negative, even where a process ended in between.

use std::time::Instant;

use nix::unistd::{SysconfVar, sysconf};

use crate::control_group::group_memory;
use crate::nvml::GpuMetrics;
use crate::process::{self, IoBytes, ProportionalReader, ResidentMemory, WatchedProcesses};
use crate::sample::HardwareSample;

/// Takes samples of some processes and of their GPU.
pub(crate) struct MetricsReader {
    processes: WatchedProcesses,
    gpu: Option<GpuMetrics>,
    ticks_per_s: u64,
    /// Monotonic clock at the last sample, ns.
    last_clock_ns: Option<u64>,
    cpu_ticks: MonotonicCounter,
    disk_read: MonotonicCounter,
    disk_written: MonotonicCounter,
    call_read: MonotonicCounter,
    call_written: MonotonicCounter,
    network_received: MonotonicCounter,
    network_sent: MonotonicCounter,
    loopback: MonotonicCounter,
    proportional: ProportionalReader,
}

impl MetricsReader {
    pub fn new(processes: WatchedProcesses, gpu: Option<GpuMetrics>) -> Self {
        let ticks_per_s = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|n| u64::try_from(n).ok());
        Self {
            processes,
            gpu,
            ticks_per_s: ticks_per_s.filter(|n| *n > 0).unwrap_or(100),
            last_clock_ns: None,
            cpu_ticks: MonotonicCounter::default(),
            disk_read: MonotonicCounter::default(),
            disk_written: MonotonicCounter::default(),
            call_read: MonotonicCounter::default(),
            call_written: MonotonicCounter::default(),
            network_received: MonotonicCounter::default(),
            network_sent: MonotonicCounter::default(),
            loopback: MonotonicCounter::default(),
            proportional: ProportionalReader::default(),
        }
    }

    /// A sample of this moment, without `at_ns`, which the caller sets.
    pub fn sample(&mut self) -> HardwareSample {
        let pids = self.processes.pids();
        let clock_ns = monotonic_ns();
        let passed_s = self.last_clock_ns.replace(clock_ns).map(|last| clock_ns.saturating_sub(last) as f64 / 1e9);
        let ticks = self.cpu_ticks.increase(self.total_ticks(&pids));
        let io = self.total_io(&pids);
        let network = network_bytes();
        let (cgroup_memory_bytes, cgroup_memory_limit_bytes) = group_memory();
        let resident = total_resident(&pids);
        let proportional = self.proportional.read(&pids);
        let mut sample = HardwareSample {
            clock_ns,
            processes: Some(pids.len() as u64),
            cpu_percent: ticks
                .zip(passed_s.filter(|s| *s > 0.0))
                .map(|(ticks, passed)| 100.0 * ticks as f64 / self.ticks_per_s as f64 / passed),
            rss_bytes: resident.map(|m| m.anon + m.file + m.shmem),
            rss_anon_bytes: resident.map(|m| m.anon),
            rss_file_bytes: resident.map(|m| m.file),
            rss_shmem_bytes: resident.map(|m| m.shmem),
            pss_bytes: proportional.map(|m| m.all),
            pss_anon_bytes: proportional.and_then(|m| m.anon),
            pss_shmem_bytes: proportional.and_then(|m| m.shmem),
            disk_read_bytes: self.disk_read.increase(io.map(|io| io.disk_read)),
            disk_written_bytes: self.disk_written.increase(io.map(|io| io.disk_written)),
            call_read_bytes: self.call_read.increase(io.map(|io| io.call_read)),
            call_written_bytes: self.call_written.increase(io.map(|io| io.call_written)),
            network_received_bytes: self.network_received.increase(network.map(|n| n.received)),
            network_sent_bytes: self.network_sent.increase(network.map(|n| n.sent)),
            loopback_bytes: self.loopback.increase(network.map(|n| n.loopback)),
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
    fn total_ticks(&self, pids: &[i32]) -> Option<u64> {
        // Parents come before their children: a process that ends in between is missing here, and counted with its parent next time.
        let ticks_of = |pid: &i32| process::cpu_ticks(&process::folder(*pid));
        let sum = pids.iter().filter_map(ticks_of).map(|ticks| ticks.own + ticks.ended_children).reduce(|a, b| a + b);
        match self.processes {
            WatchedProcesses::Itself => sum,
            // This process's own time is that of watching; children that ended and were waited for are part of the rank.
            WatchedProcesses::Descendants => {
                Some(sum.unwrap_or_default() + ticks_of(&(std::process::id() as i32))?.ended_children)
            }
        }
    }

    /// Bytes that the processes moved.
    fn total_io(&self, pids: &[i32]) -> Option<IoBytes> {
        let io_of = |pid: &i32| process::io_bytes(&process::folder(*pid));
        let plus = |a: IoBytes, b: IoBytes| IoBytes {
            disk_read: a.disk_read + b.disk_read,
            disk_written: a.disk_written + b.disk_written,
            call_read: a.call_read + b.call_read,
            call_written: a.call_written + b.call_written,
        };
        let sum = pids.iter().filter_map(io_of).reduce(plus);
        match self.processes {
            WatchedProcesses::Itself => sum,
            // The kernel adds the bytes of an ended child to those of its parent, so the watcher's own few bytes come with those of orphans.
            WatchedProcesses::Descendants => {
                io_of(&(std::process::id() as i32)).map(|own| sum.map_or(own, |sum| plus(own, sum)))
            }
        }
    }
}

/// Resident memory of all processes that have not ended. `None`: there is none.
fn total_resident(pids: &[i32]) -> Option<ResidentMemory> {
    let each = pids.iter().filter_map(|pid| process::resident_memory(&process::folder(*pid)));
    each.reduce(|a, b| ResidentMemory { anon: a.anon + b.anon, file: a.file + b.file, shmem: a.shmem + b.shmem })
}

/// Monotonic counter summed over processes. A child that ends vanishes from the sum until its parent, which waited for it, includes its
/// counters, so decreases are ignored.
#[derive(Clone, Copy, Debug, Default)]
struct MonotonicCounter(Option<u64>);

impl MonotonicCounter {
    /// Increase since the last call. `None`: this is the first call, or there is no sum.
    fn increase(&mut self, sum: Option<u64>) -> Option<u64> {
        let sum = sum?;
        let last = self.0.replace(self.0.map_or(sum, |last| last.max(sum)))?;
        Some(sum.saturating_sub(last))
    }
}

/// Bytes that the network interfaces of this namespace moved since they exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NetworkBytes {
    /// Received, without loopback.
    received: u64,
    /// Sent, without loopback.
    sent: u64,
    /// Through loopback.
    loopback: u64,
}

fn network_bytes() -> Option<NetworkBytes> {
    Some(parse_net_dev(&std::fs::read_to_string("/proc/self/net/dev").ok()?))
}

/// Sums of /proc/net/dev. A line has eight numbers of received data and eight of sent data, bytes first.
fn parse_net_dev(text: &str) -> NetworkBytes {
    let mut all = NetworkBytes::default();
    for line in text.lines() {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let (Some(received), Some(sent)) = (numbers.first(), numbers.get(8)) else { continue };
        if name.trim() == "lo" {
            all.loopback += received;
        } else {
            all.received += received;
            all.sent += sent;
        }
    }
    all
}

/// The monotonic clock of the node, ns: the one behind [`Instant`] and behind Python's `perf_counter_ns`.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a value that lives as long as the call, and this clock is on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The monotonic clock at a past moment, ns.
pub(crate) fn monotonic_ns_at(moment: Instant) -> u64 {
    monotonic_ns().saturating_sub(moment.elapsed().as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_for_a_moment_counts_once() {
        let mut sum = MonotonicCounter::default();
        assert_eq!(sum.increase(None), None);
        let seen = [100, 150, 90, 160, 160].map(|now| sum.increase(Some(now)));
        assert_eq!(seen, [None, Some(50), Some(0), Some(10), Some(0)]);
    }

    #[test]
    fn loopback_is_apart() {
        let text = "Inter-|   Receive                            |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes\n\
                    lo: 700 9 0 0 0 0 0 0 700 9 0 0 0 0 0 0\n  eth0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n  ib0:3 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n";
        assert_eq!(parse_net_dev(text), NetworkBytes { received: 103, sent: 25, loopback: 700 });
        assert!(network_bytes().is_some());
    }
}
