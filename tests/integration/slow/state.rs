//! What Slurm says of jobs, in ledger and note: on a real cluster with and without accounting, and as a note shows it.

use std::path::Path;

use crate::common;
use crate::common::TestProject;
use crate::common::cluster::Cluster;
use crate::common::job::{Flow, job};
use crate::common::ledger::{completed, finish, running, steps};
use expctl::launch::slurm;
use expctl_ledger::{AttemptDir, SlurmStep, SlurmTry, SlurmUsage, TrialState};
use test_support::{Requirement, skip};

/// Ranks that take 200 MB for some seconds, fail, or end well in their second attempt only.
const WORKER: &str = r#"#!/bin/bash
attempt=$2 rank=$SLURM_PROCID
say() {
  printf '{"rank": %d, "status": "%s", "message": "", "steps": 0}' "$rank" "$1" > "$attempt/.exit-$rank"
  mv "$attempt/.exit-$rank" "$attempt/rank-$rank.exit.json"
}
case $attempt in
  # tail keeps all that it reads, since no line of it ever ends.
  */allocates-1/*) (head -c 200000000 /dev/zero; sleep 3) | tail > /dev/null; say completed ;;
  */fails-1/*) exit 9 ;;
  */again-1/attempt-1)
    trap 'say interrupted; exit 0' TERM
    touch "$attempt/asleep-$rank"
    while :; do sleep 120 & wait $!; done ;;
  */again-1/attempt-2) say completed ;;
esac
"#;

/// A ledger with those ranks.
fn flow() -> Flow {
    let flow = Flow::new("ledger");
    std::fs::write(&flow.files_named("worker.sh")[0], WORKER).unwrap();
    flow
}

fn attempts(flow: &Flow, id: u64, variant: &str) -> Vec<AttemptDir> {
    flow.project.job(id).attempts(&format!("{variant}-1")).unwrap()
}

/// What Slurm said of each attempt of a variant; none until it is known of all.
fn usages(flow: &Flow, id: u64, variant: &str) -> Option<Vec<SlurmUsage>> {
    attempts(flow, id, variant).iter().map(|attempt| attempt.slurm_usage().unwrap()).collect()
}

