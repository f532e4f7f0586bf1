//! The development cluster itself (slurm/dev-cluster): what its options and scripts promise, asked of Slurm's own commands.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::cluster;
use crate::common::cluster::Cluster;
use test_support::{Requirement, skip};

/// A job that counts in the file `$1` until it has counted to `$2`, eight a second; its lines are the order of its runs.
const COUNT: &str = "for i in $(seq $2); do echo ${SLURM_RESTART_COUNT:-0} >> $1; sleep 0.125; done";

/// One cluster with all of: a network per node, accounting, REST, an ordinary user, short arrays. It costs 5 s.
#[test]
fn a_cluster_with_everything() {
    let options = ["--netns", "--dbd", "--rest", "--nodes", "3", "--max-array-size", "5", "--users", "root,nobody"];
    let Some(cluster) = Cluster::start(&options) else { return };

    // Each node is a host of its own, and a job's ranks reach each other by the nodes' names.
    let hosts = cluster.ask("srun", &["--nodes=3", "sh", "-c", "hostname; ip -4 -o addr show eth0; getent hosts n1"]);
    for node in 1..=3 {
        assert!(hosts.lines().any(|line| line == format!("n{node}")), "{hosts}");
        assert!(hosts.contains(&format!("10.77.0.{node}/24")), "{hosts}");
    }
    assert_eq!(hosts.lines().filter(|line| line.starts_with("10.77.0.1 ")).count(), 3, "{hosts}");

    lists_of_hosts_are_those_of_slurm(&cluster);
    arrays_are_short(&cluster);
    tokens_are_checked(&cluster);
    an_ordinary_user_submits(&cluster);
    a_low_job_makes_way_and_comes_again(&cluster);
    a_service_that_dies_takes_no_job_with_it(&cluster);
    a_node_without_network_is_lost_though_its_job_runs(&cluster);
}

/// What `scontrol` makes of short forms of node names is what we make of them: the same names in the same order, repeated ones too. Of three
/// brackets in a name it writes the second one out last, and there the order is another; it refuses text behind the last one, which we take.
fn lists_of_hosts_are_those_of_slurm(cluster: &Cluster) {
    for list in [
        "n1",
        "n[1-3,07-12],gpu5",
        "rack[1-2]n[01-02]",
        "a[1-2]b[3-4]c[5-6]",
        "c[098-101]",
        "n[9-11],n[09-11]",
        "tux[0-3],linux[00-03]",
        "n[8-10],login-1.a.b",
        "n[2,1,1],n1",
        "e[1-3],e[2-4]",
        "foo[1-2]-[0-1]",
        "n[0-0],n[00-00]",
        "cn[0001-1200]",
    ] {
        let said = cluster.ask("scontrol", &["show", "hostnames", list]);
        let mut ours = expctl_ledger::hostlist::expand(list).unwrap();
        let mut said: Vec<&str> = said.lines().collect();
        if list.matches('[').count() > 2 && !list.contains(',') {
            ours.sort();
            said.sort_unstable();
        }
        assert_eq!(ours, said, "{list}");
    }
}

fn arrays_are_short(cluster: &Cluster) {
    let refused = cluster.try_ask("sbatch", &["--array=0-5", "--wrap=true"]);
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && words.contains("Invalid job array specification"), "{words}");
    cluster.ask("sbatch", &["--array=0-4", "--output=/dev/null", "--wrap=true"]);
}

fn tokens_are_checked(cluster: &Cluster) {
    for user in ["root", "nobody"] {
        assert_eq!(ping(cluster, "v0.0.38", user, &cluster.token(user)), "200", "{user}");
    }
    // This version says 500, later ones 401.
    let broken = cluster.token("root").replace('.', ".x");
    assert_ne!(ping(cluster, "v0.0.38", "root", &broken), "200");
    assert_ne!(ping(cluster, "v0.0.38", "root", &cluster.token("nobody")), "200");
}

/// The HTTP status of a ping.
fn ping(cluster: &Cluster, version: &str, user: &str, token: &str) -> String {
    let address = cluster.rest_url();
    let (host, port) = address.strip_prefix("http://").unwrap().split_once(':').unwrap();
    let request = format!(
        "GET /slurm/{version}/ping HTTP/1.1\r\nHost: {host}\r\nX-SLURM-USER-NAME: {user}\r\n\
         X-SLURM-USER-TOKEN: {token}\r\nConnection: close\r\n\r\n"
    );
    let script = "exec 3<>/dev/tcp/$0/$1; printf %s \"$2\" >&3; head -n 1 <&3";
    let answer = cluster.inside("bash").args(["-c", script, host, port, &request]).output().unwrap();
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(answer.starts_with("HTTP/1.1 "), "{address} says {answer:?}");
    answer.split(' ').nth(1).unwrap().to_owned()
}

