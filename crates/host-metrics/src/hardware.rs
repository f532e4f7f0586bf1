//! The machine: processor, memory, kernel and GPUs, from /proc and the GPUs' driver. Fields that the system does not give stay empty,
//! because nothing of them is needed to run.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::control_group::GroupLimits;

/// Time limit of an answer of the GPUs' driver: a broken one may never answer.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(5);

/// A GPU of the node, whether the rank may use it or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Model.
    pub name: String,
    /// Its memory, bytes. `None`: nvidia-smi is missing or was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Address on the bus, as the driver writes it.
    #[serde(default)]
    pub bus: String,
}

/// The GPU that a rank computes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankDevice {
    /// Its number among those that the rank's process sees, from 0.
    pub index: u32,
    /// Model.
    pub name: String,
    /// The driver's name of this very GPU, `GPU-…`.
    #[serde(default)]
    pub uuid: String,
    /// Address on the bus, as the driver writes it.
    #[serde(default)]
    pub bus: String,
    /// Its memory, bytes.
    pub memory_bytes: u64,
    /// Compute capability, `9.0`.
    #[serde(default)]
    pub capability: String,
}

/// Hardware of the node that a rank ran on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// Name of the node.
    pub host: String,
    /// Processor model.
    pub cpu: String,
    /// Processors that the rank may use.
    pub cpus: u32,
    /// Memory of the node, bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Memory that the rank's control group may use, bytes. `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Processor time that the rank's control group may use, thousandths of a processor. `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit_milli: Option<u64>,
    /// Version of the C library.
    #[serde(default)]
    pub glibc: String,
    /// GPUs of the node.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// Version of the GPUs' driver; empty without one.
    #[serde(default)]
    pub gpu_driver: String,
    /// `CUDA_VISIBLE_DEVICES` of the rank. `None`: not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_visible_devices: Option<String>,
    /// The GPU that this rank computes on. `None`: it computes on the host, or the rank is the user's own program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<RankDevice>,
}

/// Describe this node as this process sees it, without the GPU that the process computes on. With `ask_driver` nvidia-smi is asked for the
/// memory of the GPUs, which starts a process.
pub fn hardware(ask_driver: bool) -> Hardware {
    let memory_bytes = bytes_in_line("/proc/meminfo", "MemTotal").unwrap_or(0);
    let kernel = nix::sys::utsname::uname().map(|u| u.release().to_string_lossy().into_owned());
    let limits = GroupLimits::of_this_process();
    let (gpus, gpu_driver) = gpus(Path::new("/proc/driver/nvidia"), ask_driver);
    // SAFETY: returns a text that is part of the library and never changes.
    let glibc = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    Hardware {
        host: nix::unistd::gethostname().map(|h| h.to_string_lossy().into_owned()).unwrap_or_default(),
        cpu: value_in_line("/proc/cpuinfo", "model name").unwrap_or_default(),
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        memory_bytes,
        kernel: kernel.unwrap_or_default(),
        memory_limit_bytes: limits.memory_below(memory_bytes),
        cpu_limit_milli: limits.cpu_milli,
        glibc: glibc.to_string_lossy().into_owned(),
        gpus,
        gpu_driver,
        cuda_visible_devices: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        device: None,
    }
}

/// How many GPUs of NVIDIA are on the PCI bus, whether a driver shows them or not.
pub fn nvidia_gpus_on_bus() -> usize {
    nvidia_gpus_in(Path::new("/sys/bus/pci/devices"))
}

/// Devices with the vendor's number of NVIDIA and a class of displays, which has the GPUs that only compute as well. Their audio and the switches
/// between them are devices of other classes.
fn nvidia_gpus_in(devices: &Path) -> usize {
    let begins = |file: PathBuf, start: &str| std::fs::read_to_string(file).is_ok_and(|text| text.starts_with(start));
    let folders = std::fs::read_dir(devices).into_iter().flatten().flatten().map(|entry| entry.path());
    folders.filter(|device| begins(device.join("vendor"), "0x10de") && begins(device.join("class"), "0x03")).count()
}

/// Whether the processor has instructions for bfloat16 (AVX512_BF16). Without them libtorch converts to float32 and back, which takes
/// longer than computing in float32.
pub fn has_bfloat16() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// The most memory that this process had resident at once so far, bytes (`VmHWM`).
pub fn peak_resident() -> Option<u64> {
    bytes_in_line("/proc/self/status", "VmHWM")
}

/// Memory of the machine that programs may still take without swapping, bytes.
pub(crate) fn available_memory() -> Option<u64> {
    bytes_in_line("/proc/meminfo", "MemAvailable")
}

/// Value of the line `<name>: <n> kB`, bytes.
fn bytes_in_line(path: &str, name: &str) -> Option<u64> {
    let kib = value_in_line(path, name)?.split_whitespace().next()?.parse::<u64>().ok()?;
    Some(kib * 1024)
}

