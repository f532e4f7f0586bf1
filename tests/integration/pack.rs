//! Trials side by side, as far as it needs neither a cluster nor ranks: the batch script, run with shell scripts in the place of Slurm's
//! commands, and what reports make of such trials.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use expctl::exit::Exit;
use expctl::launch::slurm::{self, SHIPPED_TEMPLATE};
use expctl::program::Programs;
use expctl_ledger::{
    AttemptDir, JobArrays, JobDir, JobRecord, Outcome, SubmittedArray, TaskTrial, TrialState, write_json,
};
use expctl_settings::{Mode, PackGpu, Settings, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::job::{WORKER, fixed_programs, job, ledger};
use crate::common::ledger::{SUBMITTED, completed, steps};
use crate::common::{PATIENCE, TestProject, wait_until};

/// A job of one rank per trial, of which `pack` run side by side.
fn packed(variants: &[&str], pack: u32) -> JobRecord {
    let mut job = job("packed", variants, 1);
    for trial in &mut job.trials {
        trial.settings.slurm.pack = pack;
    }
    job
}

/// The script of the job's only array.
fn script(job: &JobRecord) -> String {
    let mut scripts = slurm::render(&ledger(Path::new("/project")), job, &fixed_programs()).unwrap();
    assert_eq!(scripts.len(), 1);
    scripts.remove(0)
}

#[test]
fn a_task_asks_for_the_resources_of_its_trials_and_each_step_for_its_share() {
    let mut job = packed(&["a", "b", "c", "d"], 2);
    for trial in &mut job.trials {
        let slurm = &mut trial.settings.slurm;
        (slurm.memory_mib, slurm.cpus_per_rank, slurm.gpus_per_rank, slurm.time_min) = (1000, 3, 1, 20);
        "a100".clone_into(&mut slurm.gpu_type);
    }
    let own = script(&job);
    insta::assert_snapshot!(own.as_str());
    for line in ["array=0,2", "ntasks=2", "cpus-per-task=3", "mem=2000M", "time=20", "gres=\"gpu:a100:2\""] {
        assert!(own.contains(&format!("#SBATCH --{line}\n")), "{line}: {own}");
    }
    let srun = "srun --nodes=1 --ntasks=1 --cpus-per-task=3 \\\n    --exact $memory --gres=gpu:a100:1 \\\n";
    assert!(own.contains(srun), "{own}");
    assert!(own.contains("memory=--mem=1000M\n") && !own.contains("--overlap"), "{own}");
    for trial in &mut job.trials {
        trial.settings.slurm.pack_gpu = PackGpu::Shared;
    }
    let shared = script(&job);
    assert!(shared.contains("#SBATCH --gres=\"gpu:a100:1\"\n"), "{shared}");
    assert!(shared.contains("srun --nodes=1 --ntasks=1 --overlap --cpu-bind=none \\\n"), "{shared}");
    assert!(!shared.contains("--exact") && !shared.contains("memory="), "{shared}");
}

#[test]
fn the_script_of_lanes_is_one_that_bash_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut resumes = packed(&["a", "b"], 2);
    for trial in &mut resumes.trials {
        trial.settings.train.mode = Mode::Train;
        (trial.settings.slurm.requeues, trial.settings.slurm.time_min) = (2, 60);
    }
    let with_requeues = script(&resumes);
    assert!(with_requeues.contains("trap near_limit USR1\n") && with_requeues.contains("scontrol requeue"));
    for text in [script(&packed(&["a", "b"], 2)), with_requeues] {
        let file = folder.path().join("batch.sh");
        std::fs::write(&file, &text).unwrap();
        let bash = Command::new("bash").arg("-n").arg(&file).output().unwrap();
        assert!(bash.status.success(), "{}\n{text}", String::from_utf8_lossy(&bash.stderr));
    }
}

#[test]
fn a_template_of_ones_own_goes_on_working_for_trials_that_run_alone() {
    let folder = tempfile::tempdir().unwrap();
    let project = ledger(folder.path());
    std::fs::create_dir(folder.path().join("slurm")).unwrap();
    let before = "#!/bin/bash\n#SBATCH --ntasks={{ ranks }}\nattempt=$({{ expctl }} stage-attempt x 0 0)\nsrun {{ worker }}\n\
                  {{ expctl }} conclude x\n";
    std::fs::write(folder.path().join("slurm/batch.sh.j2"), before).unwrap();
    let alone = slurm::render(&project, &packed(&["a", "b"], 1), &fixed_programs()).unwrap();
    assert!(alone[0].contains("#SBATCH --ntasks=1\n"), "{}", alone[0]);
    let failure = slurm::render(&project, &packed(&["a", "b"], 2), &fixed_programs()).unwrap_err();
    assert_eq!(failure.exit, Exit::Config);
    assert!(failure.message.starts_with("slurm.pack is 2, and the batch template "), "{failure}");
    std::fs::write(folder.path().join("slurm/batch.sh.j2"), format!("{SHIPPED_TEMPLATE}# ours\n")).unwrap();
    assert!(slurm::render(&project, &packed(&["a", "b"], 2), &fixed_programs()).is_ok());
}

