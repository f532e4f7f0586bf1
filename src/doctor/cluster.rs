use jiff::Timestamp;

use super::check::Check;
use crate::conf::Profile;
use crate::launch::slurm::{Availability, Slurm};

/// More than this is seen by munge, which refuses what seems minutes old.
const SKEW_S: i64 = 5;

/// The cluster: its commands, its controller, and the partition that jobs would go to. The second value says whether
/// there is a Slurm.
pub fn cluster(slurm: &Slurm, profile: Option<&Profile>, partition: &str) -> (Vec<Check>, bool) {
    let mut checks = Vec::new();
    match slurm.availability() {
        Availability::Absent => {
            let none = "no Slurm: jobs run on this machine (--backend local)";
            let check = match profile {
                Some(profile) if profile.backend.as_deref() != Some("local") => {
                    Check::warning("Slurm", none, "run this on a login node of the profile's cluster")
                }
                _ => Check::ok("Slurm", none),
            };
            return (vec![check], false);
        }
        Availability::Unreachable(reason) => {
            let todo = "try again later; ask the site's help desk if it lasts";
            checks.push(Check::problem("controller", reason, todo));
        }
        Availability::Ready => checks.extend([Check::ok("controller", "answers"), clock(slurm)]),
    }
    checks.extend(["sbatch", "srun", "squeue", "scontrol", "scancel"].map(|name| program(slurm, name, true)));
    checks.push(program(slurm, "sacct", false));
    checks.extend(slurmrestd());
    if checks.iter().all(|c| c.check != "controller" || c.todo.is_empty()) {
        checks.extend(where_jobs_go(slurm, partition));
        checks.extend(profile.and_then(|profile| array_size(slurm, profile)));
    }
    for check in &mut checks {
        check.cluster = true;
    }
    (checks, true)
}

/// slurmrestd, where its address is set.
fn slurmrestd() -> Option<Check> {
    std::env::var_os("SLURMRESTD_URL").filter(|url| !url.is_empty())?;
    let todo = "needed by --backend slurmrest only; docs/slurm.md says what it reads";
    Some(match Slurm::of_backend("slurmrest").map(|slurm| slurm.availability()) {
        Ok(Availability::Ready) => Check::ok("slurmrestd", "answers, and takes the token"),
        Ok(Availability::Unreachable(reason)) => Check::warning("slurmrestd", reason, todo),
        Ok(Availability::Absent) => Check::warning("slurmrestd", "no answer", todo),
        Err(failure) => Check::warning("slurmrestd", failure.message, todo),
    })
}

fn program(slurm: &Slurm, name: &str, needed: bool) -> Check {
    match slurm.ask(name, ["--version"]) {
        Ok(version) => Check::ok(name, version.trim()),
        Err(e) if needed => Check::problem(name, e.message, "put Slurm's commands on the PATH (a module, perhaps)"),
        Err(e) => Check::warning(name, e.message, "without it, tasks that the controller forgot stay unexplained"),
    }
}

/// The controller tells its time with its configuration.
fn clock(slurm: &Slurm) -> Check {
    let asked = Timestamp::now().as_second();
    let answer = slurm.with_time_in_seconds().ask("scontrol", ["show", "config"]);
    let now = Timestamp::now().as_second();
    let told = answer.ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Configuration data as of "))?;
        line.trim().parse::<i64>().ok()
    });
    match told {
        None => Check::ok("clock", "the controller does not tell its time"),
        Some(told) => {
            let skew = if told < asked { told - asked } else { (told - now).max(0) };
            if skew.abs() <= SKEW_S {
                Check::ok("clock", format!("within {SKEW_S} s of the controller's"))
            } else {
                let found = format!("the controller's is {skew:+} s from this one");
                Check::warning(
                    "clock",
                    found,
                    "have both set by NTP: Slurm refuses what seems to come from another time",
                )
            }
        }
    }
}

fn where_jobs_go(slurm: &Slurm, partition: &str) -> Option<Check> {
    if partition.is_empty() {
        return None;
    }
    let columns = "--format=%a|%D|%c|%m|%G";
    let found = match slurm.ask("sinfo", ["--noheader", "--partition", partition, columns]) {
        Ok(answer) => answer,
        Err(e) => return Some(Check::problem("partition", e.message, "ask Slurm which there are: sinfo")),
    };
    let Some(line) = found.lines().find(|line| !line.trim().is_empty()) else {
        let todo = "set slurm.partition to one that `sinfo` shows";
        return Some(Check::problem("partition", format!("there is no partition {partition}"), todo));
    };
    let mut fields = line.trim().split('|');
    let mut next = || fields.next().unwrap_or("?").to_owned();
    let (state, nodes, cpus, memory, gres) = (next(), next(), next(), next(), next());
    let found = format!("{partition} is {state}: {nodes} nodes with {cpus} processors, {memory} MiB, GPUs {gres}");
    Some(match state.as_str() {
        "up" => Check::ok("partition", found),
        _ => Check::warning("partition", found, "jobs wait until the site opens it"),
    })
}

fn array_size(slurm: &Slurm, profile: &Profile) -> Option<Check> {
    let wanted = profile.max_array_size?;
    let has = slurm.max_array_size()?;
    // The highest index is one less.
    Some(if wanted <= has {
        Check::ok("array size", format!("the cluster takes {has}"))
    } else {
        Check::warning(
            "array size",
            format!("the cluster takes {has}, the profile says {wanted}"),
            "correct the profile",
        )
    })
}
