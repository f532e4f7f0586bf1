//! Steps of an emulated accelerator on eight real ranks: what is recorded, and how its utilisation follows from loaders of known speed.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{TestProject, text};
use expctl_ledger::{Stage, StepRecord};

const RANKS: u32 = 8;

/// 640 rows of 400 genes, for eight ranks; a step of 100 ms.
const ROWS: &str = r#"
[experiment]
study = "arrayloader"
title = "Emulated"

[data]
samples = 640
scale = 0.02

[array]
format = "h5ad"

[loader]
batch_size = 4
workers = 1
prefetch_factor = 2

[train]
mode = "emulate"
step_ms = 100
allreduce_bytes = 4_000

[measure]
warmup = 10
steps = 30
repeats = 1

[launch]
ranks = 8
heartbeat_timeout_s = 30
"#;

/// The steps of every rank of the only variant of a job.
fn steps(project: &TestProject, job: &str) -> Vec<Vec<StepRecord>> {
    let attempt = project.attempt(job, "default").unwrap();
    (0..RANKS).map(|rank| attempt.steps(rank).unwrap()).collect()
}

/// Emulated time over wall time of the measured steps of a rank.
fn utilisation(steps: &[StepRecord]) -> f64 {
    let sum = |of: fn(&StepRecord) -> u64| steps.iter().filter(|step| step.measured).map(of).sum::<u64>() as f64;
    sum(|step| step.exposed[Stage::Forward]) / sum(|step| step.wall_ns)
}

/// The emulation of the only row of a job, as JSON.
fn emulation(project: &TestProject, job: &str) -> serde_json::Value {
    project.compare(&[job])["groups"][0]["lines"][0]["emulation"].clone()
}

/// The utilisation that is reported is that of the recorded steps, of each rank and of all.
fn is_that_of_the_steps(emulation: &serde_json::Value, steps: &[Vec<StepRecord>]) -> f64 {
    let used = &emulation["utilisation"];
    assert_eq!(used["class"], "derived");
    let ranks: Vec<f64> = steps.iter().map(|of_rank| utilisation(of_rank)).collect();
    let shown: Vec<f64> = used["runs"][0].as_array().unwrap().iter().map(|rank| rank.as_f64().unwrap()).collect();
    assert_eq!(shown.len(), ranks.len());
    assert!(shown.iter().zip(&ranks).all(|(shown, own)| (shown - own).abs() < 1e-9), "{shown:?} {ranks:?}");
    let mean = ranks.iter().sum::<f64>() / ranks.len() as f64;
    let all = used["all_ranks"].as_f64().unwrap();
    assert!((all - mean).abs() < 1e-9, "{all} {mean}");
    all
}

#[test]
fn a_loader_that_is_faster_than_the_step_keeps_eight_accelerators_busy() {
    let project = TestProject::new();
    let job = project.completed(ROWS, &[]);
    let steps = steps(&project, &job);
    for step in steps.iter().flatten() {
        assert_eq!((step.exposed[Stage::Forward], step.busy[Stage::Forward]), (100_000_000, 100_000_000));
        assert!(step.exposed[Stage::Allreduce] > 0 && step.exposed[Stage::Transfer] > 0 && step.samples == 4);
        assert!(step.loss.is_none() && step.exposed[Stage::Backward] == 0 && step.exposed[Stage::Optimizer] == 0);
        // All of a step is in its stages, so breakdowns close.
        assert!(step.exposed.total() <= step.wall_ns, "{step:?}");
    }
    // No rank goes on before the slowest has computed: eight ranks have the same wall time, all but for their last steps.
    let wall = |of_rank: &[StepRecord]| of_rank.iter().map(|step| step.wall_ns).sum::<u64>();
    assert!(steps.iter().all(|of_rank| wall(of_rank) >= 40 * 100_000_000));
    let emulation = emulation(&project, &job);
    assert_eq!((emulation["step"].as_str(), emulation["allreduce_bytes"].as_u64()), (Some("100 ms"), Some(4000)));
    let all = is_that_of_the_steps(&emulation, &steps);
    // Busy machines wake threads late: eight ranks share what processors there are.
    assert!(all > 0.4 && all <= 1.0, "{all}");
    let note = std::fs::read_to_string(project.path().join(format!("results/small_{job}.md"))).unwrap();
    for said in
        ["default (emulated)", "**Emulated**: default (emulated): the step is emulated, no model is computed", "| AU |"]
    {
        assert!(note.contains(said), "{said}: {note}");
    }
    // A second job draws its steps from this one's.
    let drawn =
        ROWS.replace("step_ms = 100", &format!("step_times_of = \"{job}/default\"")).replace("steps = 30", "steps = 5");
    let second = project.completed(&drawn, &[]);
    for step in self::steps(&project, &second).iter().flatten() {
        assert_eq!(step.exposed[Stage::Forward], 100_000_000);
    }
    let said = self::emulation(&project, &second)["step"].clone();
    assert_eq!(said, format!("100 ms on average, drawn from the steps of {job}/default"));
}

