//! Every way of running a job on Slurm, from the command line to the note, with the real worker on four nodes: with and
//! without accounting, as root and as an ordinary user, on one network and on one per node.
//!
//! All ways run the same [`scenarios`] side by side on one cluster. Only the limit on arrays has to change in between.

mod chain;
mod reference;
mod scenarios;
mod site;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common;
use crate::common::cluster;
use crate::common::cluster::Cluster;
use site::{Site, Way};

/// The whole matrix on one cluster.
fn all(way: Way) {
    let Some(site) = Site::new(way) else { return };
    type Scenario = (&'static str, fn(&Site));
    let side_by_side: [Scenario; 6] = [
        ("two nodes", scenarios::two_nodes_compute_what_one_does),
        ("short arrays", scenarios::more_trials_than_an_array_takes_run_once_each),
        ("interleaved", scenarios::interleaved_variants_take_turns),
        ("time limit", scenarios::a_trial_at_its_time_limit_goes_on_by_itself),
        ("chain", chain::a_chain_needs_nobody_who_waits),
        ("broken chain", chain::a_chain_whose_data_cannot_be_built_is_over),
    ];
    let all = &site;
    std::thread::scope(|scope| {
        for (name, scenario) in side_by_side {
            let thread = std::thread::Builder::new().name(format!("{way}, {name}"));
            thread.spawn_scoped(scope, move || scenario(all)).unwrap();
        }
    });
    site.allow_long_arrays();
    scenarios::a_throttled_array_never_runs_more_tasks_than_allowed(&site);
    site.cluster.until("an empty queue", || site.cluster.ask("squeue", &["--noheader"]).is_empty());
    site.everything_belongs_to_the_user();
}

#[test]
fn with_accounting() {
    all(Way { accounting: true, ..Way::default() });
}

#[test]
fn without_accounting_on_networks_of_their_own() {
    all(Way { netns: true, ..Way::default() });
}

#[test]
fn as_an_ordinary_user() {
    all(Way { accounting: true, user: Some("nobody"), ..Way::default() });
}

#[test]
fn over_http() {
    all(Way { accounting: true, rest: true, ..Way::default() });
}

#[test]
#[ignore = "fails on purpose: the test below runs it"]
fn a_test_that_fails() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let mut out = std::io::stdout().lock();
    writeln!(out, "cluster {}", cluster.path().display()).unwrap();
    cluster.ask("sbatch", &["--output=/dev/null", "--wrap=sleep 600"]);
    cluster.until("the job", || cluster.ask("squeue", &["-ho%T"]) == "RUNNING\n");
    panic!("on purpose");
}

#[test]
fn a_test_that_fails_leaves_no_cluster_behind() {
    if !cluster::installed(&[]) {
        return;
    }
    let failing = ["--exact", "ways::a_test_that_fails", "--ignored", "--nocapture"];
    let run = Command::new(std::env::current_exe().unwrap()).args(failing).stdin(Stdio::null()).output().unwrap();
    let said = common::text(&run.stdout);
    assert!(!run.status.success() && common::text(&run.stderr).contains("on purpose"), "{said}");
    let line = said.lines().find_map(|line| line.split_once("cluster ")).unwrap_or_else(|| panic!("{said}"));
    let folder = PathBuf::from(line.1);
    assert!(!folder.exists(), "{} is left", folder.display());
    assert_eq!(processes_naming(&folder), [""; 0]);
}

/// Command lines of the processes that name a folder, there or in their environment.
fn processes_naming(folder: &Path) -> Vec<String> {
    let name = folder.to_str().unwrap();
    let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let read = |process: &Path, file: &str| common::text(&std::fs::read(process.join(file)).unwrap_or_default());
    let found = all.filter(|process| ["environ", "cmdline"].iter().any(|file| read(process, file).contains(name)));
    found.map(|process| read(&process, "cmdline").replace('\0', " ")).collect()
}
