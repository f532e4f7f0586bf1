use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus, TopologyLevel};
use nvml_wrapper::struct_wrappers::device::PciInfo;
use nvml_wrapper::{Device, Nvml};

use super::gpu::load_nvml;

/// More than any GPU has; asking ends at the first that there is not.
const MOST_LINKS: u32 = 64;

/// How each pair of the node's GPUs is connected, one line a pair: `GPU 0 - GPU 1: NVLink x18`, or the nearest thing above both on
/// the bus, `GPU 0 - GPU 1: same NUMA node`. Numbers are those of `nvidia-smi`, which `CUDA_VISIBLE_DEVICES` does not change. Empty
/// without a driver and with a single GPU; a GPU that does not answer is left out.
pub fn gpu_topology() -> Vec<String> {
    load_nvml().map(|nvml| lines(&nvml)).unwrap_or_default()
}

/// The lines of all GPUs that NVML has.
fn lines(nvml: &Nvml) -> Vec<String> {
    let count = nvml.device_count().unwrap_or(0);
    if count < 2 {
        return Vec::new();
    }
    let gpus: Vec<(u32, GpuLinks<'_>)> =
        (0..count).filter_map(|index| Some((index, GpuLinks::of(nvml.device_by_index(index).ok()?)))).collect();
    let mut lines = Vec::new();
    for (place, (a, one)) in gpus.iter().enumerate() {
        for (b, other) in &gpus[place + 1..] {
            lines.push(format!("GPU {a} - GPU {b}: {}", words(one.to(other), one.ancestor(nvml, *b))));
        }
    }
    lines
}

/// A GPU and its NVLinks.
struct GpuLinks<'nvml> {
    device: Device<'nvml>,
    place: Option<BusPlace>,
    /// What is at the other end of each active link; none where NVML does not say.
    ends: Vec<Option<BusPlace>>,
}

/// Domain, bus and device on the PCI bus.
type BusPlace = (u32, u32, u32);

impl<'nvml> GpuLinks<'nvml> {
    fn of(device: Device<'nvml>) -> Self {
        let place = device.pci_info().ok().map(bus_place);
        let links = (0..MOST_LINKS).map(|link| device.link_wrapper_for(link));
        // An error: there is no such link, or the GPU has none.
        let active = links.map_while(|link| link.is_active().ok().map(|active| active.then_some(link))).flatten();
        let ends = active.map(|link| link.remote_pci_info().ok().map(bus_place)).collect();
        Self { device, place, ends }
    }

    /// The number of active NVLinks between two GPUs. Links through a switch do not end at the other GPU: there, whether they
    /// connect the two is what the driver says of the pair, and their number is the smaller one of both GPUs' links.
    fn to(&self, other: &Self) -> usize {
        let direct = self.ends.iter().filter(|end| end.is_some() && **end == other.place).count();
        if direct > 0 {
            return direct;
        }
        // NVML can be asked for the kind of the other end, too, but nvml-wrapper 0.12 loses the answer.
        match self.device.p2p_status(&other.device, P2pCapabilitiesIndex::NvLink) {
            Ok(P2pStatus::Ok) => self.ends.len().min(other.ends.len()),
            _ => 0,
        }
    }

    fn ancestor(&self, nvml: &Nvml, other: u32) -> Option<TopologyLevel> {
        self.device.topology_common_ancestor(nvml.device_by_index(other).ok()?).ok()
    }
}

fn bus_place(info: PciInfo) -> BusPlace {
    (info.domain, info.bus, info.device)
}

/// What a line says of a pair with this many NVLinks between them and this common ancestor on the bus.
fn words(links: usize, ancestor: Option<TopologyLevel>) -> String {
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

    #[test]
    fn nvlinks_are_said_before_the_bus() {
        let said = |links, level| words(links, Some(level));
        assert_eq!(said(18, TopologyLevel::System), "NVLink x18");
        assert_eq!(said(0, TopologyLevel::Single), "same PCIe switch");
        assert_eq!(said(0, TopologyLevel::HostBridge), "same host bridge");
        assert_eq!(said(0, TopologyLevel::Node), "same NUMA node");
        assert_eq!(said(0, TopologyLevel::System), "across NUMA nodes");
        assert_eq!(words(0, None), "the driver does not say");
        assert_eq!(words(2, None), "NVLink x2");
    }

    /// The calls of NVML that are used, as its header declares them: GPUs 0 and 1 have two links to each other, GPUs 2 and 3 four and
    /// three to a switch, GPU 4 none. Of links 0 to 4 the last is not active. GPU 4 is on another NUMA node.
    const LIBRARY: &str = r#"
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
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("nvml.c"), dir.path().join("libnvidia-ml.so.1"));
        std::fs::write(&source, format!("#define COUNT {count}\n{LIBRARY}")).unwrap();
        let built =
            std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(built.unwrap().success());
        lines(&Nvml::builder().lib_path(library.as_os_str()).init().unwrap())
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
