//! A cluster that lives as long as a test: slurm/dev-cluster/README.md says what its options are.

use std::ffi::OsString;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use expctl::launch::slurm::SlurmBackend;
use slurm_client::{Availability, Slurm};
use test_support::{Requirement, skip};

use super::second_user::SecondUser;

/// A running development cluster; ended and wiped when dropped, also by a failing test, and by its guard when the test process
/// is killed.
pub struct Cluster {
    folder: tempfile::TempDir,
    environment: Vec<(OsString, OsString)>,
    /// The cluster as the launcher sees it.
    pub slurm: Slurm,
}

impl Cluster {
    /// Start a cluster of two nodes, or as `options` of up.sh say; `None`, with a line on stderr that no test harness hides,
    /// where that cannot work.
    pub fn start(options: &[&str]) -> Option<Self> {
        Self::start_by(options, Command::new)
    }

    /// The same where a second user is known, who may submit to it. What [`installed`] installs has to be there before that user.
    pub fn start_for(user: &SecondUser, options: &[&str]) -> Option<Self> {
        Self::start_by(options, |up| user.command(up))
    }

    /// Start it by the command that `command` makes of the path of up.sh.
    fn start_by(options: &[&str], command: impl FnOnce(PathBuf) -> Command) -> Option<Self> {
        if !installed(options) {
            return None;
        }
        let folder = tempfile::Builder::new().prefix("expctl-slurm-").tempdir().unwrap();
        let (path, owner) = (folder.path().to_str().unwrap().to_owned(), std::process::id().to_string());
        let mut cluster = Self { folder, environment: Vec::new(), slurm: Slurm::from_environment() };
        let up = command(script_path("up.sh"))
            .args([path.as_str(), "--owner", owner.as_str()])
            .args(options)
            .output()
            .unwrap();
        assert!(up.status.success(), "up.sh: {}", String::from_utf8_lossy(&up.stderr));
        cluster.environment = variables(&cluster.path().join("env"));
        for (name, value) in &cluster.environment {
            cluster.slurm = cluster.slurm.clone().with_variable(name, value);
        }
        Some(cluster)
    }