fn an_ordinary_user_submits(cluster: &Cluster) {
    let submitted = cluster.as_user("nobody", &["sbatch", "--parsable", "--wait", "--output=job.out", "--wrap=id -un"]);
    assert!(submitted.status.success(), "{}", String::from_utf8_lossy(&submitted.stderr));
    let output = cluster.home("nobody").join("job.out");
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "nobody\n");
    assert_ne!(std::fs::metadata(&output).unwrap().uid(), 0);
    // Somebody else's job is not theirs to cancel.
    let job = submit(cluster, &["--hold", "--wrap=true"]);
    let cancelled = cluster.as_user("nobody", &["scancel", &job]);
    assert!(String::from_utf8_lossy(&cancelled.stderr).contains("Access/permission denied"), "{cancelled:?}");
    cluster.ask("scancel", &[&job]);
}

fn a_low_job_makes_way_and_comes_again(cluster: &Cluster) {
    let file = cluster.path().join("low");
    // The first run would last for ever.
    let count = format!("set -- {} 9999; [ -z \"$SLURM_RESTART_COUNT\" ] || set -- $1 16; {COUNT}", file.display());
    let low = submit(cluster, &["--partition=low", "--nodes=3", "--exclusive", &format!("--wrap={count}")]);
    cluster.until("the low job", || file.exists());
    let high = submit(cluster, &["--nodes=1", "--exclusive", "--wrap=true"]);
    cluster.until("both ends", || state(cluster, &low) == "COMPLETED" && state(cluster, &high) == "COMPLETED");
    // Two runs, in order, and the second is whole.
    let runs = std::fs::read_to_string(&file).unwrap();
    let (first, second) = runs.split_at(runs.find('1').unwrap());
    assert!(first.lines().count() >= 1 && first.lines().all(|run| run == "0"), "{runs}");
    assert_eq!(second, "1\n".repeat(16), "{runs}");
    cluster.until("the accounting", || {
        let rows = cluster.ask("sacct", &["-XnPD", &format!("--jobs={low}"), "--format=State"]);
        rows == "PREEMPTED\nCOMPLETED\n"
    });
}

fn a_service_that_dies_takes_no_job_with_it(cluster: &Cluster) {
    let file = cluster.path().join("services");
    let job = submit(cluster, &[&format!("--wrap=set -- {} 80; {COUNT}", file.display())]);
    cluster.until("the job", || state(cluster, &job) == "RUNNING" && file.exists());
    // The controller's state is on disk once in a while only: a job that it does not know of then would be forgotten.
    std::thread::sleep(Duration::from_secs(5));
    cluster.node("kill", "ctld");
    assert!(!cluster.try_ask("scontrol", &["show", "job", &job]).status.success());
    cluster.node("up", "ctld");
    cluster.node("kill", "dbd");
    assert!(!cluster.try_ask("sacct", &["-X"]).status.success());
    cluster.node("kill", "rest");
    cluster.until("the job's end", || state(cluster, &job) == "COMPLETED");
    assert_eq!(lines(&file), 80, "the job was started twice or ended early");
    cluster.node("up", "rest");
    assert_eq!(ping(cluster, "v0.0.38", "root", &cluster.token("root")), "200");
    // What happened in between is known once the accounting is back.
    cluster.node("up", "dbd");
    cluster.until("the accounting", || {
        cluster.ask("sacct", &["-XnP", &format!("--jobs={job}"), "--format=State"]) == "COMPLETED\n"
    });
}

fn a_node_without_network_is_lost_though_its_job_runs(cluster: &Cluster) {
    let file = cluster.path().join("alone");
    let count = format!("--wrap=set -- {} 9999; {COUNT}", file.display());
    let job = submit(cluster, &["--no-requeue", "--nodelist=n2", &count]);
    cluster.until("the job", || file.exists());
    cluster.cut("n2");
    cluster.until("the loss of n2", || state(cluster, &job) == "NODE_FAIL");
    let before = lines(&file);
    cluster.until("another line of a job that Slurm gave up", || lines(&file) > before);
    cluster.join("n2");
    cluster.until("n2", || cluster.ask("sinfo", &["-hNn", "n2", "-pbatch", "-o%T"]) == "idle\n");
    let still = || processes_with(&format!("SLURM_JOB_ID={job}"), cluster.path());
    cluster.until("the end of what ran on", || still().is_empty());
}