#[test]
fn the_accounting_of_every_try_comes_into_the_ledger() {
    if !Path::new("/usr/sbin/slurmdbd").exists() {
        skip(Requirement::Slurm, "needs accounting: slurm/dev-cluster/install.sh --dbd");
        return;
    }
    let Some(cluster) = Cluster::start(&["--dbd"]) else { return };
    let flow = flow();
    let mut three = job("usage | of", &["allocates", "fails", "again"], 1);
    for trial in &mut three.trials {
        (trial.settings.slurm.memory_mib, trial.settings.slurm.time_min) = (500, 5);
    }
    let id = flow.submit(&cluster, three).unwrap();
    cluster.until("the rank", || flow.files_named("asleep-").len() == 1);
    cluster.ask("scontrol", &["update", &format!("jobid={id}_2"), "requeue=1"]);
    cluster.ask("scontrol", &["requeue", &format!("{id}_2")]);
    let ended = |variant: &str, n: usize| {
        let all = attempts(&flow, id, variant);
        all.len() == n && all[n - 1].outcome_path().exists()
    };
    cluster.until("the end of all", || ended("allocates", 1) && ended("fails", 1) && ended("again", 2));
    let folder = flow.project.job(id);
    cluster.until("the accounting", || {
        slurm::collect_usage(&cluster.slurm, &folder, id, true).unwrap();
        let all: Vec<_> = ["allocates", "fails", "again"].iter().filter_map(|v| usages(&flow, id, v)).collect();
        all.len() == 3 && all.iter().flatten().all(|usage| usage.source == "sacct")
    });

    let good = &usages(&flow, id, "allocates").unwrap()[0];
    assert_eq!((good.array, good.task, good.try_number, good.attempts_in_try), (id, 0, 1, 1));
    let SlurmTry { state, exit_code, nodes, time_limit_s, memory_bytes, .. } = &good.usage;
    assert_eq!(
        (state.as_str(), *exit_code, *time_limit_s, *memory_bytes),
        ("COMPLETED", Some(0), Some(300), Some(500 << 20))
    );
    let host =
        cluster.task(id, 0).split_whitespace().find_map(|word| word.strip_prefix("NodeList=").map(str::to_owned));
    assert_eq!(*nodes, host);
    let rss = good.usage.max_rss_bytes.unwrap();
    assert!((200_000_000..400_000_000).contains(&rss), "{good:?}");
    assert!(good.usage.elapsed_s.unwrap() >= 3, "{good:?}");
    let ranks = good.usage.steps.iter().find(|step| step.step == "0").unwrap();
    assert_eq!((ranks.tasks, ranks.max_rss_bytes, ranks.max_rss_task), (Some(1), Some(rss), Some(0)));

    let failed = &usages(&flow, id, "fails").unwrap()[0].usage;
    assert_eq!((failed.state.as_str(), failed.exit_code), ("FAILED", Some(5)));
    assert!(failed.steps.iter().any(|step| step.step == "0" && step.exit_code == Some(9)), "{failed:?}");

    let again = usages(&flow, id, "again").unwrap();
    assert_eq!(again.iter().map(|usage| usage.try_number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(again.iter().map(|usage| usage.usage.state.as_str()).collect::<Vec<_>>(), ["REQUEUED", "COMPLETED"]);
    assert_eq!(again[1].other_tries, [again[0].usage.clone()]);
    assert!(again[0].usage.ended.unwrap() <= again[1].usage.started.unwrap(), "{again:?}");

    // A job that nobody waited for: report asks by itself.
    let attempt = &attempts(&flow, id, "allocates")[0];
    std::fs::remove_file(attempt.slurm_path()).unwrap();
    let root = folder.path().ancestors().nth(3).unwrap();
    let mut report = std::process::Command::new(env!("CARGO_BIN_EXE_expctl"));
    report.arg("--root").arg(root).args(["report", &id.to_string()]).env("SLURM_CONF", cluster.conf());
    let output = report.env_remove("EXPCTL_RUNS").output().unwrap();
    assert_eq!(attempt.slurm_usage().unwrap().as_ref(), Some(good), "{}", common::text(&output.stderr));
    let note = std::fs::read_to_string(common::text(&output.stdout).trim()).unwrap();
    assert!(note.contains("### What Slurm saw") && note.contains("2 of 2 (others: REQUEUED)"), "{note}");
}

#[test]
fn without_accounting_the_controller_is_asked() {
    let Some(cluster) = Cluster::start(&["--nodes", "1"]) else { return };
    let flow = flow();
    let id = flow.submit(&cluster, job("usage", &["allocates", "fails"], 1)).unwrap();
    cluster.backend().wait_for_job(&flow.project, id, &mut |_| {}).unwrap();
    let known = |variant: &str| usages(&flow, id, variant).and_then(|all| all.into_iter().next());
    cluster.until("the end", || {
        slurm::collect_usage(&cluster.slurm, &flow.project.job(id), id, true).unwrap();
        known("allocates").is_some() && known("fails").is_some()
    });
    for (variant, state, code, reason) in
        [("allocates", "COMPLETED", 0, None), ("fails", "FAILED", 5, Some("NonZeroExitCode"))]
    {
        let SlurmUsage { source, usage, .. } = known(variant).unwrap();
        assert_eq!((source.as_str(), usage.state.as_str(), usage.exit_code), ("scontrol", state, Some(code)));
        assert_eq!((usage.nodes.as_deref(), usage.reason.as_deref()), (Some("n1"), reason));
        assert!(usage.started.unwrap() <= usage.ended.unwrap() && usage.elapsed_s.is_some());
        // Not 0: nobody measured it.
        assert_eq!((usage.max_rss_bytes, usage.cpu_s), (None, None));
    }
}

#[test]
fn a_note_shows_what_slurm_measured() {
    let project = TestProject::new();
    let trials = ["lazy", "shared", "ids"].map(|variant| project.trial(variant, variant, 1, |_| {}));
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    let ranks = [steps(100, 5), steps(100, 5)];
    let step = SlurmStep {
        step: "0".into(),
        tasks: Some(2),
        max_rss_bytes: Some(300_000_000),
        mean_rss_bytes: Some(250_000_000),
        ..SlurmStep::default()
    };
    let measured = SlurmTry {
        state: "COMPLETED".into(),
        exit_code: Some(0),
        elapsed_s: Some(3661),
        time_limit_s: Some(7200),
        nodes: Some("n[1-2]".into()),
        cpu_s: Some(12.34),
        memory_bytes: Some(1_000_000_000),
        max_rss_bytes: Some(300_000_000),
        steps: vec![step],
        ..SlurmTry::default()
    };
    let requeued = SlurmTry { state: "NODE_FAIL".into(), ..SlurmTry::default() };
    let attempt = running(&dir, &trials[0], &ranks);
    finish(&attempt, &ranks, TrialState::Completed, "");
    SlurmUsage {
        source: "sacct".into(),
        array: 12,
        try_number: 2,
        attempts_in_try: 1,
        usage: measured,
        other_tries: vec![requeued],
        ..SlurmUsage::default()
    }
    .save(&attempt)
    .unwrap();
    let remembered = SlurmTry {
        state: "FAILED".into(),
        exit_code: Some(5),
        reason: Some("NonZeroExitCode".into()),
        elapsed_s: Some(7),
        nodes: Some("n1".into()),
        ..SlurmTry::default()
    };
    let attempt = running(&dir, &trials[1], &ranks);
    finish(&attempt, &ranks, TrialState::Failed, "rank 0 was killed");
    let usage = SlurmUsage { source: "scontrol".into(), try_number: 1, usage: remembered, ..SlurmUsage::default() };
    usage.save(&attempt).unwrap();
    completed(&dir, &trials[2], &ranks);
    // A damaged file costs the trial nothing but these figures.
    std::fs::write(dir.attempts(&trials[2].id).unwrap()[0].slurm_path(), "{").unwrap();

    project.expect(&["report", "12"], 5);
    let note = std::fs::read_to_string(project.file("results/086_ddp_12.md")).unwrap();
    let section = note.split("### What Slurm saw").nth(1).unwrap().split("<!-- expctl:end").next().unwrap();
    insta::assert_snapshot!(section.trim());
}
