//! Hardware samples of real ranks, and what the notes make of them.

use crate::common::local::set;
use crate::common::programs;
use crate::common::{PATIENCE, SMALL, TestProject, wait_until};
use expctl_ledger::{AttemptDir, HardwareSample, StepRecord, TrialState, read_samples};
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};

/// Cells of the row that begins with `| name |`.
fn row(note: &str, heading: &str, name: &str) -> Vec<String> {
    let (_, rest) = note.split_once(heading).expect(heading);
    let line = rest.lines().find(|line| line.replace('*', "").starts_with(&format!("| {name} |"))).expect(name);
    line.trim_matches('|').split('|').map(|cell| cell.trim().replace('*', "")).collect()
}

/// What a note says of the processor time of a variant, beside its step times.
fn cpu_of(note: &str, variant: &str) -> String {
    const START: &str = "| Variant | ms/step (median) |";
    let header = note.lines().find(|line| line.starts_with(START)).expect(START);
    let column = header.trim_matches('|').split('|').position(|cell| cell.trim() == "CPU of a rank").unwrap();
    row(note, START, variant)[column].clone()
}

/// Sum over samples, of each as much as lies between two moments, over the time that it lies there.
fn over(samples: &[HardwareSample], [from, to]: [i64; 2], of: fn(&HardwareSample) -> f64) -> f64 {
    let (mut sum, mut time) = (0.0, 0.0);
    for two in samples.windows(2) {
        let within = two[1].at_ns.unwrap().min(to) - two[0].at_ns.unwrap().max(from);
        if within > 0 {
            sum += of(&two[1]) * within as f64;
            time += within as f64;
        }
    }
    sum / time
}

fn measured(steps: &[StepRecord]) -> [i64; 2] {
    let first = steps.iter().find(|step| step.measured).unwrap();
    let last = steps.last().unwrap();
    [first.start_ns as i64, (last.start_ns + last.wall_ns) as i64]
}

fn no_sample_files(attempt: &AttemptDir, rank: u32) -> bool {
    !attempt.samples_path(rank).exists() && !attempt.sample_journal_path(rank).exists()
}

