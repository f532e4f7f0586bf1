use std::ffi::OsStr;

use expctl_record::HardwareSample;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// Names of the driver's library: development packages alone have the first one.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// NVML, by the first of its names that can be loaded.
///
/// # Errors
/// Says why there is none.
pub(crate) fn load_nvml() -> Result<Nvml, String> {
    let mut why = String::new();
    for library in LIBRARIES {
        match Nvml::builder().lib_path(OsStr::new(library)).init() {
            Ok(nvml) => return Ok(nvml),
            Err(e) => why = format!("{library}: {e}"),
        }
    }
    Err(why)
}

/// The GPU of a rank, asked through NVML, which is loaded at run time: this program needs no driver.
pub(crate) struct Gpu {
    nvml: Nvml,
    place: Place,
}

/// How a GPU is named.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// By its number on the node.
    Index(u32),
    /// By its identity, `GPU-…` or `MIG-…`.
    Uuid(String),
}

impl Gpu {
    /// The GPU of the rank with this number on its node.
    ///
    /// # Errors
    /// Says why there is none to ask.
    pub fn open(local_rank: u32) -> Result<Self, String> {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        Self::of(load_nvml()?, visible.as_deref(), local_rank)
    }

    fn of(nvml: Nvml, visible: Option<&str>, local_rank: u32) -> Result<Self, String> {
        let count = nvml.device_count().map_err(|e| e.to_string())?;
        let place = place(visible, local_rank, count).ok_or("the rank may use no GPU")?;
        let gpu = Self { nvml, place };
        gpu.device().map_err(|e| format!("{:?}: {e}", gpu.place))?;
        Ok(gpu)
    }

    fn device(&self) -> Result<Device<'_>, NvmlError> {
        match &self.place {
            Place::Index(index) => self.nvml.device_by_index(*index),
            Place::Uuid(uuid) => self.nvml.device_by_uuid(uuid.as_str()),
        }
    }

    /// Add what the GPU says now; what it does not say stays none.
    pub fn add_to(&self, sample: &mut HardwareSample) {
        let Ok(device) = self.device() else { return };
        let kilobytes = |counter| device.pcie_throughput(counter).ok().map(|kb| u64::from(kb) * 1000);
        sample.gpu_percent = device.utilization_rates().ok().map(|rates| f64::from(rates.gpu));
        sample.gpu_memory_bytes = device.memory_info().ok().map(|memory| memory.used);
        sample.gpu_power_w = device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0);
        sample.gpu_sm_mhz = device.clock_info(Clock::SM).ok().map(u64::from);
        sample.gpu_memory_mhz = device.clock_info(Clock::Memory).ok().map(u64::from);
        sample.gpu_pcie_received_bytes_per_s = kilobytes(PcieUtilCounter::Receive);
        sample.gpu_pcie_sent_bytes_per_s = kilobytes(PcieUtilCounter::Send);
    }
}

/// Which GPU a rank has: that of its own number among those that `CUDA_VISIBLE_DEVICES` names, all of the node without it; the
/// only one, where its launcher left it one. None where it has none.
fn place(visible: Option<&str>, local_rank: u32, count: u32) -> Option<Place> {
    let named: Vec<Place> = match visible {
        None => (0..count).map(Place::Index).collect(),
        // As CUDA reads it: what stands behind the first name that means nothing is not there.
        Some(list) => list.split(',').map_while(|name| named(name.trim(), count)).collect(),
    };
    match named.as_slice() {
        [only] => Some(only.clone()),
        all => all.get(local_rank as usize).cloned(),
    }
}

fn named(name: &str, count: u32) -> Option<Place> {
    if name.starts_with("GPU-") || name.starts_with("MIG-") {
        return Some(Place::Uuid(name.to_owned()));
    }
    name.parse().ok().filter(|index| *index < count).map(Place::Index)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls of NVML that are used, with two devices of known figures, as its header declares them. No driver is needed to
    /// build it, and none is on most machines that run this test; what real ones answer is for a machine with a GPU to show.
    const LIBRARY: &str = r#"
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
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("nvml.c"), dir.path().join("libnvidia-ml.so.1"));
        std::fs::write(&source, LIBRARY).unwrap();
        let built =
            std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(built.unwrap().success());
        let open = |visible| {
            let nvml = Nvml::builder().lib_path(library.as_os_str()).init().unwrap();
            Gpu::of(nvml, Some(visible), 0)
        };
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
        assert_eq!(open("").err().as_deref(), Some("the rank may use no GPU"));
    }

    #[test]
    fn a_rank_has_the_gpu_that_cuda_would_give_it() {
        let index = |visible: Option<&str>, rank, count| match place(visible, rank, count) {
            Some(Place::Index(index)) => Some(index),
            _ => None,
        };
        assert_eq!(index(None, 2, 4), Some(2));
        assert_eq!(index(None, 4, 4), None);
        assert_eq!(index(Some("3,1"), 1, 4), Some(1));
        // One for each rank, as Slurm binds them.
        assert_eq!(index(Some("3"), 2, 4), Some(3));
        assert_eq!((index(Some(""), 0, 4), index(Some("-1"), 0, 4), index(Some("0,1,9,2"), 2, 4)), (None, None, None));
        assert_eq!(place(Some("GPU-1b,GPU-2c"), 1, 4), Some(Place::Uuid("GPU-2c".to_owned())));
    }
}
