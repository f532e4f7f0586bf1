//! A slurmrestd for a test's cluster, as long as the value lives.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::cluster::Cluster;

/// A running slurmrestd that takes tokens.
pub struct RestServer {
    server: Child,
    /// Its address.
    pub url: String,
}

impl RestServer {
    /// Give the cluster's controller a key for tokens, restart it, and start slurmrestd.
    pub fn start(cluster: &Cluster) -> Self {
        install();
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
fn install() {
    let there = |path: &str| Path::new(path).exists();
    if there("/usr/sbin/slurmrestd") && there("/usr/lib/x86_64-linux-gnu/slurm-wlm/auth_jwt.so") {
        return;
    }
    let packages = ["install", "-y", "-q", "--no-install-recommends", "slurmrestd", "slurm-wlm-jwt-plugin"];
    let done = Command::new("apt-get").args(packages).env("DEBIAN_FRONTEND", "noninteractive").output().unwrap();
    assert!(done.status.success(), "apt-get: {}", String::from_utf8_lossy(&done.stderr));
}
