//! What /proc and the GPUs' driver say about this node. Unknown fields stay empty: nothing of it is needed
//! to run.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::cgroup::limits;
use crate::{Gpu, Hardware};

/// How long the GPUs' driver may take to answer: one that is broken can take for ever.
const DRIVER_PATIENCE: Duration = Duration::from_secs(5);

/// This node, as this rank sees it, without the GPU that the rank computes on. With `ask_driver` the size of the GPUs' memory is found out too, which takes a process.
pub fn hardware(ask_driver: bool) -> Hardware {
    let memory = memory("MemTotal").unwrap_or(0);
    let kernel = nix::sys::utsname::uname().map(|u| u.release().to_string_lossy().into_owned());
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let (memory_limit_bytes, cpu_limit_milli) = limits(&groups, Path::new("/sys/fs/cgroup"), memory);
    let (gpus, gpu_driver) = gpus(Path::new("/proc/driver/nvidia"), ask_driver);
    // SAFETY: returns a text that is part of the library and never changes.
    let glibc = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    Hardware {
        host: nix::unistd::gethostname().map(|h| h.to_string_lossy().into_owned()).unwrap_or_default(),
        cpu: field("/proc/cpuinfo", "model name").unwrap_or_default(),
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        memory_bytes: memory,
        kernel: kernel.unwrap_or_default(),
        memory_limit_bytes,
        cpu_limit_milli,
        glibc: glibc.to_string_lossy().into_owned(),
        gpus,
        gpu_driver,
        cuda_visible_devices: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        device: None,
    }
}

/// Bytes that this rank and the others of its node may still take: what is free here, or the limit of the control group if that
/// is less; without bound where neither is known.
pub fn free_memory() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let (limit, _) = limits(&groups, Path::new("/sys/fs/cgroup"), 0);
    memory("MemAvailable").into_iter().chain(limit).min().unwrap_or(u64::MAX)
}

/// The most memory that this process had resident at once so far, bytes (`VmHWM`).
pub fn peak_resident() -> Option<u64> {
    bytes("/proc/self/status", "VmHWM")
}

/// A line of /proc/meminfo, in bytes.
fn memory(name: &str) -> Option<u64> {
    bytes("/proc/meminfo", name)
}

/// A line in kB, in bytes.
fn bytes(path: &str, name: &str) -> Option<u64> {
    let kib = field(path, name)?.split_whitespace().next()?.parse::<u64>().ok()?;
    Some(kib * 1024)
}

fn field(path: impl AsRef<Path>, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The node's GPUs and the version of their driver.
fn gpus(driver: &Path, ask: bool) -> (Vec<Gpu>, String) {
    let version = std::fs::read_to_string(driver.join("version")).ok().and_then(|text| driver_version(&text));
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(driver.join("gpus")).into_iter().flatten().flatten().map(|e| e.path()).collect();
    folders.sort();
    let found = folders.iter().map(|folder| folder.join("information")).map(|path| Gpu {
        name: field(&path, "Model:").unwrap_or_default(),
        memory_bytes: None,
        bus: field(&path, "Bus Location:").unwrap_or_default(),
    });
    let mut found: Vec<Gpu> = found.collect();
    let version = version.unwrap_or_default();
    // Without its /proc entries there is no driver to ask.
    if ask
        && !version.is_empty()
        && let Some(told) = tell().filter(|told| !told.is_empty())
    {
        found = told;
    }
    (found, version)
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar ...`, or `... Open Kernel Module for x86_64  ...`.
fn driver_version(text: &str) -> Option<String> {
    let line = text.lines().find(|l| l.starts_with("NVRM version:"))?;
    let is_version = |word: &&str| word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    line.split_whitespace().find(is_version).map(str::to_owned)
}

/// What nvidia-smi says; none if it is not there or does not answer in time.
fn tell() -> Option<Vec<Gpu>> {
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
            Ok(None) if since.elapsed() < DRIVER_PATIENCE => std::thread::sleep(Duration::from_millis(20)),
            // Not waited for after that: one that hangs inside the driver does not even end when it is killed.
            _ => return child.kill().ok().and(None),
        }
    }
    // It has ended, and its few lines fit into the pipe.
    let output = child.wait_with_output().ok().filter(|output| output.status.success())?;
    Some(parse_smi(&String::from_utf8_lossy(&output.stdout)))
}

/// Lines `<bus>, <MiB>, <name>`.
fn parse_smi(text: &str) -> Vec<Gpu> {
    let row = |line: &str| {
        let mut parts = line.splitn(3, ',').map(str::trim);
        let (bus, memory, name) = (parts.next()?, parts.next()?, parts.next()?);
        let memory_bytes = memory.parse::<u64>().ok().map(|mib| mib << 20);
        Some(Gpu { name: name.to_owned(), memory_bytes, bus: bus.to_owned() })
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_file::file;

    #[test]
    fn this_machine_has_what_every_machine_has() {
        let found = hardware(true);
        assert!(!found.host.is_empty() && found.cpus > 0 && found.memory_bytes > 1 << 20);
        assert!(found.glibc.starts_with("2.") && !found.kernel.is_empty(), "{found:?}");
        assert!(found.memory_limit_bytes.is_none_or(|limit| limit < found.memory_bytes));
    }

    #[test]
    fn the_drivers_files_and_tool_are_read() {
        let driver = tempfile::tempdir().unwrap();
        assert_eq!(gpus(driver.path(), true), (Vec::new(), String::new()));
        let line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (x@y)\nGCC version: 12.2.0";
        file(&driver.path().join("version"), line);
        let information = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 0\nBus Location: \t 0000:19:00.0\n";
        file(&driver.path().join("gpus/0000:19:00.0/information"), information);
        let gpu = Gpu { name: "NVIDIA H200".into(), memory_bytes: None, bus: "0000:19:00.0".into() };
        assert_eq!(gpus(driver.path(), false), (vec![gpu], "570.86.15".to_owned()));
        let told = parse_smi("00000000:19:00.0, 143771, NVIDIA H200\n[N/A]\n");
        assert_eq!((told.len(), told[0].memory_bytes), (1, Some(143_771 << 20)));
        assert_eq!(told[0].name, "NVIDIA H200");
    }
}