/// Text behind the colon of the first line that begins with `name`.
fn value_in_line(path: impl AsRef<Path>, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The node's GPUs and the version of their driver.
fn gpus(driver: &Path, ask_driver: bool) -> (Vec<Gpu>, String) {
    let version = std::fs::read_to_string(driver.join("version")).ok().and_then(|text| driver_version(&text));
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(driver.join("gpus")).into_iter().flatten().flatten().map(|e| e.path()).collect();
    folders.sort();
    let found = folders.iter().map(|folder| folder.join("information")).map(|path| Gpu {
        name: value_in_line(&path, "Model:").unwrap_or_default(),
        memory_bytes: None,
        bus: value_in_line(&path, "Bus Location:").unwrap_or_default(),
    });
    let mut found: Vec<Gpu> = found.collect();
    let version = version.unwrap_or_default();
    // Without its /proc entries there is no driver to ask.
    if ask_driver
        && !version.is_empty()
        && let Some(answered) = ask_nvidia_smi().filter(|answered| !answered.is_empty())
    {
        found = answered;
    }
    (found, version)
}

/// Version in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar ...`, or `... Open Kernel Module for x86_64  ...`.
fn driver_version(text: &str) -> Option<String> {
    let line = text.lines().find(|l| l.starts_with("NVRM version:"))?;
    let is_version = |word: &&str| word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    line.split_whitespace().find(is_version).map(str::to_owned)
}

/// GPUs as nvidia-smi lists them. `None`: it is missing, or does not answer in time.
fn ask_nvidia_smi() -> Option<Vec<Gpu>> {
    let query = ["--query-gpu=pci.bus_id,memory.total,name", "--format=csv,noheader,nounits"];
    let mut child = Command::new("nvidia-smi")
        .args(query)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let since = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if since.elapsed() < DRIVER_TIMEOUT => std::thread::sleep(Duration::from_millis(20)),
            // Not waited for after that: one that hangs inside the driver does not even end when it is killed.
            _ => return child.kill().ok().and(None),
        }
    }
    // It has ended, and its few lines fit into the pipe.
    let output = child.wait_with_output().ok().filter(|output| output.status.success())?;
    Some(parse_nvidia_smi(&String::from_utf8_lossy(&output.stdout)))
}

/// Lines `<bus>, <MiB>, <name>`.
fn parse_nvidia_smi(text: &str) -> Vec<Gpu> {
    let row = |line: &str| {
        let mut parts = line.splitn(3, ',').map(str::trim);
        let (bus, memory, name) = (parts.next()?, parts.next()?, parts.next()?);
        let memory_bytes = memory.parse::<u64>().ok().map(|mib| mib << 20);
        Some(Gpu { name: name.to_owned(), memory_bytes, bus: bus.to_owned() })
    };
    text.lines().filter_map(row).collect()
}

/// Write a file of a test, with its folders.
#[cfg(test)]
pub(crate) fn write_test_file(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_what_every_machine_has() {
        let found = hardware(true);
        assert!(!found.host.is_empty() && found.cpus > 0 && found.memory_bytes > 1 << 20);
        assert!(found.glibc.starts_with("2.") && !found.kernel.is_empty(), "{found:?}");
        assert!(found.memory_limit_bytes.is_none_or(|limit| limit < found.memory_bytes));
    }

    #[test]
    fn gpus_on_the_bus_are_nvidias_devices_of_a_class_of_displays() {
        let bus = tempfile::tempdir().unwrap();
        assert_eq!((nvidia_gpus_in(bus.path()), nvidia_gpus_in(&bus.path().join("none"))), (0, 0));
        for (address, vendor, class) in [
            ("0000:19:00.0", "0x10de", "0x030200"),
            ("0000:1a:00.0", "0x10de", "0x030000"),
            ("0000:1a:00.1", "0x10de", "0x040300"),
            ("0000:00:02.0", "0x8086", "0x030000"),
        ] {
            write_test_file(&bus.path().join(address).join("vendor"), &format!("{vendor}\n"));
            write_test_file(&bus.path().join(address).join("class"), &format!("{class}\n"));
        }
        assert_eq!(nvidia_gpus_in(bus.path()), 2);
    }

    #[test]
    fn the_drivers_files_and_tool_are_read() {
        let driver = tempfile::tempdir().unwrap();
        assert_eq!(gpus(driver.path(), true), (Vec::new(), String::new()));
        let line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (x@y)\nGCC version: 12.2.0";
        write_test_file(&driver.path().join("version"), line);
        let information = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 0\nBus Location: \t 0000:19:00.0\n";
        write_test_file(&driver.path().join("gpus/0000:19:00.0/information"), information);
        let gpu = Gpu { name: "NVIDIA H200".into(), memory_bytes: None, bus: "0000:19:00.0".into() };
        assert_eq!(gpus(driver.path(), false), (vec![gpu], "570.86.15".to_owned()));
        let answered = parse_nvidia_smi("00000000:19:00.0, 143771, NVIDIA H200\n[N/A]\n");
        assert_eq!((answered.len(), answered[0].memory_bytes), (1, Some(143_771 << 20)));
        assert_eq!(answered[0].name, "NVIDIA H200");
    }
}