#[test]
fn a_job_over_its_memory_is_out_of_memory() {
    if !Path::new("/sys/fs/cgroup/memory/tasks").exists() {
        skip(Requirement::Other, "needs cgroup v1");
        return;
    }
    let Some(cluster) = Cluster::start(&["--cgroup", "--nodes", "1"]) else { return };
    // The shell itself holds them.
    let fill = "--wrap=x=$(head -c 300M /dev/zero | tr '\\0' x)";
    let over = submit(&cluster, &["--mem=100", fill]);
    let within = submit(&cluster, &["--mem=1500", fill]);
    cluster.until("both ends", || {
        let states = [&over, &within].map(|job| state(&cluster, job));
        assert!(!states.contains(&"FAILED".to_owned()), "{states:?}");
        states == ["OUT_OF_MEMORY", "COMPLETED"]
    });
    let path = cluster.path().to_owned();
    drop(cluster);
    let name = format!("expctl{}", path.to_str().unwrap().replace('/', "_"));
    let left = Command::new("find").args(["/sys/fs/cgroup", "-name", &name]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
}

#[test]
fn a_newer_slurm_runs_beside_the_installed_one() {
    let Some(prefix) = cluster::newer_slurm() else { return };
    let Some(cluster) = Cluster::start(&["--slurm", prefix, "--rest"]) else { return };
    assert!(cluster.ask("sinfo", &["--version"]).contains(" 24.11."));
    let job = submit(&cluster, &["--nodes=2", "--wrap=srun true"]);
    cluster.until("the job", || state(&cluster, &job) == "COMPLETED");
    // From 23.02 on a state is a list.
    let json = cluster.ask("squeue", &["--json", "--states=all", "--jobs", &job]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["jobs"][0]["job_state"], serde_json::json!(["COMPLETED"]));
    let token = cluster.token("root");
    assert_eq!(ping(&cluster, "v0.0.42", "root", &token), "200");
    assert_eq!(ping(&cluster, "v0.0.38", "root", &token), "404");
}

/// With a job at work that even left its session, and a network of its own: of none of them anything is left.
#[test]
fn a_cluster_ends_with_its_owner_even_if_that_is_killed() {
    if !cluster::installed(&[]) {
        return;
    }
    let folder = tempfile::Builder::new().prefix("expctl-slurm-").tempdir().unwrap();
    let path = folder.path().join("cluster");
    let up = Path::new(env!("CARGO_MANIFEST_DIR")).join("slurm/dev-cluster/up.sh");
    let mut owner = Command::new("bash")
        .args([
            "-c",
            "\"$0\" \"$1\" --netns --rest --owner $$ && read -r _",
            up.to_str().unwrap(),
            path.to_str().unwrap(),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut started = String::new();
    BufReader::new(owner.stdout.as_mut().unwrap()).read_line(&mut started).unwrap();
    assert_eq!(Path::new(started.trim()), path);

    let asleep = path.join("asleep");
    let wrap = format!("--wrap=srun setsid sh -c 'touch {}; exec sleep 600'", asleep.display());
    let submitted = Command::new(path.join("enter")).args(["sbatch", "--output=/dev/null", &wrap]).output().unwrap();
    assert!(submitted.status.success(), "{}", String::from_utf8_lossy(&submitted.stderr));
    let network = std::fs::read_to_string(path.join("run/netns")).unwrap();
    until("the job", || asleep.exists());
    assert!(namespaces(network.trim()) == 3 && !processes_with("SLURMD_NODENAME=n1", &path).is_empty());

    owner.kill().unwrap();
    owner.wait().unwrap();
    until("the end of the folder", || !path.exists());
    assert_eq!(namespaces(network.trim()), 0);
    // Any process that has the folder in its environment or arguments: daemons, steps, what these started.
    until("the end of all processes", || processes_naming(&path).is_empty());
    assert!(!std::fs::read_to_string("/proc/self/mountinfo").unwrap().contains(path.to_str().unwrap()));
}

/// The number of a new job without output.
fn submit(cluster: &Cluster, arguments: &[&str]) -> String {
    let all = [&["--parsable", "--output=/dev/null"], arguments].concat();
    cluster.ask("sbatch", &all).trim().to_owned()
}

fn state(cluster: &Cluster, job: &str) -> String {
    let rows = cluster.ask("squeue", &["--noheader", "--states=all", "--jobs", job, "--format=%T"]);
    rows.trim().to_owned()
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).unwrap().lines().count()
}

fn namespaces(prefix: &str) -> usize {
    let all = std::fs::read_dir("/run/netns").unwrap();
    all.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(prefix)).count()
}

/// Processes of the cluster under `path` that have `variable` in their environment.
fn processes_with(variable: &str, path: &Path) -> Vec<String> {
    let conf = format!("SLURM_CONF={}/etc/slurm.conf", path.display());
    let has = |text: &[u8], wanted: &str| text.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
    processes(|environment, _| has(environment, variable) && has(environment, &conf))
}

/// Processes that name the folder.
fn processes_naming(path: &Path) -> Vec<String> {
    let name = path.to_str().unwrap().as_bytes();
    let names = |text: &[u8]| text.windows(name.len()).any(|part| part == name);
    processes(|environment, arguments| names(environment) || names(arguments))
}

fn processes(wanted: impl Fn(&[u8], &[u8]) -> bool) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let read = |process: &Path, file: &str| std::fs::read(process.join(file)).unwrap_or_default();
    let found = all.filter(|process| wanted(&read(process, "environ"), &read(process, "cmdline")));
    found.map(|process| process.display().to_string()).collect()
}

fn until(what: &str, happened: impl Fn() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what} did not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}
