use std::path::PathBuf;

use crate::exit::Failure;

/// The `expctl-worker` to start: `EXPCTL_WORKER`, or the one beside this program.
pub fn worker_binary() -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os("EXPCTL_WORKER").filter(|p| !p.is_empty()) {
        let path = PathBuf::from(path);
        return std::path::absolute(&path)
            .ok()
            .filter(|p| p.is_file())
            .ok_or_else(|| Failure::internal(format!("EXPCTL_WORKER names {}, which is no file", path.display())));
    }
    let here = std::env::current_exe().map_err(|e| Failure::internal(format!("cannot find this program: {e}")))?;
    let beside = here.with_file_name("expctl-worker");
    if beside.is_file() {
        return Ok(beside);
    }
    Err(Failure::internal(format!("there is no expctl-worker beside {}", here.display()))
        .hint("build it with `make build`, or set EXPCTL_WORKER"))
}
