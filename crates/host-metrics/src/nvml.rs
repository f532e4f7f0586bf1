//! NVML, NVIDIA's management library, which comes with the driver: metrics of the GPU of a rank, and how the GPUs of a
//! node are connected. It is loaded at run time, so this program also starts where there is no driver.

use std::ffi::OsStr;

use nvml_wrapper::enum_wrappers::device::{Clock, P2pCapabilitiesIndex, P2pStatus, PcieUtilCounter, TopologyLevel};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::PciInfo;
use nvml_wrapper::{Device, Nvml};

use crate::sample::HardwareSample;

/// File names of NVML. The driver installs the first one; the second one comes with development packages.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// Number of NVLinks of a GPU that NVML is asked for: more than any GPU has. The loop ends before, at the first error.
const MAX_LINKS: u32 = 64;

/// Why the GPU of a rank cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GpuError {
    /// NVML cannot be loaded: mostly there is no driver.
    #[error("{library}: {source}")]
    NoDriver { library: &'static str, source: NvmlError },
    /// NVML does not give the number of GPUs.
    #[error("{0}")]
    Count(NvmlError),
    /// The node has no GPU for the rank, or `CUDA_VISIBLE_DEVICES` leaves none.
    #[error("the rank may use no GPU")]
    NoneVisible,
    /// The GPU does not answer.
    #[error("{id:?}: {source}")]
    NoAnswer { id: GpuId, source: NvmlError },
}

/// Load NVML by the first of its file names that works. An error is that of the second name.
fn load_nvml() -> Result<Nvml, GpuError> {
    let load = |library: &str| Nvml::builder().lib_path(OsStr::new(library)).init();
    let [first, second] = LIBRARIES;
    load(first).or_else(|_| load(second)).map_err(|source| GpuError::NoDriver { library: second, source })
}

/// A GPU of the node, as `CUDA_VISIBLE_DEVICES` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GpuId {
    /// Its index, from 0.
    Index(u32),
    /// Its UUID: `GPU-…`, or `MIG-…` of a partition of a GPU.
    Uuid(String),
}

/// The GPU of a rank, read through NVML.
pub(crate) struct GpuMetrics {
    nvml: Nvml,
    id: GpuId,
}

impl GpuMetrics {
    /// Open the GPU of a rank. `local_rank` is its number among the ranks of this node, from 0.
    ///
    /// # Errors
    /// There is no driver, no GPU for the rank, or it does not answer.
    pub fn open(local_rank: u32) -> Result<Self, GpuError> {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        Self::new(load_nvml()?, visible.as_deref(), local_rank)
    }

    /// As [`Self::open`]; `visible` is the value of `CUDA_VISIBLE_DEVICES`.
    fn new(nvml: Nvml, visible: Option<&str>, local_rank: u32) -> Result<Self, GpuError> {
        let count = nvml.device_count().map_err(GpuError::Count)?;
        let id = gpu_of_rank(visible, local_rank, count).ok_or(GpuError::NoneVisible)?;
        let gpu = Self { nvml, id };
        gpu.device().map_err(|source| GpuError::NoAnswer { id: gpu.id.clone(), source })?;
        Ok(gpu)
    }

    fn device(&self) -> Result<Device<'_>, NvmlError> {
        match &self.id {
            GpuId::Index(index) => self.nvml.device_by_index(*index),
            GpuId::Uuid(uuid) => self.nvml.device_by_uuid(uuid.as_str()),
        }
    }

    /// Set the GPU fields of a sample; a figure that NVML does not give is `None`.
    pub fn add_to(&self, sample: &mut HardwareSample) {
        let Ok(device) = self.device() else { return };
        // NVML gives kB/s.
        let bytes_per_s = |counter| device.pcie_throughput(counter).ok().map(|kb| u64::from(kb) * 1000);
        sample.gpu_percent = device.utilization_rates().ok().map(|rates| f64::from(rates.gpu));
        sample.gpu_memory_bytes = device.memory_info().ok().map(|memory| memory.used);
        sample.gpu_power_w = device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0);
        sample.gpu_sm_mhz = device.clock_info(Clock::SM).ok().map(u64::from);
        sample.gpu_memory_mhz = device.clock_info(Clock::Memory).ok().map(u64::from);
        sample.gpu_pcie_received_bytes_per_s = bytes_per_s(PcieUtilCounter::Receive);
        sample.gpu_pcie_sent_bytes_per_s = bytes_per_s(PcieUtilCounter::Send);
    }
}