#[test]
fn a_rank_that_works_is_sampled_and_its_note_says_what_it_took() {
    let project = TestProject::new();
    let conf = SMALL
        .replace("[compare]", "[variant.unseen]\npipeline.processor = \"ids\"\nmeasure.sample_every_s = 0\n[compare]");
    let settings = set(&["measure.steps=500", "variant.ids.measure.sample_every_s=0.1", "launch.ranks=1"]);
    let job = project.completed(&conf, &[&["--only", "ids", "--only", "unseen"], &settings[..]].concat());
    let attempt = project.attempt(&job, "ids").unwrap();
    assert!(!attempt.sample_journal_path(0).exists(), "the table has taken its place");
    let samples = read_samples(&attempt.samples_path(0)).unwrap();
    let steps = attempt.steps(0).unwrap();
    assert!(samples.windows(2).all(|two| two[0].clock_ns < two[1].clock_ns && two[0].at_ns < two[1].at_ns));
    let (first, last) = (&samples[0], samples.last().unwrap());
    // From before the first step to after the last one, on the clock of the steps.
    let [begin, end] = measured(&steps);
    assert!(first.at_ns.unwrap() < begin && last.at_ns.unwrap() > end - 150_000_000, "{first:?} {last:?}");
    assert_eq!((first.cpu_percent, first.call_read_bytes, first.processes), (None, None, Some(1)));
    for sample in &samples {
        let parts = [sample.rss_anon_bytes, sample.rss_file_bytes, sample.rss_shmem_bytes].map(Option::unwrap);
        let rss = sample.rss_bytes.unwrap();
        assert_eq!(parts.iter().sum::<u64>(), rss);
        assert!((10 << 20..20 << 30).contains(&rss) && sample.cgroup_memory_bytes != Some(0), "{sample:?}");
        // No device: the columns are there, and empty.
        if !std::path::Path::new("/proc/driver/nvidia").exists() {
            assert_eq!((sample.gpu_percent, sample.gpu_memory_bytes, sample.gpu_power_w), (None, None, None));
        }
    }
    assert!(samples.iter().any(|sample| sample.pss_bytes.is_some_and(|pss| pss > 1 << 20)));
    let busiest = samples.iter().filter_map(|sample| sample.cpu_percent).fold(0.0, f64::max);
    assert!((10.0..=6400.0).contains(&busiest), "{busiest}");
    assert!(samples.iter().filter_map(|sample| sample.call_read_bytes).sum::<u64>() > 1000);
    let documented = include_str!("../../../docs/reference/ledger.md");
    for column in serde_json::to_value(&samples[1]).unwrap().as_object().unwrap().keys() {
        assert!(documented.contains(&format!("`{column}`")), "{column} is not in docs/reference/ledger.md");
    }
    assert!(no_sample_files(&project.attempt(&job, "unseen").unwrap(), 0));
    // The note has the mean over the measured steps.
    let note = std::fs::read_to_string(project.path().join("results/small_1.md")).unwrap();
    assert!(note.contains("| CPU of a rank | Peak memory of a rank | From disks |"), "{note}");
    let cpu = over(&samples, [begin, end], |sample| sample.cpu_percent.unwrap());
    let shown: f64 = cpu_of(&note, "ids").trim_end_matches(" %").parse().unwrap();
    assert!((shown - cpu).abs() <= 0.51, "{shown} is not {cpu}");
    assert_eq!(cpu_of(&note, "unseen"), "–");
    assert!(!note.contains("GPU busy") && note.contains("small_1_timeline.svg"), "{note}");
    assert!(!note.contains("sample_every_s 0"), "how samples are taken explains no difference of rates");
    let drawn = std::fs::read_to_string(project.path().join("results/assets/images/small_1_timeline.svg")).unwrap();
    assert!(["step time (ms)", "processors (%)", "memory (GB)"].iter().all(|axis| drawn.contains(axis)));
}

/// Of our ranks and of a program; a file system in memory keeps its files, and everything else is the same there.
#[test]
fn the_page_cache_is_cold_before_the_first_step_and_the_note_says_so() {
    let project = TestProject::new();
    programs::install(&project);
    let cold = "[variant.cold]\npipeline.processor = \"ids\"\nmeasure.cold_cache = true\n[variant.program]\n\
                measure.cold_cache = true\nworker.command = [\"./python\", \"-c\", \
                \"from train import *\\ntrain(expctl.Run(program='x'))\"]\n[compare]";
    let three = ["--only", "ids", "--only", "cold", "--only", "program", "--set", "compare.baseline=ids"];
    let conf = SMALL.replace("[compare]", cold);
    project.completed(&conf, &three);
    let usage = |variant: &str, rank: u32| project.attempt("1", variant).unwrap().usage(rank).unwrap();
    let read = project.attempt("1", "cold").unwrap().data_read().unwrap().unwrap();
    let in_memory = statfs(project.path()).unwrap().filesystem_type() == TMPFS_MAGIC;
    for variant in ["cold", "program"] {
        // One rank of the node does it.
        let dropped = usage(variant, 0).unwrap().dropped.unwrap();
        assert_eq!((dropped.files, dropped.bytes), (1, read.size.apparent_bytes), "{variant}");
        let share = dropped.cached_share().unwrap();
        assert!(if in_memory { share == 1.0 } else { share < 0.5 }, "{variant}: {dropped:?}");
        assert!(usage(variant, 1).is_none_or(|usage| usage.dropped.is_none()), "{variant}");
    }
    assert!(usage("ids", 0).unwrap().dropped.is_none());
    let note = std::fs::read_to_string(project.path().join("results/small_1.md")).unwrap();
    assert!(note.contains("page cache cold: dropped before the first step, at most "), "{note}");
    let compared = project.ok(&["compare", "1"]);
    assert!(compared.contains("cold page cache false → true"), "{compared}");
    // 8 steps of 8 samples on 2 ranks are fewer than the 200 that there are; of 26 the note says that they go round.
    assert!(!note.contains("the steps go through it"), "{note}");
    let more = ["--only", "cold", "--set", "measure.steps=24", "--set", "train.mode=data"];
    project.completed(&conf, &more);
    let note = std::fs::read_to_string(project.path().join("results/small_2.md")).unwrap();
    assert!(note.contains("the steps go through it 2.1 times"), "{note}");
}

