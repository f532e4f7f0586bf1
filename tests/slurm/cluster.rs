//! A cluster that lives as long as a test.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use expctl::launch::slurm::{Availability, Slurm};

/// A running development cluster; ended and wiped when dropped, also by a failing test.
pub struct Cluster {
    folder: tempfile::TempDir,
    /// The cluster as the launcher sees it.
    pub slurm: Slurm,
}

impl Cluster {
    /// Start a cluster of two nodes; `None`, with a line on stderr that no test harness hides, where that cannot work.
    pub fn start(options: &[&str]) -> Option<Self> {
        if let Some(missing) = missing() {
            skip(&format!("a development Slurm cluster {missing}"));
            return None;
        }
        // Its words go to the terminal: whoever runs the tests sees what is installed on the machine, and why that failed.
        let installed = command("install.sh", &[]).stdin(Stdio::null()).stderr(Stdio::inherit()).status().unwrap();
        assert!(installed.success(), "install.sh failed");
        let folder = tempfile::Builder::new().prefix("expctl-slurm-").tempdir().unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        let conf = folder.path().join("etc/slurm.conf");
        let cluster = Self { folder, slurm: Slurm::from_environment().with_variable("SLURM_CONF", conf) };
        let up = script("up.sh", &[&[path.as_str()], options].concat());
        assert!(up.status.success(), "up.sh: {}", String::from_utf8_lossy(&up.stderr));
        Some(cluster)
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
        self.until("the controller", || self.slurm.availability() == Availability::Ready);
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

/// What this machine lacks for a cluster of virtual nodes.
fn missing() -> Option<String> {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return Some("needs root".to_owned());
    }
    if !std::path::Path::new("/etc/debian_version").exists() {
        return Some("needs Debian".to_owned());
    }
    // What node.sh does. Root in an ordinary container may not.
    let hosts = "mount --bind /etc/hosts /etc/hosts && hostname n1";
    let probe = ["--mount", "--propagation", "slave", "--uts", "sh", "-c", hosts];
    let why = match Command::new("unshare").args(probe).output() {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(e) => e.to_string(),
    };
    Some(format!("needs mount and UTS namespaces, which root may not make here ({why})"))
}

/// Say on stderr, past the harness that captures what tests print, that a test did not run.
pub fn skip(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    std::io::stderr().write_all(format!("SKIPPED {name}: {why}\n").as_bytes()).unwrap();
}

fn script(name: &str, arguments: &[&str]) -> std::process::Output {
    command(name, arguments).output().unwrap()
}

fn command(name: &str, arguments: &[&str]) -> Command {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("slurm/dev-cluster").join(name);
    let mut command = Command::new(path);
    command.args(arguments);
    command
}
