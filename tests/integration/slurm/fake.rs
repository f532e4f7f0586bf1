//! Shell scripts in the place of Slurm's commands, for answers that a sound cluster does not give.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use slurm_client::Slurm;

/// A folder of commands that comes first on the path.
pub struct FakeTools {
    folder: tempfile::TempDir,
}

impl FakeTools {
    /// Commands by name, each the body of a shell script that runs in the folder.
    pub fn new(commands: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, body) in commands {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/bash\ncd \"$(dirname \"$0\")\"\n{body}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { folder }
    }

    /// A cluster where `sbatch` answers `submitted` and `squeue` lists `rows`, after one answer that says nothing.
    pub fn cluster(submitted: &str, rows: &str) -> Self {
        let squeue = format!(
            "echo \"$*\" >> asked\n[ -e asked-before ] || {{ touch asked-before; echo greetings; exit; }}\n\
             printf 'JOBID|STATE|REASON\\n{rows}'"
        );
        let sbatch = format!("echo '{submitted}'");
        Self::new(&[("sbatch", &sbatch), ("scontrol", "true"), ("scancel", "true"), ("squeue", &squeue)])
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A value for `PATH`.
    pub fn path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.folder.path().display())
    }

    pub fn slurm(&self) -> Slurm {
        Slurm::from_environment().with_variable("PATH", self.path())
    }

    /// Arguments of each call of squeue.
    pub fn asked(&self) -> Vec<String> {
        let log: PathBuf = self.folder.path().join("asked");
        std::fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect()
    }
}