    /// The backend on this cluster.
    pub fn backend(&self) -> SlurmBackend {
        SlurmBackend::new(self.slurm.clone())
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Its slurm.conf.
    pub fn conf(&self) -> PathBuf {
        self.path().join("etc/slurm.conf")
    }

    /// What a command needs to speak to this cluster: SLURM_CONF, PATH and, with `--rest`, SLURMRESTD_URL.
    pub fn env(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.environment.iter().map(|(name, value)| (name, value))
    }

    /// Where slurmrestd answers (`--rest`); with `--netns` only commands of [`Self::inside`] reach it.
    pub fn rest_url(&self) -> String {
        let (_, url) = self.env().find(|(name, _)| *name == "SLURMRESTD_URL").unwrap();
        url.to_str().unwrap().to_owned()
    }

    /// A token of ten minutes for slurmrestd.
    pub fn token(&self, user: &str) -> String {
        let answer = self.ask("scontrol", &["token", &format!("username={user}"), "lifespan=600"]);
        answer.trim().strip_prefix("SLURM_JWT=").unwrap().to_owned()
    }

    /// A command that runs in the cluster's network, where the controller and slurmrestd are.
    pub fn inside(&self, program: &str) -> Command {
        let mut command = Command::new(self.path().join("enter"));
        command.arg(program);
        command
    }

    /// Run a command as an ordinary user, in a home folder of the cluster's. `nobody` will do; with `--dbd` up.sh must have
    /// got the name (`--users root,nobody`). The user may not reach what lies under root's home.
    pub fn as_user(&self, user: &str, command: &[&str]) -> Output {
        script("as.sh", &[&[self.path().to_str().unwrap(), user], command].concat())
    }

    /// The home folder of [`Self::as_user`].
    pub fn home(&self, user: &str) -> PathBuf {
        self.path().join("home").join(user)
    }

    /// What a Slurm command prints.
    pub fn ask(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.try_ask(program, arguments);
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, where it may fail.
    pub fn try_ask(&self, program: &str, arguments: &[&str]) -> Output {
        Command::new(program).args(arguments).envs(self.env()).output().unwrap()
    }

    /// All that the controller knows about an array task.
    pub fn task(&self, job: u64, index: usize) -> String {
        self.ask("scontrol", &["--oneliner", "show", "job", &format!("{job}_{index}")])
    }

    /// Do something to a node or a service (`ctld`, `dbd`, `rest`): see node.sh.
    pub fn node(&self, act: &str, node: &str) {
        let done = script("node.sh", &[act, self.path().to_str().unwrap(), node]);
        assert!(done.status.success(), "node.sh {act} {node}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Take a node's network away (`--netns`): it runs on alone.
    pub fn cut(&self, node: &str) {
        self.node("cut", node);
    }

    /// Give a node its network back.
    pub fn join(&self, node: &str) {
        self.node("join", node);
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
            assert!(start.elapsed() < Duration::from_secs(120), "{what} did not come; {}", self.ask("squeue", &[]));
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

/// A running slurmrestd that takes tokens, for a cluster without `--rest`; ends with the value.
pub struct RestServer {
    server: Child,
    /// Its address.
    pub url: String,
}

impl RestServer {
    /// Give the cluster's controller a key for tokens, restart it, and start slurmrestd.
    pub fn start(cluster: &Cluster) -> Self {
        install_rest();
        let conf = cluster.conf();
        let key = conf.with_file_name("jwt.key");
        std::fs::write(&key, "a key of thirty-two bytes or more").unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        let mut file = std::fs::OpenOptions::new().append(true).open(&conf).unwrap();
        writeln!(file, "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={}", key.display()).unwrap();
        cluster.node("down", "ctld");
        cluster.node("up", "ctld");
        // A controller that answers may still be the one that ends, or not know its key yet.
        cluster.until("a token", || cluster.slurm.run("scontrol", ["token", "lifespan=60"]).is_ok());

        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        // It runs neither as root nor as SlurmUser. The interface of the accounting is left out: with it, slurmrestd 22.05 does
        // not start on a cluster that has no accounting.
        let server = Command::new("setpriv")
            .args(["--reuid", "slurm", "--regid", "slurm", "--clear-groups"])
            .args(["slurmrestd", "-s", "openapi/v0.0.38", "-a", "rest_auth/jwt", &address])
            .env("SLURM_CONF", &conf)
            .env("SLURM_JWT", "daemon")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(conf.with_file_name("slurmrestd.log")).unwrap())
            .spawn()
            .unwrap();
        let mut started = Self { server, url: format!("http://{address}") };
        let start = Instant::now();
        while TcpStream::connect(&address).is_err() {
            let log = || std::fs::read_to_string(conf.with_file_name("slurmrestd.log")).unwrap_or_default();
            assert!(started.server.try_wait().unwrap().is_none(), "slurmrestd ended: {}", log());
            assert!(start.elapsed() < Duration::from_secs(60), "slurmrestd does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        started
    }
}

impl Drop for RestServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Debian's packages; a machine that has them is left alone.
fn install_rest() {
    let there = |path: &str| Path::new(path).exists();
    if there("/usr/sbin/slurmrestd") && there("/usr/lib/x86_64-linux-gnu/slurm-wlm/auth_jwt.so") {
        return;
    }
    let packages = ["install", "-y", "-q", "--no-install-recommends", "slurmrestd", "slurm-wlm-jwt-plugin"];
    let done = Command::new("apt-get").args(packages).env("DEBIAN_FRONTEND", "noninteractive").output().unwrap();
    assert!(done.status.success(), "apt-get: {}", String::from_utf8_lossy(&done.stderr));
}

/// A newer Slurm (24.11) for `--slurm`, fetched when first asked for; `None` where no cluster can run.
pub fn newer_slurm() -> Option<&'static str> {
    // Jobs of every user run its programs, so not under a home.
    const PREFIX: &str = "/var/tmp/expctl-slurm-trixie";
    if !installed(&[]) {
        return None;
    }
    let newer = command("newer.sh", &[PREFIX]).stdin(Stdio::null()).stderr(Stdio::inherit()).status().unwrap();
    assert!(newer.success(), "newer.sh failed");
    Some(PREFIX)
}

/// Whether a cluster with these options can run here, with its packages installed.
pub fn installed(options: &[&str]) -> bool {
    if let Some(missing) = missing() {
        skip(Requirement::Slurm, format!("a development Slurm cluster {missing}"));
        return false;
    }
    // Its words go to the terminal: whoever runs the tests sees what is installed on the machine, and why that failed.
    let accounting: &[&str] = if options.contains(&"--dbd") { &["--dbd"] } else { &[] };
    let installed = command("install.sh", accounting).stdin(Stdio::null()).stderr(Stdio::inherit()).status().unwrap();
    assert!(installed.success(), "install.sh failed");
    true
}

/// What a cluster's env file sets.
fn variables(file: &Path) -> Vec<(OsString, OsString)> {
    let output = Command::new("sh").args(["-c", ". \"$0\" && env -0"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    let pairs = output.stdout.split(|byte| *byte == 0).filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        Some((OsString::from_vec(entry[..at].to_vec()), OsString::from_vec(entry[at + 1..].to_vec())))
    });
    pairs.filter(|(name, _)| ["SLURM_CONF", "PATH", "SLURMRESTD_URL"].iter().any(|wanted| name == wanted)).collect()
}

/// What this machine lacks for a cluster of virtual nodes.
fn missing() -> Option<String> {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return Some("needs root".to_owned());
    }
    if !Path::new("/etc/debian_version").exists() {
        return Some("needs Debian".to_owned());
    }
    // What node.sh and netns.sh do. Root in an ordinary container may not.
    let hosts = "mount --bind /etc/hosts /etc/hosts && hostname n1";
    let probe = ["--mount", "--propagation", "slave", "--uts", "--net", "sh", "-c", hosts];
    let why = match Command::new("unshare").args(probe).output() {
        Ok(output) if output.status.success() => return None,
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(e) => e.to_string(),
    };
    Some(format!("needs mount, UTS and network namespaces, which root may not make here ({why})"))
}

pub fn script(name: &str, arguments: &[&str]) -> Output {
    command(name, arguments).output().unwrap()
}

fn command(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(script_path(name));
    command.args(arguments);
    command
}

fn script_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("slurm/dev-cluster").join(name)
}
