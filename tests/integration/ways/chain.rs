//! Jobs whose data are built and whose notes are written by jobs of Slurm.

use expctl_ledger::TrialState;

use super::site::{Site, outcome, succeeded};

/// How a job of Slurm's ended, with its exit code, once it has.
fn end(site: &Site, job: u64) -> Option<(String, String)> {
    let told = site.cluster.ask("scontrol", &["--oneliner", "show", "job", &job.to_string()]);
    let value = |key: &str| told.split_whitespace().find_map(|word| word.strip_prefix(key)).unwrap().to_owned();
    let state = value("JobState=");
    let over = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"].contains(&state.as_str());
    over.then(|| (state, value("ExitCode=")))
}

fn ends(site: &Site, job: u64) -> (String, String) {
    site.cluster.until(&format!("the end of job {job}"), || end(site, job).is_some());
    end(site, job).unwrap()
}

pub fn a_chain_needs_nobody_who_waits(site: &Site) {
    let id = site.submit(&["data.seed=77"], &["--chain"]);
    let arrays = site.arrays(&id);
    let completed = || ("COMPLETED".to_owned(), "0:0".to_owned());
    assert_eq!(ends(site, arrays.build.unwrap()), completed());
    assert_eq!(ends(site, arrays.note.unwrap()), completed(), "{}", log(site, &id, "note"));
    assert!(!log(site, &id, "build").is_empty());
    assert_eq!(site.completed(&id).len(), 2);
    let note = site.note(&id);
    assert!(note.contains("lazy") && note.contains("ids"), "{note}");
}

pub fn a_chain_whose_data_cannot_be_built_is_over(site: &Site) {
    // No folder can be made in a file, not even by root.
    let blocked = site.root().join("conf/small.toml/data");
    let args = site.submission(&["data.seed=78"], &["--chain"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let submitted = site.expctl(&args).env("EXPCTL_DATA", blocked).output().unwrap();
    let id = succeeded(&submitted, &args).trim().to_owned();
    let arrays = site.arrays(&id);
    let (state, code) = ends(site, arrays.build.unwrap());
    assert_eq!(state, "FAILED", "{code}");
    assert!(log(site, &id, "build").contains("small.toml"), "{}", log(site, &id, "build"));
    // Exit code 5: trials failed.
    assert_eq!(ends(site, arrays.note.unwrap()), ("FAILED".to_owned(), "5:0".to_owned()), "{}", log(site, &id, "note"));
    for attempts in site.attempts(&id) {
        assert_eq!(attempts.len(), 1);
        let outcome = outcome(&attempts[0]);
        assert_eq!(outcome.state, TrialState::Failed);
        assert_eq!(outcome.message, "the data could not be built; see build.log");
        assert!(!attempts[0].path().join("srun.log").exists() && !attempts[0].log_path(0).exists(), "a task ran");
    }
    let waiting = site.cluster.ask("squeue", &["--noheader", "--array", "--format=%F"]);
    assert!(waiting.lines().all(|line| line != id), "{waiting}");
}

fn log(site: &Site, id: &str, step: &str) -> String {
    std::fs::read_to_string(site.job(id).path().join(format!("{step}.log"))).unwrap()
}
