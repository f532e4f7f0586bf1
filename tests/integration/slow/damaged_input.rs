//! What each command says of damaged input, under a memory limit of 1 GiB: the table of docs/reference/damaged-input.md.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use test_support::{Requirement, skip};

use super::faults::bench::{Disk, Filled};
use crate::common::{SMALL, TestProject, copy, text, worker};

/// Bytes of address space that a command gets.
const MEMORY: u64 = 1 << 30;
/// Seconds after which a command counts as one that hangs.
const PATIENCE_S: u32 = 120;
/// Size of a file that has grown: more than the memory.
const OVERSIZED: u64 = 2 << 30;
/// A number that no file of this size can mean.
const HUGE: u64 = 1 << 60;

/// A file that is damaged, what is beside it, and the command that reads it.
struct Input {
    /// What the table calls it.
    name: &'static str,
    /// File or folder of fuzz/corpus, and where in the project it goes.
    seed: Seed,
    /// Format of the array config that reads it; empty without one.
    format: &'static str,
    command: &'static str,
    /// The file that is damaged.
    file: &'static str,
    /// Its content with lies in its metadata.
    hostile: Hostile,
}

type Seed = (&'static str, &'static str);
type Hostile = fn(Vec<u8>) -> Vec<u8>;

/// A file that a command reads.
const fn file(name: &'static str, seed: Seed, command: &'static str, hostile: Hostile) -> Input {
    Input { name, seed, format: "", command, file: seed.1, hostile }
}

/// A file of an array, which a config names.
const fn array(name: &'static str, format: &'static str, seed: Seed, file: &'static str, hostile: Hostile) -> Input {
    Input { name, seed, format, command: "check conf/c.toml", file, hostile }
}

/// A file of job 1; `job` is its folder in the corpus.
const fn ledger(name: &'static str, job: &'static str, file: &'static str, hostile: Hostile) -> Input {
    Input { name, seed: (job, "results/runs/1"), format: "", command: "report 1", file, hostile }
}

const IMPORT: &str = "import run.log --study 006-kuzmin-tmi --config c --job 7 --batch-size 8 --ranks 1";

const INPUTS: [Input; 16] = [
    file("config (TOML)", ("config/array.toml", "conf/c.toml"), "check conf/c.toml", |text| {
        [text, huge_grid().into_bytes()].concat()
    }),
    file("config of Hydra (YAML)", ("config/hydra.yaml", "c.yaml"), "import c.yaml", |_| nested()),
    // The shape of X.
    array("`.h5ad`", "h5ad", ("h5ad/anndata.h5ad", "cells.h5ad"), "cells.h5ad", |bytes| {
        replaced(bytes, &numbers(&[40, 30]), &numbers(&[HUGE, HUGE]))
    }),
    // Rows of a chunk, and of a shard.
    array("zarr, metadata", "zarr", ("zarr/expctl.zarr", "cells.zarr"), "cells.zarr/zarr.json", |bytes| {
        every(bytes, "16384", &HUGE.to_string())
    }),
    // Position and length of its chunk.
    array("zarr, a shard", "zarr", ("zarr/expctl.zarr", "cells.zarr"), "cells.zarr/X/data/c/0", |bytes| {
        with_end(bytes, 20, &[numbers(&[HUGE, HUGE]), vec![0; 4]].concat())
    }),
    array("parquet, rows", "parquet", ("parquet/expctl.parquet", "cells.parquet"), "cells.parquet", long_footer),
    array("MDS, index", "mds", ("mds/sparse-gz-3kb", "cells.mds"), "cells.mds/index.json", |bytes| {
        every(bytes, "\"samples\": 17", &format!("\"samples\": {HUGE}"))
    }),
    // The size that gzip notes at its end.
    array("MDS, a shard", "mds", ("mds/sparse-gz-3kb", "cells.mds"), "cells.mds/shard.00000.mds.gz", |bytes| {
        with_end(bytes, 4, &u32::MAX.to_le_bytes())
    }),
    ledger("ledger, job.json", "ledger/completed", "results/runs/1/job.json", |_| nested()),
    ledger(
        "ledger, outcome of a trial",
        "ledger/completed",
        "results/runs/1/lazy-r1-f5db2e90/attempt-1/outcome.json",
        |_| nested(),
    ),
    ledger(
        "ledger, steps (parquet)",
        "ledger/completed",
        "results/runs/1/lazy-r1-f5db2e90/attempt-1/rank-0.parquet",
        long_footer,
    ),
    ledger(
        "ledger, journal of a killed trial",
        "ledger/killed",
        "results/runs/1/lazy-r1-5534f733/attempt-1/rank-0.journal.jsonl",
        |_| nested(),
    ),
    file("batch times (parquet)", ("timings/times.parquet", "times.parquet"), "timings times.parquet", long_footer),
    // A quote that nothing closes.
    file("batch times (CSV)", ("timings/times.csv", "times.csv"), "timings times.csv", |bytes| {
        [bytes, b"\"".to_vec(), b"a,1,2\n".repeat(1 << 20)].concat()
    }),
    file("progress log", ("log/tqdm.log", "run.log"), IMPORT, |_| {
        b"Epoch 0: 1%| | 99999999999999999999/99999999999999999999 [99:99:99<00:00, 1e999it/s]\r".repeat(9)
    }),
    file("published results (TOML)", ("config/array.toml", "results.toml"), "import results.toml", |_| {
        [b"a = ".to_vec(), nested()].concat()
    }),
];

