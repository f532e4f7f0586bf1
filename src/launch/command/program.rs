//! What a program is told through its environment, and what is written down of where it ran.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use expctl_pipeline::array::dataset::ArrayDataset;
use expctl_pipeline::dataset::Dataset;
use expctl_record::{
    AttemptDir, DataRead, Environment, FileSize, ProgramFacts, RankEnv, RankUsage, Trial, drop_from_page_cache,
    variables, write_json,
};
use serde_json::json;

use super::peers::Peers;
use super::protocol::RunRecord;
use super::socket::Socket;
use crate::conf::NO_DATA_SET;
use crate::exit::Failure;

/// Variables to set for a program, and those to take away: with a name alone.
pub(super) type Variables = Vec<(&'static str, Option<OsString>)>;

/// What Slurm says of the rank that the supervisor is. A program that starts its ranks itself is none.
const OF_ONE_RANK: [&str; 8] = [
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_STEP_NUM_TASKS",
];

/// The variables of a program.
///
/// # Errors
/// The list of data files cannot be written, or the data set is not there.
pub(super) fn variables_of(
    attempt: &AttemptDir,
    trial: &Trial,
    env: RankEnv,
    peers: &Peers,
    socket: &Socket,
) -> Result<Variables, Failure> {
    let mut all: Variables = Vec::new();
    let mut set = |name, value: OsString| all.push((name, Some(value)));
    let (host, port) = &peers.master;
    let per_node = peers.start.ranks.len().max(1) as u32;
    let node = env.rank / per_node;
    set("EXPCTL_SOCKET", socket.path().into());
    set("EXPCTL_TRIAL", attempt.trial_path().into());
    set("EXPCTL_ATTEMPT", attempt.path().into());
    set("WORLD_SIZE", env.world_size.to_string().into());
    set("LOCAL_WORLD_SIZE", per_node.to_string().into());
    set("MASTER_ADDR", host.into());
    set("MASTER_PORT", port.to_string().into());
    set("OMP_NUM_THREADS", trial.settings.launch.threads.to_string().into());
    if host == "127.0.0.1" && std::env::var_os("GLOO_SOCKET_IFNAME").is_none() {
        // All ranks are here; the name of the machine may lead nowhere.
        set("GLOO_SOCKET_IFNAME", "lo".into());
    }
    if trial.settings.data.set != NO_DATA_SET {
        let list = socket.folder().join("files.json");
        write_json(&list, &json!({ "data_dir": trial.data_dir, "files": data_files(trial)? }))?;
        set("EXPCTL_DATA_DIR", trial.data_dir.clone().into());
        set("EXPCTL_FILES", list.into());
    }
    if trial.settings.worker.starts_ranks {
        // torchrun takes its options from these.
        set("PET_NNODES", (env.world_size / per_node).to_string().into());
        set("PET_NODE_RANK", node.to_string().into());
        set("PET_NPROC_PER_NODE", per_node.to_string().into());
        set("PET_MASTER_ADDR", host.into());
        set("PET_MASTER_PORT", port.to_string().into());
        all.extend(OF_ONE_RANK.map(|name| (name, None)));
    } else {
        set("RANK", env.rank.to_string().into());
        set("LOCAL_RANK", env.local_rank.to_string().into());
        set("NODE_RANK", node.to_string().into());
    }
    Ok(all)
}

/// The files that the trial reads, where that are files that a program can make something of: those of an array.
fn data_files(trial: &Trial) -> Result<Vec<String>, Failure> {
    let settings = &trial.settings;
    if !settings.reads_array() {
        return Ok(Vec::new());
    }
    if !settings.array.files.is_empty() {
        return Ok(settings.array.files.clone());
    }
    let dataset = ArrayDataset::open(&trial.data_dir).map_err(Failure::internal)?;
    let array = &settings.array;
    let files = dataset.store_files_of(array.format, array.file_count).map_err(Failure::internal)?;
    Ok(files.iter().map(|file| file.to_string_lossy().into_owned()).collect())
}

/// Drop the files that the program reads from the page cache, and write down in `rank`'s usage what came of it.
///
/// # Errors
/// A file cannot be opened, or the ledger cannot be written to.
pub(super) fn drop_cache(attempt: &AttemptDir, trial: &Trial, rank: u32) -> Result<(), Failure> {
    let files: Vec<PathBuf> = match trial.settings.reads_array() {
        true => data_files(trial)?.into_iter().map(PathBuf::from).collect(),
        false => {
            let dataset = Dataset::open(&trial.data_dir).map_err(Failure::internal)?;
            vec![dataset.store_file(trial.settings.pipeline.store)]
        }
    };
    let dropped = drop_from_page_cache(files.iter().map(PathBuf::as_path))?;
    let usage = RankUsage { dropped: Some(dropped), ..RankUsage::default() };
    Ok(write_json(&attempt.usage_path(rank), &usage)?)
}

/// Size of the files that the program was given, if it was given any.
fn read_by_it(trial: &Trial) -> Result<Option<FileSize>, Failure> {
    if trial.settings.data.set == NO_DATA_SET && trial.settings.array.files.is_empty() {
        return Ok(None);
    }
    let files = data_files(trial)?;
    Ok(if files.is_empty() { None } else { Some(FileSize::of_all(files.iter().map(Path::new))?) })
}

/// What a program says of itself.
pub(super) fn facts(run: &RunRecord) -> ProgramFacts {
    let mut facts = ProgramFacts {
        name: run.program.clone(),
        versions: run.versions.clone(),
        settings: run.settings.clone(),
        ..ProgramFacts::default()
    };
    run.counts.add_to(&mut facts);
    facts
}

/// Write `env.json`, and `data.json` where the program says what its data takes on disk; for rank 0.
///
/// # Errors
/// They cannot be written.
pub(super) fn write_environment(
    attempt: &AttemptDir,
    trial: &Trial,
    peers: &Peers,
    run: Option<&RunRecord>,
    facts: Option<&ProgramFacts>,
) -> Result<(), Failure> {
    let device = run.and_then(|run| run.device.clone()).unwrap_or_else(|| "cpu".to_owned());
    let environment = Environment {
        worker_version: env!("CARGO_PKG_VERSION").to_owned(),
        libtorch_version: String::new(),
        libtorch_file: String::new(),
        device,
        backend: run.and_then(|run| run.backend.clone()).unwrap_or_default(),
        threads: trial.settings.launch.threads,
        ranks: peers.start.hardware.clone(),
        variables: variables(),
        program: facts.cloned(),
        cuda: None,
    };
    write_json(&attempt.environment_path(), &environment)?;
    let size = match facts.and_then(|facts| facts.stored_bytes) {
        Some(bytes) => Some(FileSize { apparent_bytes: bytes, allocated_bytes: bytes }),
        None => read_by_it(trial)?,
    };
    let Some(size) = size else { return Ok(()) };
    let records = facts.and_then(|facts| facts.samples_total).unwrap_or(trial.settings.data.samples);
    let data = DataRead {
        store: None,
        records,
        selected: records,
        asked: None,
        buffer_bytes: 0,
        size,
        base_size: None,
        array: None,
    };
    Ok(write_json(&attempt.data_path(), &data)?)
}
