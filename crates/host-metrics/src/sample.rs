//! `HardwareSample` is what is measured at one moment. A single list of fields defines the struct and its columns, so tables and journals cannot
//! differ from it.

use serde::{Deserialize, Serialize};

/// A column of a table of [`HardwareSample`]s, with access to its value in a row.
///
/// Counts and bytes stay far below 2^63, so all integers are signed, as in most table formats.
#[derive(Clone, Copy, Debug)]
pub enum SampleColumn {
    /// A count, a number of bytes or a time.
    Integer {
        /// Name of the field, and of the column.
        name: &'static str,
        /// Value in a row.
        get: fn(&HardwareSample) -> Option<i64>,
        /// Sets the value in a row.
        set: fn(&mut HardwareSample, Option<i64>),
    },
    /// A percentage or a power.
    Real {
        /// Name of the field, and of the column.
        name: &'static str,
        /// Value in a row.
        get: fn(&HardwareSample) -> Option<f64>,
        /// Sets the value in a row.
        set: fn(&mut HardwareSample, Option<f64>),
    },
}

impl SampleColumn {
    /// Name of the field, and of the column.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Integer { name, .. } | Self::Real { name, .. } => name,
        }
    }
}

/// The column of a field.
macro_rules! column {
    ($field:ident, u64) => {
        SampleColumn::Integer {
            name: stringify!($field),
            get: |sample| sample.$field.map(|value| value as i64),
            set: |sample, value| sample.$field = value.map(|value| value as u64),
        }
    };
    ($field:ident, f64) => {
        SampleColumn::Real {
            name: stringify!($field),
            get: |sample| sample.$field,
            set: |sample, value| sample.$field = value,
        }
    };
}

/// Defines [`HardwareSample`] and its columns from one list of fields.
macro_rules! hardware_sample {
    ($($(#[$doc:meta])* $field:ident: $type:ident,)+) => {
        /// Metrics of some processes and their GPU at one moment.
        ///
        /// Amounts (`*_bytes` of disk, calls and networks, and processor time) are those since the sample before, so the first one has
        /// none; memory, clocks and power are those of the moment. `None`: the system does not give the value.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct HardwareSample {
            /// Monotonic clock of the node, ns.
            pub clock_ns: u64,
            /// The same moment on the clock of the steps, ns: below 0 before the first step. `None`: no step clock is known.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub at_ns: Option<i64>,
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)+
        }

        impl HardwareSample {
            /// All fields as columns, in the order of the fields.
            pub const COLUMNS: &[SampleColumn] = &[
                SampleColumn::Integer {
                    name: "clock_ns",
                    get: |sample| Some(sample.clock_ns as i64),
                    set: |sample, value| sample.clock_ns = value.unwrap_or_default() as u64,
                },
                SampleColumn::Integer {
                    name: "at_ns",
                    get: |sample| sample.at_ns,
                    set: |sample, value| sample.at_ns = value,
                },
                $(column!($field, $type),)+
            ];
        }
    };
}

hardware_sample! {
    /// Processes that were read.
    processes: u64,
    /// Processor time of all of them, including those that ended, percent; 100 is one processor.
    cpu_percent: f64,
    /// Resident memory, bytes: the sum of the three below. Memory that processes share counts in each of them.
    rss_bytes: u64,
    /// Part of `rss_bytes`: anonymous memory.
    rss_anon_bytes: u64,
    /// Part of `rss_bytes`: mapped files, including libraries.
    rss_file_bytes: u64,
    /// Part of `rss_bytes`: shared memory.
    rss_shmem_bytes: u64,
    /// Proportional memory, bytes: each page is divided by the number of processes that share it. Not in every sample, because reading
    /// it is slow.
    pss_bytes: u64,
    /// Part of `pss_bytes`: anonymous memory.
    pss_anon_bytes: u64,
    /// Part of `pss_bytes`: shared memory.
    pss_shmem_bytes: u64,
    /// Bytes read from disks.
    disk_read_bytes: u64,
    /// Bytes written, or about to be written, to disks.
    disk_written_bytes: u64,
    /// Bytes returned by system calls that read, wherever they came from: the page cache, pipes, sockets that are read as files.
    call_read_bytes: u64,
    /// Bytes passed to system calls that write.
    call_written_bytes: u64,
    /// Bytes received by the network interfaces of the *namespace*, mostly those of the node, without loopback.
    network_received_bytes: u64,
    /// Bytes sent by them.
    network_sent_bytes: u64,
    /// Bytes through loopback, which ranks of one node use.
    loopback_bytes: u64,
    /// Memory in use in the control group, including page cache, bytes.
    cgroup_memory_bytes: u64,
    /// Memory limit of the control group, bytes. `None`: no limit.
    cgroup_memory_limit_bytes: u64,
    /// Share of the driver's last sampling period (1/6 s to 1 s) in which a kernel ran on the GPU, percent.
    gpu_percent: f64,
    /// Memory of the GPU in use by all processes, bytes.
    gpu_memory_bytes: u64,
    /// Power that the GPU takes, watts.
    gpu_power_w: f64,
    /// Clock of its multiprocessors, MHz.
    gpu_sm_mhz: u64,
    /// Clock of its memory, MHz.
    gpu_memory_mhz: u64,
    /// Bytes per second that it received over PCIe, over the driver's last 20 ms.
    gpu_pcie_received_bytes_per_s: u64,
    /// Bytes per second that it sent over PCIe.
    gpu_pcie_sent_bytes_per_s: u64,
}

impl HardwareSample {
    /// Memory that the processes had in use, bytes: anonymous and shared memory, without pages of files, which the kernel can drop. Each
    /// page counts once among the processes that share it. `None` for several processes in samples without proportional memory.
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
        let proportional = HardwareSample { pss_anon_bytes: Some(200), pss_shmem_bytes: Some(5), ..several };
        assert_eq!(proportional.memory_in_use(), Some(205));
    }

    #[test]
    fn columns_give_back_what_they_set() {
        for column in HardwareSample::COLUMNS {
            let mut sample = HardwareSample::default();
            match column {
                SampleColumn::Integer { get, set, .. } => {
                    set(&mut sample, Some(7));
                    assert_eq!(get(&sample), Some(7));
                }
                SampleColumn::Real { get, set, .. } => {
                    set(&mut sample, Some(0.5));
                    assert_eq!(get(&sample), Some(0.5));
                }
            }
            let written = serde_json::to_value(&sample).unwrap();
            assert!(written.get(column.name()).is_some(), "{} is not a field", column.name());
        }
    }
}
