//! Trials side by side: what a config may ask for, and the trial that runs alone beside them.

use super::*;

const TWO: &str = "loader.batch_size = 28\nmeasure.repeats = 2\nslurm.pack = 2\n[variant.lazy]\npipeline.processor = \"lazy\"\n\
                   [variant.ids]\npipeline.processor = \"ids\"\n[compare]\nbaseline = \"ids\"\n";

/// Variant, repeat and trials side by side of each trial.
fn shown(trials: &[Trial]) -> Vec<(&str, u32, u32)> {
    trials.iter().map(|trial| (trial.variant.as_str(), trial.repeat, trial.settings.slurm.pack)).collect()
}

#[test]
fn the_baseline_also_runs_alone() {
    let all = trials(TWO, &[]).unwrap();
    assert_eq!(
        shown(&all),
        [("lazy", 1, 2), ("ids", 1, 2), ("ids", 1, 1), ("lazy", 2, 2), ("ids", 2, 2), ("ids", 2, 1)]
    );
    let labels: Vec<String> = all[..3].iter().map(Trial::label).collect();
    assert_eq!(labels, ["lazy (2 side by side)", "ids (2 side by side)", "ids"]);
    // The trial is the one of a job in which all run alone.
    let alone = trials(TWO, &["slurm.pack=1"]).unwrap();
    assert_eq!(shown(&alone), [("lazy", 1, 1), ("ids", 1, 1), ("lazy", 2, 1), ("ids", 2, 1)]);
    assert_eq!(all[2].id, alone[1].id);
    assert_ne!(all[1].id, alone[1].id);
    let shared = trials(TWO, &["slurm.pack_gpu=shared"]).unwrap();
    assert_eq!(shared[2].id, all[2].id, "it shares no GPU");
    assert_ne!(shared[1].id, all[1].id);
    assert_eq!(trials(TWO, &["slurm.pack_calibrate=false"]).unwrap().len(), 4);
    // Whether the baseline also runs alone is no part of what the others run.
    assert_eq!(trials(TWO, &["slurm.pack_calibrate=false"]).unwrap()[0].id, all[0].id);
}

#[test]
fn the_trials_alone_count_among_those_of_a_job() {
    let many = trials(TWO, &["measure.repeats=20000"]).unwrap_err();
    assert_eq!(many, ["60000 trials (3 settings, each repeated) are more than 50000"]);
}

#[test]
fn a_sweep_that_has_it_alone_needs_no_other() {
    let swept = |packs: &str| format!("{SMALL}[sweep]\nslurm.pack = {packs}\n");
    let both = trials(&swept("[1, 2]"), &[]).unwrap();
    assert_eq!(both.iter().map(|trial| trial.settings.slurm.pack).collect::<Vec<_>>(), [1, 2]);
    let more = trials(&swept("[2, 4]"), &[]).unwrap();
    assert_eq!(more.iter().map(|trial| trial.settings.slurm.pack).collect::<Vec<_>>(), [2, 4, 1]);
    assert_eq!(more[2].point_words(), "slurm.pack=1");
}

#[test]
fn a_trial_of_several_nodes_and_trials_in_turn_cannot_run_side_by_side() {
    let interleaved = trials(SMALL, &["slurm.pack=2", "measure.interleave=true"]).unwrap_err();
    assert_eq!(
        interleaved,
        ["`slurm.pack` = 2 runs trials at the same time, and `measure.interleave` runs them one after another"]
    );
    let cold = trials(SMALL, &["slurm.pack=2", "measure.cold_cache=true"]).unwrap_err();
    let expected =
        "`slurm.pack` = 2 runs trials on one node, and `measure.cold_cache` drops files that the others have just read";
    assert_eq!(cold, [expected]);
    let nodes = trials(SMALL, &["slurm.pack=2", "launch.ranks=2", "launch.nodes=2"]).unwrap_err();
    assert_eq!(nodes, ["`slurm.pack` = 2 runs trials side by side on one node, and a trial has 2 nodes"]);
    assert!(trials(SMALL, &["slurm.pack=1", "measure.interleave=true"]).is_ok());
}

#[test]
fn a_plan_says_what_runs_side_by_side_and_counts_the_resources_of_a_task_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.toml");
    let text = format!("{TWO}[slurm]\ntime_min = 60\ncpus_per_rank = 3\npack_calibrate = false\nmemory_mib = 1000\n");
    std::fs::write(&path, text.replace("slurm.pack = 2\n", "").replace("[slurm]\n", "[slurm]\npack = 2\n")).unwrap();
    let said = text_of(&expctl(&["plan", path.to_str().unwrap()]).stdout);
    assert!(said.contains("4 trials × 1 rank, up to 2 side by side: at most 12.0 CPU h (time limit 60 min"), "{said}");
    assert!(said.contains("4 trials × 1 rank, up to 2 side by side on this machine"), "{said}");
    // Two tasks with the processors of three trials each.
    let three = expctl(&["plan", path.to_str().unwrap(), "--set", "slurm.pack=3"]);
    let (table, said) = (text_of(&three.stdout), text_of(&three.stderr));
    assert!(table.contains("up to 3 side by side: at most 18.0 CPU h"), "{table}");
    let warning = "warning: lazy, ids: too few repeats (2) for 3 side by side (slurm.pack), and on Slurm the task asks for the resources of 3 \
                   trials all the same; set measure.repeats to a multiple of 3, or slurm.pack to 2\n";
    assert!(said.contains(warning), "{said}");
}

#[test]
fn a_plan_warns_of_repeats_that_fill_no_pack() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.toml");
    std::fs::write(&path, TWO).unwrap();
    let said = |set: &str| text_of(&expctl(&["plan", path.to_str().unwrap(), "--set", set]).stderr);
    let five = said("measure.repeats=5");
    let warning = "warning: lazy, ids: 5 repeats are no whole packs of 2 (slurm.pack): a rest of 1 runs with fewer side by side, and on Slurm \
                   the task asks for the resources of 2 trials all the same; set measure.repeats to 4 or 6\n";
    assert!(five.contains(warning), "{five}");
    let one = said("measure.repeats=1");
    assert!(one.contains("too few repeats (1) for 2 side by side") && one.contains("or slurm.pack to 1\n"), "{one}");
    for whole in ["measure.repeats=4", "slurm.pack=1"] {
        let text = said(whole);
        assert!(!text.contains("(slurm.pack)"), "{text}");
    }
}