/// The GPU of a rank. The GPUs that a rank sees are those that `CUDA_VISIBLE_DEVICES` (`visible`) names, or all `count` of
/// the node if it is not set. If it sees one, that is its GPU, as when Slurm binds a GPU to each rank; of several it takes
/// the one at index `local_rank`. `None`: there is no such GPU.
fn gpu_of_rank(visible: Option<&str>, local_rank: u32, count: u32) -> Option<GpuId> {
    let visible: Vec<GpuId> = match visible {
        None => (0..count).map(GpuId::Index).collect(),
        // As CUDA reads it: the list ends at the first entry that names no GPU.
        Some(list) => list.split(',').map_while(|name| parse_gpu_id(name.trim(), count)).collect(),
    };
    match visible.as_slice() {
        [only] => Some(only.clone()),
        all => all.get(local_rank as usize).cloned(),
    }
}

/// An entry of `CUDA_VISIBLE_DEVICES` on a node with `count` GPUs. `None`: it names no GPU.
fn parse_gpu_id(name: &str, count: u32) -> Option<GpuId> {
    if name.starts_with("GPU-") || name.starts_with("MIG-") {
        return Some(GpuId::Uuid(name.to_owned()));
    }
    name.parse().ok().filter(|index| *index < count).map(GpuId::Index)
}

/// How each pair of the node's GPUs is connected, one line a pair: the number of NVLinks between them (`GPU 0 - GPU 1:
/// NVLink x18`), or without any their nearest common ancestor on the PCIe bus (`GPU 0 - GPU 1: same NUMA node`).
///
/// Numbers are those of `nvidia-smi`, which `CUDA_VISIBLE_DEVICES` does not change. Empty without a driver and with a
/// single GPU; a GPU that does not answer is left out.
pub fn gpu_topology() -> Vec<String> {
    load_nvml().map(|nvml| topology_lines(&nvml)).unwrap_or_default()
}

/// The lines of [`gpu_topology`].
fn topology_lines(nvml: &Nvml) -> Vec<String> {
    let count = nvml.device_count().unwrap_or(0);
    if count < 2 {
        return Vec::new();
    }
    let gpus: Vec<(u32, GpuLinks<'_>)> =
        (0..count).filter_map(|index| Some((index, GpuLinks::new(nvml.device_by_index(index).ok()?)))).collect();
    let mut lines = Vec::new();
    for (i, (first, first_links)) in gpus.iter().enumerate() {
        for (second, second_links) in &gpus[i + 1..] {
            let links = first_links.links_to(second_links);
            let connection = describe_connection(links, first_links.common_ancestor(nvml, *second));
            lines.push(format!("GPU {first} - GPU {second}: {connection}"));
        }
    }
    lines
}

/// A GPU and its NVLinks.
struct GpuLinks<'nvml> {
    device: Device<'nvml>,
    /// `None`: NVML does not give it.
    address: Option<BusAddress>,
    /// Address of the device at the other end of each active NVLink: a GPU, or a switch. `None`: NVML does not give it.
    remote_ends: Vec<Option<BusAddress>>,
}

/// Address on the PCI bus: domain, bus and device.
type BusAddress = (u32, u32, u32);

impl<'nvml> GpuLinks<'nvml> {
    fn new(device: Device<'nvml>) -> Self {
        let address = device.pci_info().ok().map(bus_address);
        let links = (0..MAX_LINKS).map(|link| device.link_wrapper_for(link));
        // The first error says that the GPU has no such link, so that all were asked. Inactive links are left out.
        let active = links.map_while(|link| link.is_active().ok().map(|active| active.then_some(link))).flatten();
        let remote_ends = active.map(|link| link.remote_pci_info().ok().map(bus_address)).collect();
        Self { device, address, remote_ends }
    }

    /// Number of active NVLinks between two GPUs.
    ///
    /// A direct link ends at the other GPU. A link through a switch (NVSwitch) ends at the switch: for such links NVML
    /// says whether they connect the pair, and the number is that of the GPU with fewer links.
    fn links_to(&self, other: &Self) -> usize {
        let direct = self.remote_ends.iter().filter(|end| end.is_some() && **end == other.address).count();
        if direct > 0 {
            return direct;
        }
        // NVML could also tell whether the other end is a switch, but nvml-wrapper 0.12 loses that answer.
        match self.device.p2p_status(&other.device, P2pCapabilitiesIndex::NvLink) {
            Ok(P2pStatus::Ok) => self.remote_ends.len().min(other.remote_ends.len()),
            _ => 0,
        }
    }