/// A sweep of nine million points.
fn huge_grid() -> String {
    let values: Vec<String> = (1..=3000).map(|value| value.to_string()).collect();
    let values = values.join(", ");
    format!("[sweep.grid]\nloader.batch_size = [{values}]\nloader.workers = [{values}]\n")
}

/// Brackets that nothing closes.
fn nested() -> Vec<u8> {
    b"[".repeat(100_000)
}

/// Little-endian.
fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// With its first `from` made `to`, which is as long.
fn replaced(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).position(|window| window == from).expect("what is replaced");
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

fn every(bytes: Vec<u8>, from: &str, to: &str) -> Vec<u8> {
    let content = text(&bytes);
    assert!(content.contains(from), "{content}");
    content.replace(from, to).into_bytes()
}

fn with_end(mut bytes: Vec<u8>, length: usize, end: &[u8]) -> Vec<u8> {
    bytes.truncate(bytes.len() - length);
    [bytes, end.to_vec()].concat()
}

/// A parquet file that says that its footer has 2 GiB.
fn long_footer(bytes: Vec<u8>) -> Vec<u8> {
    with_end(bytes, 8, b"\xff\xff\xff\x7fPAR1")
}

const DAMAGES: [&str; 6] =
    ["truncated to half", "one bit flipped", "grown to 2 GiB", "hostile metadata", "no permission", "a folder"];

fn damage(input: &Input, damage: &str, path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    match damage {
        "truncated to half" => bytes.truncate(middle),
        "one bit flipped" => bytes[middle] ^= 1,
        "hostile metadata" => bytes = (input.hostile)(bytes),
        "grown to 2 GiB" => {
            return std::fs::File::options().write(true).open(path).unwrap().set_len(OVERSIZED).unwrap();
        }
        "no permission" => return std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o0)).unwrap(),
        _ => {
            std::fs::remove_file(path).unwrap();
            return std::fs::create_dir(path).unwrap();
        }
    }
    std::fs::write(path, bytes).unwrap();
}

