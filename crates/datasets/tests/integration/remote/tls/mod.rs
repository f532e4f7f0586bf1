//! A file of a server asked over TLS: read where its certificate is trusted, and never from plain HTTP that the server leads to.
//!
//! The client trusts what `SSL_CERT_FILE` names, which is for a whole process: it is this test executable, started once more.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use expctl_settings::ArrayFormat;

use super::{everything, impatient, open, world};

/// Certificate and key of a server at 127.0.0.1 until 2126, as `openssl req -x509 -addext subjectAltName=IP:127.0.0.1` makes them. Nothing but
/// this test trusts it.
const CERTIFICATE: &str = "tests/integration/remote/tls/test_only.pem";

/// The variable that tells the client where the servers are.
const PORTS: &str = "EXPCTL_TEST_TLS_PORTS";

/// Ends the server with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_asked_over_tls_cannot_lead_to_plain_http() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let (log, file) = (folder.path().join("plain.log"), world().files(ArrayFormat::H5ad).remove(0));
    std::fs::write(&log, "").unwrap();
    let mut python = Command::new("python3");
    python.arg(here.join("tests/integration/remote/tls/server.py")).args([&file, &here.join(CERTIFICATE), &log]);
    let mut server = Running(python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut ports = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut ports).unwrap();
    let client = |part: &str, certificate: &Path| {
        let mut client = Command::new(std::env::current_exe().unwrap());
        client.args(["--exact", &format!("remote::tls::{part}"), "--ignored", "--nocapture"]);
        client.env("SSL_CERT_FILE", certificate).env(PORTS, &ports);
        let output = client.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("1 passed"), "{part}: {said}");
        std::fs::read_to_string(&log).unwrap()
    };
    assert_eq!(client("the_client_stays_with_tls", &here.join(CERTIFICATE)), "");
    // Where plain HTTP was asked for, the same redirect is followed: it is TLS that keeps the client.
    let seen = client("the_client_may_be_led_from_plain_http", &here.join(CERTIFICATE));
    assert!(seen.contains("/to-plain.h5ad\n") && seen.contains("/here.h5ad\n"), "{seen}");
    std::fs::write(&log, "").unwrap();
    // An empty list of certificates: no server is trusted.
    let nobody = folder.path().join("none.pem");
    std::fs::write(&nobody, "").unwrap();
    assert_eq!(client("the_client_trusts_nobody", &nobody), "");
}

/// The file as read from `tls` or `plain`, or the error.
fn from(server: &str, name: &str) -> Result<usize, String> {
    let ports = std::env::var(PORTS).unwrap();
    let (tls, plain) = ports.trim().split_once(' ').unwrap();
    let origin = if server == "tls" { format!("https://127.0.0.1:{tls}") } else { format!("http://127.0.0.1:{plain}") };
    let store = open(ArrayFormat::H5ad, &[PathBuf::from(format!("{origin}/{name}.h5ad"))], impatient(4, None));
    let rows = store.and_then(|store| everything(&*store));
    rows.map(|rows| rows.2.len()).map_err(|e| format!("{e:?}"))
}

#[test]
#[ignore = "a_server_asked_over_tls_cannot_lead_to_plain_http starts it"]
fn the_client_stays_with_tls() {
    assert!(from("tls", "here").unwrap() > 1000);
    // A redirect that stays is followed.
    assert_eq!(from("tls", "to-tls"), from("tls", "here"));
    let refused = from("tls", "to-plain").unwrap_err();
    assert!(refused.contains("/to-plain.h5ad"), "{refused}");
}

#[test]
#[ignore = "a_server_asked_over_tls_cannot_lead_to_plain_http starts it"]
fn the_client_may_be_led_from_plain_http() {
    assert!(from("plain", "to-plain").unwrap() > 1000);
}

#[test]
#[ignore = "a_server_asked_over_tls_cannot_lead_to_plain_http starts it"]
fn the_client_trusts_nobody() {
    let refused = from("tls", "here").unwrap_err();
    assert!(refused.contains("/here.h5ad"), "{refused}");
}
