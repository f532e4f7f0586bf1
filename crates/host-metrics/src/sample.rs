use serde::{Deserialize, Serialize};

/// What a rank's processes and its GPU took at one moment: a row of `rank-<r>.samples.parquet`.
///
/// Amounts (`*_bytes` of disk, calls and networks, and processor time) are of the time since the sample before, so the first row
/// has none; memory, clocks and power are of the moment. None stands where the system does not say it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HardwareSample {
    /// Monotonic clock of the node, ns.
    pub clock_ns: u64,
    /// The same on the clock of the step table's `start_ns`: below 0 in front of the first step; none where there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_ns: Option<i64>,
    /// Processes that were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Processor time of all of them, those that ended too; 100 is one processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    /// Resident memory, bytes: the sum of the three below. What processes share counts in each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// Of that, memory of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_anon_bytes: Option<u64>,
    /// Of that, mapped files, libraries too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_file_bytes: Option<u64>,
    /// Of that, shared memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_shmem_bytes: Option<u64>,
    /// Resident memory of which each page counts once among those that share it, bytes. Not in every row: reading it takes time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pss_bytes: Option<u64>,
    /// Of that, memory that no file stands behind, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pss_anon_bytes: Option<u64>,
    /// Of that, shared memory, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pss_shmem_bytes: Option<u64>,
    /// Read from disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_read_bytes: Option<u64>,
    /// Written, or about to be written, to disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_written_bytes: Option<u64>,
    /// Taken by system calls, wherever it came from: the page cache, pipes, sockets that are read as files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_read_bytes: Option<u64>,
    /// Given to system calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_written_bytes: Option<u64>,
    /// Received by the network interfaces of the *namespace*, mostly those of the node, without loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_received_bytes: Option<u64>,
    /// Sent by them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_sent_bytes: Option<u64>,
    /// Through loopback, where ranks of one node meet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loopback_bytes: Option<u64>,
    /// Memory in use in the control group, page cache included, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_memory_bytes: Option<u64>,
    /// Its limit, bytes; none without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_memory_limit_bytes: Option<u64>,
    /// Share of the driver's last sampling period (1/6 s to 1 s) in which a kernel ran on the GPU, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_percent: Option<f64>,
    /// Memory of the GPU in use, by whomever, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_bytes: Option<u64>,
    /// Power that the GPU takes, watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_power_w: Option<f64>,
    /// Clock of its multiprocessors, MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_sm_mhz: Option<u64>,
    /// Clock of its memory, MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_mhz: Option<u64>,
    /// What it received over PCIe, bytes per second, over the driver's last 20 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_pcie_received_bytes_per_s: Option<u64>,
    /// What it sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_pcie_sent_bytes_per_s: Option<u64>,
}

impl HardwareSample {
    /// Memory that the rank's processes had in use, bytes: anonymous and shared memory, without pages of files, which the kernel can
    /// drop. Each page counts once among the processes that share it. Of a single process every row says it; of several those rows in
    /// which their proportional memory was looked at.
    #[must_use]
    pub fn memory_in_use(&self) -> Option<u64> {
        if self.processes == Some(1) {
            return Some(self.rss_anon_bytes? + self.rss_shmem_bytes?);
        }
        Some(self.pss_anon_bytes? + self.pss_shmem_bytes?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_in_use_leaves_out_files_and_counts_shared_pages_once() {
        let one = HardwareSample {
            processes: Some(1),
            rss_bytes: Some(1000),
            rss_anon_bytes: Some(300),
            rss_file_bytes: Some(690),
            rss_shmem_bytes: Some(10),
            ..HardwareSample::default()
        };
        assert_eq!(one.memory_in_use(), Some(310));
        let several = HardwareSample { processes: Some(3), ..one.clone() };
        assert_eq!(several.memory_in_use(), None, "resident memory of several counts what they share in each");
        let looked = HardwareSample { pss_anon_bytes: Some(200), pss_shmem_bytes: Some(5), ..several };
        assert_eq!(looked.memory_in_use(), Some(205));
    }
}