/// A project with the input, undamaged; the file to damage.
fn project(input: &Input) -> (TestProject, PathBuf) {
    let project = TestProject::new();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    copy(&corpus.join(input.seed.0), &project.path().join(input.seed.1));
    if !input.format.is_empty() {
        let conf = format!(
            "[experiment]\nstudy = \"arrayloader\"\ntitle = \"Damaged\"\n[array]\nformat = \"{}\"\nfiles = [\"{}\"]\n\
             [loader]\nbatch_size = 2\n[train]\nmode = \"data\"\n[measure]\nsteps = 2\n[variant.a]\nsampler.draw = \"uniform\"\n",
            input.format, input.seed.1
        );
        project.conf("c", &conf);
    }
    let file = project.path().join(input.file);
    (project, file)
}

/// Runs `expctl` with little memory and, if this is root, without root's way around permissions.
fn limited(project: &TestProject, args: &[&str]) -> Output {
    let command = project.expctl(args);
    let mut limited = Command::new(if nix::unistd::geteuid().is_root() { "setpriv" } else { "env" });
    if nix::unistd::geteuid().is_root() {
        limited.args(["--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]);
    }
    limited.args(["prlimit", &format!("--as={MEMORY}"), "--core=0", "timeout", &PATIENCE_S.to_string()]);
    limited.arg(command.get_program()).args(command.get_args()).current_dir(project.path());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    // Memory that the allocator sets aside for each processor counts as well.
    limited.env("MALLOC_ARENA_MAX", "2");
    limited.env("EXPCTL_BACKEND", "local").env_remove("RUST_BACKTRACE").stdin(Stdio::null()).output().unwrap()
}

/// Exit code and message, as the table has them.
fn said(project: &TestProject, output: &Output, case: &str) -> (i32, String) {
    let stderr = text(&output.stderr);
    let code = output.status.code().unwrap_or_else(|| panic!("{case}: {}: {stderr}", output.status));
    assert!([0, 3, 6, 7, 70].contains(&code), "{case}: exit code {code}: {stderr}");
    assert!(!stderr.contains("panicked") && !stderr.contains("memory allocation"), "{case}: {stderr}");
    let root = std::fs::canonicalize(project.path()).unwrap();
    let clean = stderr.replace(root.to_str().unwrap(), "").replace(project.path().to_str().unwrap(), "");
    let error = clean.lines().find_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("error: ").or(line.strip_prefix("x ")).or(line.strip_prefix("× "))
    });
    assert!(code == 0 || error.is_some(), "{case}: {code} without a message: {stderr}");
    let message = if code == 0 { "accepted" } else { error.unwrap_or_default() };
    // What the log said before, without its time.
    let warning = clean.lines().find_map(|line| Some(line.split_once(" WARN ")?.1)).filter(|_| code != 0);
    let message = warning.map_or_else(|| message.to_owned(), |warning| format!("{} … {message}", warning.trim()));
    // A temporary file has another name each time.
    let message = message.split(" at path ").next().unwrap_or_default();
    // The name of a file of the code is the hash of its content.
    let message = message.split_once("/objects/").map_or(message.to_owned(), |(before, after)| {
        let rest = after.split_once(':').map_or("", |(_, rest)| rest);
        format!("{before}/objects/…:{rest}")
    });
    let message = message.replace('|', "\\|").replace('<', "&lt;");
    let cut: String = message.chars().take(200).collect();
    (code, if cut == message { cut } else { format!("{cut} …") })
}

fn rows(input: &Input) -> Vec<String> {
    let arguments: Vec<&str> = input.command.split(' ').collect();
    let row = |damage: &str, code: &str, message: &str| {
        let command = format!("{}, by `expctl {}`", input.name, arguments[0]);
        format!("| {command} | {damage} | {code} | {message} |")
    };
    let mut rows = Vec::new();
    let mut codes = BTreeSet::from([0]);
    for name in ["untouched"].into_iter().chain(DAMAGES) {
        let (project, file) = project(input);
        if name != "untouched" {
            damage(input, name, &file);
        }
        let output = limited(&project, &arguments);
        let (code, message) = said(&project, &output, &format!("{}, {name}", input.name));
        codes.insert(code);
        if name != "untouched" {
            rows.push(row(name, &code.to_string(), &message));
        }
    }
    rewritten_meanwhile(input, &arguments, &codes);
    rows.push(row("rewritten while it is read", "one of these", "accepted, or one of these"));
    rows
}