#[test]
fn all_processes_of_a_program_are_sampled() {
    let project = TestProject::new();
    programs::install(&project);
    std::fs::write(project.path().join("big.bin"), vec![7u8; 30 << 20]).unwrap();
    // A process of its own takes 200 MB and, once the steps are done, reads the file; it is there for some samples more.
    let child = "import sys; b = bytearray(200 << 20); b[::4096] = b'x' * 51200; print('there', flush=True); sys.stdin.readline(); \
                 open('big.bin', 'rb').read(); print('read', flush=True); sys.stdin.readline()";
    let code = format!(
        "import time\nfrom train import *\n\
         child = subprocess.Popen([sys.executable, '-c', {child:?}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n\
         child.stdout.readline()\n\
         train(expctl.Run(program='x'))\n\
         for answer in ('read\\n', ''):\n    child.stdin.write('on\\n'); child.stdin.flush(); assert child.stdout.readline() == answer; time.sleep(0.5)\n\
         child.wait()\n"
    );
    let conf = format!(
        "experiment.study = \"006-kuzmin-tmi\"\nloader.batch_size = 4\n[measure]\nwarmup = 2\nsteps = 200\nrepeats = 1\n\
         sample_every_s = 0.1\n[variant.a]\nworker.command = [\"./python\", \"-c\", {}]\n",
        toml::Value::from(code)
    );
    project.completed(&conf, &[]);
    let attempt = project.attempt("1", "a").unwrap();
    let samples = attempt.samples(0).unwrap();
    let most = |of: fn(&HardwareSample) -> Option<u64>| samples.iter().filter_map(of).max().unwrap();
    assert!(most(|sample| sample.rss_anon_bytes) > 200 << 20 && most(|sample| sample.processes) >= 2, "{samples:?}");
    let read: u64 = samples.iter().filter_map(|sample| sample.call_read_bytes).sum();
    assert!((30 << 20..300 << 20).contains(&read), "{read}");
    // The clock of the steps is the program's own.
    let [begin, end] = measured(&attempt.steps(0).unwrap());
    let (first, last) = (samples[0].at_ns.unwrap(), samples.last().unwrap().at_ns.unwrap());
    assert!(first < begin && last > end - 150_000_000, "{first} {begin} {end} {last}");
    let note = std::fs::read_to_string(project.path().join("results/small_1.md")).unwrap();
    assert!(cpu_of(&note, "a").ends_with(" %"), "{note}");
}

#[test]
fn a_rank_that_is_killed_keeps_its_samples() {
    let project = TestProject::new();
    let (mut guard, _) = project.endless(&["--set", "measure.sample_every_s=0.1"]);
    let seen = wait_until("samples of steps", PATIENCE, || {
        let samples = project.attempt("1", "ids")?.samples(1).unwrap();
        (samples.iter().filter(|sample| sample.at_ns > Some(0)).count() >= 2).then_some(samples)
    });
    kill(project.rank(1), Signal::SIGKILL).unwrap();
    assert_eq!(guard.0.wait().unwrap().code(), Some(5));
    assert_eq!(project.outcome("1", "ids").state, TrialState::Failed);
    let attempt = project.attempt("1", "ids").unwrap();
    assert!(attempt.samples_path(1).exists() && !attempt.sample_journal_path(1).exists());
    let kept = attempt.samples(1).unwrap();
    assert!(kept.len() >= seen.len());
    assert!(kept.iter().zip(&seen).all(|(kept, seen)| kept == seen));
}