/// Every answer of the store comes 150 ms late, so a batch takes a known time however fast the machine is, and no processor.
#[test]
fn a_constant_loader_that_is_slower_than_the_step_has_the_utilisation_of_arithmetic() {
    let project = TestProject::new();
    let built = text(&project.run(&["data", "build", "arrayloader", "--samples", "640", "--scale", "0.02"]).stdout);
    let url = serve_late(h5ad_below(Path::new(built.trim())), Duration::from_millis(150));
    let config = ROWS
        .replace("scale = 0.02\n", "")
        .replace("format = \"h5ad\"", &format!("format = \"h5ad\"\nfiles = [\"{}\"]", url))
        .replace("prefetch_factor = 2", "prefetch_factor = 1")
        .replace("step_ms = 100", "step_ms = 60");
    let job = project.completed(&config, &[]);
    let steps = steps(&project, &job);
    let all = is_that_of_the_steps(&emulation(&project, &job), &steps);
    // One thread builds batch after batch, so a step lasts as long as its batch; of all ranks, as the slowest one's.
    let batch_s = |of_rank: &[StepRecord]| {
        let measured: Vec<&StepRecord> = of_rank.iter().filter(|step| step.measured).collect();
        let busy: u64 = measured.iter().flat_map(|step| Stage::LOADER.map(|stage| step.busy[stage])).sum();
        busy as f64 / 1e9 / measured.len() as f64
    };
    let slowest = steps.iter().map(|of_rank| batch_s(of_rank)).fold(0.0, f64::max);
    assert!(slowest >= 0.15, "a batch takes at least an answer: {slowest}");
    let expected = 0.06 / slowest;
    // Threads of a busy machine start late, which makes steps longer than their batches, and no step is shorter for long.
    assert!(all <= expected * 1.05 && all >= expected * 0.6, "{all} against {expected}");
}

/// The `.h5ad` file of a data set.
fn h5ad_below(folder: &Path) -> PathBuf {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "h5ad") {
                return path;
            }
        }
    }
    panic!("no .h5ad file");
}

/// Serve a file from now on, each part of it after the same wait; returns its URL.
fn serve_late(file: PathBuf, wait: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/rows.h5ad", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let file = file.clone();
            // A client may go away at any time.
            std::thread::spawn(move || drop(serve(&socket, &file, wait)));
        }
    });
    url
}

/// Answer the requests of one connection.
fn serve(socket: &TcpStream, path: &Path, wait: Duration) -> std::io::Result<()> {
    let mut requests = BufReader::new(socket);
    let mut socket = socket;
    let mut file = std::fs::File::open(path)?;
    let size = file.metadata()?.len();
    loop {
        let (mut line, mut range, mut method) = (String::new(), None, String::new());
        loop {
            line.clear();
            if requests.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if method.is_empty() {
                method = line.split(' ').next().unwrap_or_default().to_owned();
            }
            if let Some((first, last)) = line.strip_prefix("range: bytes=").and_then(|range| range.split_once('-')) {
                let first: u64 = first.parse().unwrap();
                range = Some((first, last.parse().unwrap_or(size - 1).min(size - 1)));
            }
        }
        let (first, last) = range.unwrap_or((0, size - 1));
        let length = last + 1 - first;
        let status = match range {
            Some(_) => format!("206 Partial Content\r\nContent-Range: bytes {first}-{last}/{size}"),
            None => "200 OK".to_owned(),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nAccept-Ranges: bytes\r\nETag: \"1\"\r\n\
             Last-Modified: Fri, 27 Nov 2026 00:00:00 GMT\r\n\r\n"
        );
        if method == "head" {
            socket.write_all(head.as_bytes())?;
            continue;
        }
        std::thread::sleep(wait);
        let mut answer = head.into_bytes();
        file.seek(SeekFrom::Start(first))?;
        Read::by_ref(&mut file).take(length).read_to_end(&mut answer)?;
        socket.write_all(&answer)?;
    }
}
