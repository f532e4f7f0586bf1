//! Where the worker finds its libtorch. The launcher does not link it, so it asks the dynamic linker.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder `lib` of the libtorch that `worker` loads on this machine; none if it is no program or finds none.
pub fn libtorch_folder(worker: &Path) -> Option<PathBuf> {
    let output = Command::new("ldd").arg(worker).env("LC_ALL", "C").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().find(|line| line.trim_start().starts_with("libtorch_cpu.so "))?;
    // `libtorch_cpu.so => /path/libtorch_cpu.so (0x…)`; `not found` is no path.
    let path = line.split_once("=> ")?.1.rsplit_once(" (")?.0;
    Path::new(path).parent().map(Path::to_owned)
}

/// Version of the libtorch with this folder `lib`; none if it brings no file that tells.
pub fn libtorch_version(folder: &Path) -> Option<String> {
    let text = std::fs::read_to_string(folder.parent()?.join("build-version")).ok()?;
    Some(text.trim().to_owned())
}