/// Half of the file and the whole of it stand there in turn, as while a copy is under way.
fn rewritten_meanwhile(input: &Input, arguments: &[&str], codes: &BTreeSet<i32>) {
    let (project, file) = project(input);
    let bytes = std::fs::read(&file).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for length in [bytes.len() / 2, bytes.len()].into_iter().cycle() {
                std::fs::write(&file, &bytes[..length]).unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let outputs: Vec<Output> = (0..5).map(|_| limited(&project, arguments)).collect();
        stop.store(true, Ordering::Relaxed);
        for output in outputs {
            let (code, message) = said(&project, &output, input.name);
            assert!(codes.contains(&code), "{}, rewritten: {code}: {message}", input.name);
        }
    });
}

/// Commands that write, on a disk without room.
fn full_disk_rows() -> Vec<String> {
    const WRITERS: [(&str, &str, &str); 5] = [
        ("a data set", "data", "data build 006-kuzmin-tmi --samples 200 --scale 0.05"),
        ("a data set of arrays", "data", "data build arrayloader --samples 200 --scale 0.05"),
        ("the ledger", "results", "submit conf/small.toml --only ids"),
        ("a note", "results", "report 1"),
        ("a note of batch times", "notes", "timings times.csv --out notes"),
    ];
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut rows = Vec::new();
    for (what, folder, command) in WRITERS {
        let project = TestProject::new();
        project.conf("small", SMALL);
        let at = project.path().join(folder);
        let _disk = Disk::mount(&at, 1);
        copy(&corpus.join("timings/times.csv"), &project.path().join("times.csv"));
        if command.starts_with("report") {
            copy(&corpus.join("ledger/completed"), &project.path().join("results/runs/1"));
        }
        let _full = Filled::new(&at);
        let arguments: Vec<&str> = command.split(' ').collect();
        let output = project.run(&arguments);
        let (code, message) = said(&project, &output, command);
        assert!(code != 0, "{command} with a full disk: {}", text(&output.stderr));
        rows.push(format!("| {what}, by `expctl {}` | disk full | {code} | {message} |", arguments[0]));
    }
    rows
}

#[test]
fn all_damage_is_answered_as_the_table_says() {
    assert!(worker().is_file());
    if ["prlimit", "setpriv", "timeout"].iter().any(|program| !is_in_path(program)) {
        return skip(Requirement::Other, "prlimit and setpriv of util-linux are not here");
    }
    let mut rows: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = INPUTS.iter().map(|input| scope.spawn(move || self::rows(input))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    if nix::unistd::geteuid().is_root() {
        rows.extend(full_disk_rows());
    } else {
        skip(Requirement::Other, "a full disk: only root can mount one");
        rows.extend(documented().into_iter().filter(|row| row.contains("| disk full |")));
    }
    let path = document();
    let current = std::fs::read_to_string(&path).unwrap();
    let (head, _) = current.split_once(START).unwrap();
    let expected = format!("{head}{START}{}\n", rows.join("\n"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, expected).unwrap();
    } else {
        let (found, documented) = (BTreeSet::from_iter(rows), BTreeSet::from_iter(documented()));
        let differences: Vec<_> = found.symmetric_difference(&documented).collect();
        assert!(differences.is_empty(), "UPDATE_DOCS=1 writes the table; it differs in {differences:#?}");
    }
}

const START: &str = "| Input | Damage | Exit code | Message |\n|---|---|---|---|\n";

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/damaged-input.md")
}

fn documented() -> Vec<String> {
    let current = std::fs::read_to_string(document()).unwrap();
    current.split_once(START).unwrap().1.lines().map(str::to_owned).collect()
}

fn is_in_path(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join(OsStr::new(program)).is_file())
}