    /// The nearest component of the node that the paths from both GPUs have in common; `other` is the index of the second
    /// GPU.
    fn common_ancestor(&self, nvml: &Nvml, other: u32) -> Option<TopologyLevel> {
        self.device.topology_common_ancestor(nvml.device_by_index(other).ok()?).ok()
    }
}

fn bus_address(info: PciInfo) -> BusAddress {
    (info.domain, info.bus, info.device)
}

/// The text for two GPUs with `links` NVLinks between them and this common ancestor on the PCIe bus.
fn describe_connection(links: usize, ancestor: Option<TopologyLevel>) -> String {
    if links > 0 {
        return format!("NVLink x{links}");
    }
    let ancestor = match ancestor {
        Some(TopologyLevel::Internal) => "same board",
        Some(TopologyLevel::Single) => "same PCIe switch",
        Some(TopologyLevel::Multiple) => "several PCIe switches below one host bridge",
        Some(TopologyLevel::HostBridge) => "same host bridge",
        Some(TopologyLevel::Node) => "same NUMA node",
        Some(TopologyLevel::System) => "across NUMA nodes",
        None => "the driver does not say",
    };
    ancestor.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Build a stand-in for NVML from C source, and load it.
    fn load(source: &str) -> Nvml {
        let dir = tempfile::tempdir().unwrap();
        let (path, library) = (dir.path().join("nvml.c"), dir.path().join("libnvidia-ml.so.1"));
        std::fs::write(&path, source).unwrap();
        let built = std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&path).status();
        assert!(built.unwrap().success());
        Nvml::builder().lib_path(library.as_os_str()).init().unwrap()
    }

    /// A stand-in with the functions of NVML that are called here, as its header declares them, and two GPUs with known
    /// figures: most machines that run this test have no driver.
    const METRICS_LIBRARY: &str = r#"
        #include <stddef.h>
        typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory;
        typedef struct { unsigned gpu, memory; } rates;
        static int devices[2] = {0, 1};
        int nvmlInit_v2(void) { return 0; }
        int nvmlShutdown(void) { return 0; }
        const char *nvmlErrorString(int e) { return "error"; }
        int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
        int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { if (i > 1) return 2; *d = &devices[i]; return 0; }
        int nvmlDeviceGetUtilizationRates(int *d, rates *r) { r->gpu = 70 + *d; r->memory = 5; return 0; }
        int nvmlDeviceGetMemoryInfo_v2(void *d, memory *m) { m->total = 9; m->used = 7; return 0; }
        int nvmlDeviceGetPowerUsage(void *d, unsigned *mw) { *mw = 312500; return 0; }
        int nvmlDeviceGetClockInfo(void *d, int kind, unsigned *mhz) { *mhz = kind == 1 ? 1980 : kind == 2 ? 2619 : 0; return 0; }
        int nvmlDeviceGetPcieThroughput(void *d, int counter, unsigned *kb) { if (counter == 0) return 3; *kb = 42; return 0; }
    "#;

    #[test]
    fn what_nvml_says_becomes_columns_and_what_it_does_not_stays_none() {
        let open = |visible| GpuMetrics::new(load(METRICS_LIBRARY), Some(visible), 0);
        let mut sample = HardwareSample::default();
        open("1").unwrap().add_to(&mut sample);
        let expected = HardwareSample {
            gpu_percent: Some(71.0),
            gpu_memory_bytes: Some(7),
            gpu_power_w: Some(312.5),
            gpu_sm_mhz: Some(1980),
            gpu_memory_mhz: Some(2619),
            gpu_pcie_received_bytes_per_s: Some(42_000),
            gpu_pcie_sent_bytes_per_s: None,
            ..HardwareSample::default()
        };
        assert_eq!(sample, expected);
        assert_eq!(open("").err().map(|e| e.to_string()).as_deref(), Some("the rank may use no GPU"));
    }

    #[test]
    fn a_rank_has_the_gpu_that_cuda_would_give_it() {
        let index = |visible: Option<&str>, rank, count| match gpu_of_rank(visible, rank, count) {
            Some(GpuId::Index(index)) => Some(index),
            _ => None,
        };
        assert_eq!(index(None, 2, 4), Some(2));
        assert_eq!(index(None, 4, 4), None);
        assert_eq!(index(Some("3,1"), 1, 4), Some(1));
        // A rank that sees one GPU, as Slurm binds them.
        assert_eq!(index(Some("3"), 2, 4), Some(3));
        assert_eq!((index(Some(""), 0, 4), index(Some("-1"), 0, 4), index(Some("0,1,9,2"), 2, 4)), (None, None, None));
        assert_eq!(gpu_of_rank(Some("GPU-1b,GPU-2c"), 1, 4), Some(GpuId::Uuid("GPU-2c".to_owned())));
    }

    #[test]
    fn nvlinks_are_said_before_the_bus() {
        let said = |links, level| describe_connection(links, Some(level));
        assert_eq!(said(18, TopologyLevel::System), "NVLink x18");
        assert_eq!(said(0, TopologyLevel::Single), "same PCIe switch");
        assert_eq!(said(0, TopologyLevel::HostBridge), "same host bridge");
        assert_eq!(said(0, TopologyLevel::Node), "same NUMA node");
        assert_eq!(said(0, TopologyLevel::System), "across NUMA nodes");
        assert_eq!(describe_connection(0, None), "the driver does not say");
        assert_eq!(describe_connection(2, None), "NVLink x2");
    }

    /// Another stand-in, of `COUNT` GPUs, at most 5. GPUs 0 and 1 have two links to each other; GPU 2 has four and GPU 3
    /// three links to a switch; GPU 4 has none, and is on another NUMA node. Each of GPUs 0 to 3 has five links in all, of
    /// which the others are not active.
    const TOPOLOGY_LIBRARY: &str = r#"
        #include <string.h>
        typedef struct { char old[16]; unsigned domain, bus, device, id, sub; char now[32]; } pci;
        static int gpus[5] = {0, 1, 2, 3, 4};
        int nvmlInit_v2(void) { return 0; }
        int nvmlShutdown(void) { return 0; }
        const char *nvmlErrorString(int e) { return "error"; }
        int nvmlDeviceGetCount_v2(unsigned *n) { *n = COUNT; return 0; }
        int nvmlDeviceGetHandleByIndex_v2(unsigned i, int **d) { if (i > 4) return 2; *d = &gpus[i]; return 0; }
        int nvmlDeviceGetPciInfo_v3(int *d, pci *p) { memset(p, 0, sizeof *p); p->bus = 16 + *d; return 0; }
        int nvmlDeviceGetNvLinkState(int *d, unsigned link, unsigned *active) {
            static const int links[5] = {2, 2, 4, 3, 0};
            if (*d == 4) return 3;
            if (link > 4) return 2;
            *active = link < links[*d];
            return 0;
        }
        int nvmlDeviceGetNvLinkRemotePciInfo_v2(int *d, unsigned link, pci *p) {
            memset(p, 0, sizeof *p);
            p->bus = *d < 2 ? 16 + (1 - *d) : 99;
            return 0;
        }
        int nvmlDeviceGetP2PStatus(int *a, int *b, int index, int *status) {
            *status = index == 2 && *a + *b == 5 && *a < 4 && *b < 4 ? 0 : 5;
            return 0;
        }
        int nvmlDeviceGetTopologyCommonAncestor(int *a, int *b, int *level) { *level = *a == 4 || *b == 4 ? 50 : 40; return 0; }
    "#;

    fn lines_of(count: u32) -> Vec<String> {
        topology_lines(&load(&format!("#define COUNT {count}\n{TOPOLOGY_LIBRARY}")))
    }

    #[test]
    fn pairs_are_connected_as_nvml_says() {
        assert_eq!(lines_of(1), Vec::<String>::new());
        let expected = [
            "GPU 0 - GPU 1: NVLink x2",
            "GPU 0 - GPU 2: same NUMA node",
            "GPU 0 - GPU 3: same NUMA node",
            "GPU 0 - GPU 4: across NUMA nodes",
            "GPU 1 - GPU 2: same NUMA node",
            "GPU 1 - GPU 3: same NUMA node",
            "GPU 1 - GPU 4: across NUMA nodes",
            "GPU 2 - GPU 3: NVLink x3",
            "GPU 2 - GPU 4: across NUMA nodes",
            "GPU 3 - GPU 4: across NUMA nodes",
        ];
        assert_eq!(lines_of(5), expected);
    }
}
