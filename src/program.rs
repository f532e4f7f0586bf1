//! Where a program is, without a shell.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Whether a path names a file that may be run.
pub fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// The file that `name` stands for: a path, which starts at `root`, or a name in `PATH`.
///
/// # Errors
/// There is none that may be run; says what was looked at.
pub fn find_program(root: &Path, name: &str) -> Result<PathBuf, String> {
    if name.is_empty() {
        return Err("the name of the program is empty".to_owned());
    }
    if name.contains('/') {
        let path = root.join(name);
        return match path.metadata() {
            Ok(_) if is_program(&path) => Ok(path),
            Ok(found) if found.is_file() => Err(format!("{} may not be run (chmod +x)", path.display())),
            Ok(_) => Err(format!("{} is no file", path.display())),
            Err(_) => Err(format!("there is no {}", path.display())),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&folders).map(|folder| root.join(folder).join(name)).find(|path| is_program(path));
    found.ok_or_else(|| format!("there is no program {name:?} in PATH"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_a_file_that_may_be_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run it");
        std::fs::write(&file, "").unwrap();
        assert!(!is_program(folder.path()) && !is_program(&file));
        let find = |name: &str| find_program(folder.path(), name);
        assert!(find("./run it").unwrap_err().contains("chmod +x"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("./run it").unwrap(), folder.path().join("./run it"));
        assert!(find("sh").unwrap().is_absolute());
        for (name, reason) in [("run it", "in PATH"), ("./gone", "there is no "), ("./", "is no file"), ("", "empty")] {
            assert!(find(name).unwrap_err().contains(reason), "{name}");
        }
    }
}