/// A job of one task in a ledger, and Slurm's commands as shell scripts: srun runs its command as rank 0, scancel signals what srun runs.
struct Task {
    folder: tempfile::TempDir,
    job: JobDir,
    trials: Vec<Trial>,
    script: PathBuf,
}

impl Task {
    /// All trials in one task, in this order; `scancel` is the body of that command.
    fn new(record: JobRecord, scancel: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let executable = |path: &Path, text: &str| {
            std::fs::write(path, text).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let tools = folder.path().join("tools");
        std::fs::create_dir(&tools).unwrap();
        let srun = "#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\necho $$ >> \"$(dirname \"$0\")/pids\"\n\
                    export SLURM_PROCID=0 SLURM_NTASKS=1\nexec \"$@\"\n";
        executable(&tools.join("srun"), srun);
        executable(&tools.join("scancel"), &format!("#!/bin/bash\ncd \"$(dirname \"$0\")\"\n{scancel}\n"));
        executable(&tools.join("squeue"), "#!/bin/bash\nexit 1\n");
        let worker = folder.path().join("worker.sh");
        executable(&worker, WORKER);
        let project = ledger(&folder.path().join("project"));
        let programs = Programs { expctl: env!("CARGO_BIN_EXE_expctl").into(), worker, library_path: None };
        let text = slurm::render(&project, &record, &programs).unwrap().remove(0);
        let record = JobRecord { job: 7, ..record };
        let job = project.job(7);
        write_json(&job.record_path(), &record).unwrap();
        let list: Vec<TaskTrial> = (0..).zip(&record.trials).map(|(index, _)| TaskTrial(index, 1)).collect();
        let tasks = BTreeMap::from([(0, list)]);
        let array = SubmittedArray { id: 7, script: "batch.sh".to_owned(), tasks, ..SubmittedArray::default() };
        JobArrays { arrays: vec![array], ..JobArrays::default() }.save(&job).unwrap();
        let script = job.path().join("batch.sh");
        std::fs::write(&script, text).unwrap();
        Self { folder, job, trials: record.trials, script }
    }

    /// Start the script, as Slurm does.
    fn start(&self) -> Child {
        let path = format!("{}:/usr/bin:/bin", self.folder.path().join("tools").display());
        let mut command = Command::new("bash");
        command.arg(&self.script).env("PATH", path).env("SLURM_ARRAY_JOB_ID", "7").env("SLURM_ARRAY_TASK_ID", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The only attempt of each trial; `None` for one that did not begin.
    fn attempts(&self) -> Vec<Option<AttemptDir>> {
        let only = |trial: &Trial| {
            let mut attempts = self.job.attempts(&trial.id).unwrap();
            assert!(attempts.len() <= 1, "{}", trial.id);
            attempts.pop()
        };
        self.trials.iter().map(only).collect()
    }

    fn states(&self) -> Vec<Option<TrialState>> {
        let state = |attempt: Option<AttemptDir>| Some(attempt?.outcome().unwrap()?.state);
        self.attempts().into_iter().map(state).collect()
    }
}

/// Signals all that srun has started.
const SIGNALS: &str = "kill -TERM $(cat pids)";

#[test]
fn trials_of_a_pack_run_at_the_same_time_and_one_that_fails_spares_the_others() {
    use TrialState::{Completed, Failed};
    // The first two end only if both run. The third is behind the first in its lane, the fourth behind the second.
    let task = Task::new(packed(&["meets-a", "meets-b", "unknown", "good"], 2), SIGNALS);
    let status = task.start().wait().unwrap();
    assert_eq!(task.states(), [Some(Completed), Some(Completed), Some(Failed), Some(Completed)]);
    assert_eq!(status.code(), Some(5), "Slurm shows a task with a failed trial as failed");
    for attempt in task.attempts().into_iter().flatten() {
        assert!(attempt.outcome().unwrap().unwrap().beside_s.is_some(), "{}", attempt.path().display());
    }
}

#[test]
fn a_task_that_is_stopped_stops_all_its_trials() {
    // As Slurm's scancel does; and where it does not reach them.
    for scancel in [SIGNALS, "exit 1"] {
        let task = Task::new(packed(&["sleeps-a", "sleeps-b", "good"], 2), scancel);
        let mut script = task.start();
        let asleep = |attempt: Option<AttemptDir>| attempt.is_some_and(|found| found.path().join("asleep-0").exists());
        wait_until("both trials", PATIENCE, || task.attempts().into_iter().take(2).all(asleep).then_some(()));
        kill(Pid::from_raw(script.id() as i32), Signal::SIGTERM).unwrap();
        assert!(!script.wait().unwrap().success());
        // The third one was behind the first.
        let stopped = Some(TrialState::Interrupted);
        assert_eq!(task.states(), [stopped, stopped, None], "{scancel}");
    }
}

/// Trials of `lazy` with these step times, ms, one per repeat, of which `pack` ran side by side.
fn lazy(project: &TestProject, walls: &[u64], pack: u32, change: fn(&mut Settings)) -> Vec<(Trial, u64)> {
    let trial = |(repeat, wall): (u32, &u64)| {
        let mut trial = project.trial("lazy", "Lazy", repeat, |s| {
            s.slurm.pack = pack;
            change(s);
        });
        trial.id = format!("lazy-r{repeat}-{pack}a1b2c");
        (trial, *wall)
    };
    (1..).zip(walls).map(trial).collect()
}

/// Seconds between the start of one pack, or trial that runs alone, and the next, which begins when the one before has ended.
const SPAN: i64 = 100;

/// The trials of a row run one pack after another, and the rows one after another.
fn write_job(project: &TestProject, id: u64, trials: Vec<(Trial, u64)>) {
    let dir = project.submitted(id, "086_ddp", trials.iter().map(|(trial, _)| trial.clone()).collect());
    let row = |(trial, _): &(Trial, u64)| (trial.variant.clone(), trial.settings.slurm.pack);
    let mut started = SUBMITTED;
    for of_row in trials.chunk_by(|one, other| row(one) == row(other)) {
        let size = of_row[0].0.settings.slurm.pack;
        for pack in of_row.chunks(size as usize) {
            for (trial, wall) in pack {
                completed(&dir, trial, &[steps(*wall, 10), steps(*wall, 10)]);
                let others = pack.iter().map(|(other, _)| other.id.clone()).filter(|other| *other != trial.id);
                let others: Vec<String> = others.collect();
                change_outcome(&dir, trial, |outcome| {
                    (outcome.started, outcome.ended) = (started, started + SPAN);
                    if size > 1 {
                        outcome.beside_s = Some(SPAN * others.len() as i64);
                        outcome.beside = others;
                    }
                });
            }
            started += SPAN;
        }
    }
}

fn change_outcome(dir: &JobDir, trial: &Trial, change: impl FnOnce(&mut Outcome)) {
    let attempt = dir.attempts(&trial.id).unwrap().pop().unwrap();
    let mut outcome = attempt.outcome().unwrap().unwrap();
    change(&mut outcome);
    outcome.save(&attempt).unwrap();
}

#[test]
fn runs_that_did_not_run_as_planned_are_left_out() {
    let project = TestProject::new();
    // The last one of the packed ones had nothing beside it, and was faster.
    let mut trials = lazy(&project, &[400, 410, 390, 400, 200], 2, |_| {});
    let alone = lazy(&project, &[300, 305, 295, 600], 1, |_| {});
    trials.extend(alone.clone());
    write_job(&project, 12, trials);
    let dir = project.job("12");
    // Another ran on the node of the last one of the others.
    change_outcome(&dir, &alone[3].0, |outcome| (outcome.started, outcome.ended) = (SUBMITTED, SUBMITTED + SPAN));
    let line = |which: usize| project.compare(&["12"])["groups"][0]["lines"][which].clone();
    let found = line(0)["interference"].clone();
    assert_eq!((&found["n"], &found["left_out"]), (&serde_json::json!([2, 3]), &serde_json::json!([1, 1])), "{found}");
    assert!((found["trial"]["value"].as_f64().unwrap() - 0.75).abs() < 0.001, "{found}");
    // Five runs in three packs.
    assert_eq!((&line(0)["n"], &line(1)["n"]), (&3.into(), &4.into()));
    for (trial, _) in &alone {
        change_outcome(&dir, trial, |outcome| (outcome.started, outcome.ended) = (SUBMITTED, SUBMITTED + SPAN));
    }
    let row = line(0);
    assert!(row.get("interference").is_none(), "{row}");
    let why = "what running side by side costs a trial is not known: left out: 1 run with fewer trials beside it than planned, or others \
               than its repeats, 4 runs alone that others ran beside on the same node";
    assert!(row["notes"].as_array().unwrap().contains(&why.into()), "{row}");
}

#[test]
fn a_note_says_what_running_side_by_side_costs_a_trial_and_gives_together() {
    let project = TestProject::new();
    let mut trials = lazy(&project, &[400, 410, 390, 400], 2, |_| {});
    trials.extend(lazy(&project, &[300, 305, 295], 1, |_| {}));
    write_job(&project, 12, trials);
    let rows = project.compare(&["12"])["groups"][0]["lines"].clone();
    let [packed, alone] = &rows.as_array().unwrap()[..] else { panic!("{rows}") };
    assert_eq!((&packed["label"], &alone["label"]), (&"lazy (2 side by side)".into(), &"lazy".into()));
    let found = &packed["interference"];
    assert_eq!((&found["pack"], &found["n"]), (&2.into(), &serde_json::json!([2, 3])));
    let of = |key: &str, part: &str| found[key][part].as_f64().unwrap();
    assert!((of("trial", "value") - 0.75).abs() < 0.001 && (of("together", "value") - 1.5).abs() < 0.002, "{found}");
    assert!(found["trial"]["interval"]["high"].as_f64().unwrap() < 1.0, "{found}");
    assert!(alone.get("interference").is_none());
    // A ratio of the two is no effect of a method.
    let crossed = if packed["crosses"].as_array().unwrap().is_empty() { alone } else { packed };
    assert_eq!(crossed["crosses"][0]["setting"], "trials side by side", "{rows}");
    project.expect(&["report", "12"], 0);
    let note = std::fs::read_to_string(project.file("results/086_ddp_12.md")).unwrap();
    assert!(note.contains("- **Side by side** (derived): lazy (2 side by side): a trial runs at 0.75× ["), "{note}");
    let warning = "lazy (2 side by side): measured beside 1 other trial; rates of lone trials differ";
    assert!(note.contains(warning), "{note}");
    assert!(note.contains("per run; 2 to 3 runs or packs each"), "{note}");
    assert!(note.contains("Of trials side by side n counts packs: "), "{note}");
}

#[test]
fn a_baseline_that_also_ran_alone_is_compared_with_nothing_else() {
    let project = TestProject::new();
    let mut trials = lazy(&project, &[400, 410, 390], 2, |_| {});
    let ids = lazy(&project, &[200, 205, 195], 2, |s| s.loader.workers = 1);
    trials.extend(ids.into_iter().map(|(mut trial, wall)| {
        "ids".clone_into(&mut trial.variant);
        trial.id = trial.id.replace("lazy", "ids");
        (trial, wall)
    }));
    trials.extend(lazy(&project, &[300, 305, 295], 1, |_| {}));
    write_job(&project, 12, trials);
    let rows = project.compare(&["12"])["groups"][0]["lines"].clone();
    let shown = |line: &serde_json::Value| (line["baseline"] == true, line["against"].as_str().map(str::to_owned));
    let against: Vec<(bool, Option<String>)> = rows.as_array().unwrap().iter().map(shown).collect();
    let packed = "12 086_ddp Lazy (2 side by side)".to_owned();
    assert_eq!(against, [(true, None), (false, Some(packed)), (true, None)]);
}

#[test]
fn jobs_with_and_without_others_beside_them_are_of_other_classes_and_series() {
    let project = TestProject::new();
    write_job(&project, 12, lazy(&project, &[400, 410, 390], 1, |_| {}));
    write_job(&project, 13, lazy(&project, &[500, 510, 490], 2, |_| {}));
    let groups = project.compare(&["12", "13"])["groups"].clone();
    let classes: Vec<&str> = groups.as_array().unwrap().iter().map(|group| group["class"].as_str().unwrap()).collect();
    assert_eq!(classes, ["trials side by side 1", "trials side by side 2"]);
    let (text, _) = project.expect(&["compare", "12", "13"], 0);
    assert!(text.contains("† not a like-for-like comparison: trials side by side 1 → 2"), "{text}");
    let series = project.json(&["history", "086_ddp", "--json"], 0)["series"].clone();
    assert_eq!(series.as_array().unwrap().len(), 2, "{series}");
    // What the others would do to a change is not known.
    let (_, said) = project.expect(&["predict", "13"], 7);
    assert!(said.contains("its trials ran side by side, 2 at once"), "{said}");
}
