//! A cluster that lives as long as a test.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use expctl::launch::slurm::Slurm;

/// A running development cluster; ended and wiped when dropped, also by a failing test.
pub struct Cluster {
    folder: tempfile::TempDir,
    /// The cluster as the launcher sees it.
    pub slurm: Slurm,
}

impl Cluster {
    /// Start a cluster of two nodes; `None`, with a line on stderr that no test harness hides, where that cannot work.
    pub fn start(options: &[&str]) -> Option<Self> {
        let missing = if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
            "needs root"
        } else if !std::path::Path::new("/etc/debian_version").exists() {
            "needs Debian"
        } else {
            let installed = script("install.sh", &[]);
            assert!(installed.status.success(), "install.sh: {}", String::from_utf8_lossy(&installed.stderr));
            let folder = tempfile::Builder::new().prefix("expctl-slurm-").tempdir().unwrap();
            let path = folder.path().to_str().unwrap().to_owned();
            let conf = folder.path().join("etc/slurm.conf");
            let cluster = Self { folder, slurm: Slurm::from_environment().with_variable("SLURM_CONF", conf) };
            let up = script("up.sh", &[&[path.as_str()], options].concat());
            assert!(up.status.success(), "up.sh: {}", String::from_utf8_lossy(&up.stderr));
            return Some(cluster);
        };
        skip(&format!("a development Slurm cluster {missing}"));
        None
    }

    /// Its slurm.conf.
    pub fn conf(&self) -> PathBuf {
        self.folder.path().join("etc/slurm.conf")
    }

    /// What a Slurm command prints.
    pub fn ask(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).env("SLURM_CONF", self.conf()).output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// All that the controller knows about an array task.
    pub fn task(&self, job: u64, index: usize) -> String {
        self.ask("scontrol", &["--oneliner", "show", "job", &format!("{job}_{index}")])
    }

    /// Do something to a node: see node.sh.
    pub fn node(&self, act: &str, node: &str) {
        let done = script("node.sh", &[act, self.folder.path().to_str().unwrap(), node]);
        assert!(done.status.success(), "node.sh {act} {node}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Let the controller forget all jobs, as it does with old ones after MinJobAge.
    pub fn forget_jobs(&self) {
        self.node("down", "ctld");
        for state in ["job_state", "job_state.old"] {
            let _ = std::fs::remove_file(self.folder.path().join("state").join(state));
        }
        self.node("up", "ctld");
        self.until("the controller", || self.slurm.is_available());
    }

    /// Wait for something that a cluster at work does within seconds.
    pub fn until(&self, what: &str, happened: impl Fn() -> bool) {
        let start = Instant::now();
        while !happened() {
            assert!(start.elapsed() < Duration::from_secs(60), "{what} did not come; {}", self.ask("squeue", &[]));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let down = script("down.sh", &[self.folder.path().to_str().unwrap()]);
        if !down.status.success() {
            let _ = std::io::stderr().write_all(&down.stderr);
        }
    }
}

/// Say on stderr, past the harness that captures what tests print, that a test did not run.
pub fn skip(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    std::io::stderr().write_all(format!("SKIPPED {name}: {why}\n").as_bytes()).unwrap();
}

fn script(name: &str, arguments: &[&str]) -> std::process::Output {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("slurm/dev-cluster").join(name);
    Command::new(path).args(arguments).output().unwrap()
}
