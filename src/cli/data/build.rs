//! Building the data sets that trials read, with progress on stderr.

use std::collections::BTreeMap;
use std::io::{ErrorKind, IsTerminal};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anndata_io::AnnDataError;
use expctl_config::Plan;
use expctl_datasets::array::{ArrayDataset, ArrayRecipe, ConvertOptions};
use expctl_datasets::graph::{Dataset, Recipe};
use expctl_datasets::{BuildProgress, DatasetError, array, graph};
use expctl_settings::{ArrayFormat, Data, Settings, StoreKind, Trial};
use graph_loader::GraphError;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use serde_json::{Value as Json, json};

use super::{AnyRecipe, convert};
use crate::console::say;
use crate::data::{DataSize, DataState, StoredForm, data_states};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::project::Project;

/// Hint after work that was stopped.
pub const RESUME_HINT: &str = "the same command goes on where it stopped";

/// Build the data set if it is missing and convert it to `form`, with progress on stderr; a build that is interrupted can be
/// resumed. An array gets `file_count` files, unless that is 0.
pub fn ensure(
    project: &Project,
    data: &Data,
    form: StoredForm,
    file_count: u32,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    match (AnyRecipe::load(project, &data.set)?, form) {
        (AnyRecipe::Graph(recipe), StoredForm::Graph(store)) => ensure_graph(project, &recipe, data, store, interrupt),
        (AnyRecipe::Array(recipe), StoredForm::Array(format)) => {
            ensure_array(project, &recipe, data, (format, file_count), interrupt)
        }
        (recipe, _) => {
            let (is, asked) = match recipe {
                AnyRecipe::Graph(_) => ("samples of a graph", "rows of an array"),
                AnyRecipe::Array(_) => ("rows of an array", "samples of a graph"),
            };
            let message = format_args!("data set `{}` has {is}, and {asked} are to be read", data.set);
            Err(Failure::new(Exit::Config, message))
        }
    }
}

fn ensure_graph(
    project: &Project,
    recipe: &Recipe,
    data: &Data,
    store: StoreKind,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let folder = project.data_dir(data);
    let new = Dataset::open(&folder).is_err();
    let mut progress = BuildProgressBar::new(interrupt);
    let manifest = graph::build(recipe, data, &folder, &mut |p| progress.show(p)).map_err(|e| failure(&e))?;
    progress.finish();
    if new {
        say(format_args!(
            "built {} samples and {} edges in {:.1} s: {}",
            HumanCount(manifest.samples.count),
            HumanCount(manifest.num_edges()),
            manifest.build_seconds,
            folder.display()
        ));
    }
    if store == StoreKind::Json {
        return Ok(());
    }
    let dataset = Dataset::open(&folder).map_err(|e| failure(&e))?;
    convert::convert_graph(&dataset, store, parallel_map::threads(), interrupt)
}

fn ensure_array(
    project: &Project,
    recipe: &ArrayRecipe,
    data: &Data,
    (format, file_count): (ArrayFormat, u32),
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let folder = project.data_dir(data);
    let new = ArrayDataset::open(&folder).is_err();
    let mut progress = BuildProgressBar::new(interrupt);
    let jobs = parallel_map::threads();
    let manifest = array::build(recipe, data, &folder, jobs, &mut |p| progress.show(p)).map_err(|e| failure(&e))?;
    progress.finish();
    if new {
        say(format_args!(
            "built {} rows of {} genes with {} values in {:.1} s: {}",
            HumanCount(manifest.rows),
            HumanCount(manifest.genes),
            HumanCount(manifest.nnz),
            manifest.build_seconds,
            folder.display()
        ));
    }
    let dataset = ArrayDataset::open(&folder).map_err(|e| failure(&e))?;
    // Existing files serve with whatever options they were made, except where a number of files is asked for.
    if format == ArrayFormat::H5ad || dataset.converted_of(format, file_count).map_err(|e| failure(&e))?.is_some() {
        return Ok(());
    }
    let file_count = u64::from(file_count);
    let options = ConvertOptions { seed: data.seed, file_count, jobs, ..ConvertOptions::default() };
    convert::convert_array(&dataset, format, &options, interrupt)
}

/// Refuse damaged data, as [`ensure`] would, before hours of building other data.
pub fn refuse_damaged(states: &BTreeMap<PathBuf, DataState>) -> Result<(), Failure> {
    states.values().try_for_each(|state| match state {
        DataState::Refused(e) => Err(failure(e)),
        DataState::There(()) | DataState::Missing => Ok(()),
    })
}

/// [`ensure`] for all data that trials read.
pub fn ensure_all(project: &Project, trials: &[Trial], interrupt: &Interrupt) -> Result<(), Failure> {
    let mut all: BTreeMap<(&PathBuf, StoredForm), (&Data, u32)> = BTreeMap::new();
    for trial in trials {
        let Settings { data, array, .. } = &trial.settings;
        let Some(form) = StoredForm::from_settings(&trial.settings) else { continue };
        let (_, count) = all.entry((&trial.data_dir, form)).or_insert((data, 0));
        // A trial that asks for no number of files reads the files of the others.
        *count = (*count).max(array.file_count);
    }
    all.iter().try_for_each(|((_, form), (data, count))| ensure(project, data, *form, *count, interrupt))
}

/// Say how large each missing folder of data will be, and how much of the disk is free.
pub fn say_missing_data(project: &Project, plan: &Plan) {
    let data = data_states(project, &plan.trials);
    let size = DataSize::of(project, &plan.trials, &data);
    for (folder, _) in data.iter().filter(|(_, state)| matches!(state, DataState::Missing)) {
        say(missing_data_line(folder, &size));
    }
    size.summary().into_iter().for_each(|summary| say(format!("data: {summary}")));
}

/// What building the missing `folder` would write.
pub fn missing_data_line(folder: &Path, size: &DataSize) -> String {
    let expected = size.of_folder(folder).map(|expected| format!(", {expected} (estimated)")).unwrap_or_default();
    format!("data: {} would be built{expected}", folder.display())
}

/// State of each folder of data, for `plan --json`.
pub fn data_json(project: &Project, plan: &Plan) -> Json {
    let data = data_states(project, &plan.trials);
    let size = DataSize::of(project, &plan.trials, &data);
    data.iter().map(|(folder, state)| folder_json(folder, state, &size)).collect()
}

/// State of one folder of data.
pub fn folder_json(folder: &Path, state: &DataState, size: &DataSize) -> Json {
    let (word, reason) = match state {
        DataState::There(()) => ("there", None),
        DataState::Missing => ("missing", None),
        DataState::Refused(e) => ("refused", Some(e.to_string())),
    };
    let expected = size.of_folder(folder).map(|expected| expected.bytes);
    json!({ "folder": folder, "built": word == "there", "state": word, "reason": reason, "estimated_bytes": expected })
}

/// As [`failure`], for a data set that is opened: if it is not built, those of its recipe that are built are named.
pub fn open_failure(project: &Project, data: &Data, e: &DatasetError) -> Failure {
    let found = failure(e);
    if !matches!(e.cause(), DatasetError::NotBuilt { .. }) {
        return found;
    }
    let entries = std::fs::read_dir(project.data().join(&data.set)).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| entry.path().join("manifest.json").is_file());
    let mut built: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    built.sort();
    if built.is_empty() { found } else { found.hint(format_args!("built are: {}", built.join(", "))) }
}

pub fn failure(e: &DatasetError) -> Failure {
    match e.cause() {
        DatasetError::Stopped => {
            Failure::new(Exit::Incomplete, "stopped before the data set was complete").hint(RESUME_HINT)
        }
        DatasetError::NotBuilt { .. } if e.advice().is_none() => {
            Failure::new(Exit::Incomplete, e).hint("`expctl data build SET` with the same options builds it")
        }
        DatasetError::Busy { .. } => Failure::new(Exit::Incomplete, e).hint("wait for it, or stop it"),
        DatasetError::NotConverted { .. } => Failure::new(Exit::Incomplete, e),
        DatasetError::Setting { .. }
        | DatasetError::Request(_)
        | DatasetError::AnnData(AnnDataError::Request(_))
        | DatasetError::Graph(GraphError::UnknownEdgeType { .. } | GraphError::NoMasks { .. }) => {
            Failure::new(Exit::Config, e)
        }
        DatasetError::Io { source, .. }
        | DatasetError::AnnData(AnnDataError::Io { source, .. })
        | DatasetError::Graph(GraphError::Io { source, .. })
            if source.kind() == ErrorKind::StorageFull =>
        {
            Failure::new(Exit::Incomplete, e)
                .hint("fewer --samples need less; EXPCTL_DATA moves data sets to another disk")
        }
        DatasetError::Io { source, .. }
        | DatasetError::AnnData(AnnDataError::Io { source, .. })
        | DatasetError::Graph(GraphError::Io { source, .. })
            if matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
        {
            Failure::new(Exit::Incomplete, e)
        }
        DatasetError::NotBuilt { .. }
        | DatasetError::Damaged { .. }
        | DatasetError::RowsChanged { .. }
        | DatasetError::Graph(GraphError::Rewritten { .. })
        | DatasetError::AnnData(
            AnnDataError::Damaged { .. }
            | AnnDataError::Rewritten { .. }
            | AnnDataError::CscTooLarge { .. }
            | AnnDataError::Write { .. },
        ) => Failure::new(Exit::Incomplete, e),
        _ => Failure::internal(e),
    }
}

/// Progress on stderr: a bar on a terminal, otherwise a line at the start of a phase and every ten seconds. A phase that repeats for each of
/// many files has a starting line once. Ctrl-C stops the work at its next step.
pub struct BuildProgressBar {
    bar: Option<ProgressBar>,
    phase: &'static str,
    phases: Vec<&'static str>,
    /// What the last line said was done.
    shown_done: u64,
    last_line: Instant,
    interrupt: Interrupt,
}

impl BuildProgressBar {
    /// Progress of work that `interrupt` stops.
    pub fn new(interrupt: &Interrupt) -> Self {
        let bar = std::io::stderr().is_terminal().then(ProgressBar::no_length);
        Self {
            bar,
            phase: "",
            phases: Vec::new(),
            shown_done: 0,
            last_line: Instant::now(),
            interrupt: interrupt.clone(),
        }
    }

    /// Show progress; breaks after an interrupt.
    pub fn show(&mut self, p: BuildProgress) -> ControlFlow<()> {
        let changed = std::mem::replace(&mut self.phase, p.phase) != p.phase;
        let new = !self.phases.contains(&p.phase);
        if new {
            self.phases.push(p.phase);
        }
        // A phase that has a line ends with one.
        let ended = !new && p.done == p.total && self.shown_done != p.done;
        match &self.bar {
            Some(bar) => {
                if changed {
                    bar.reset();
                    bar.set_style(style(p.phase));
                    bar.set_message(p.phase);
                }
                bar.set_length(p.total);
                bar.set_position(p.done);
            }
            None if new || ended || self.last_line.elapsed() >= Duration::from_secs(10) => {
                self.last_line = Instant::now();
                self.shown_done = p.done;
                say(format_args!("{}: {} of {}", p.phase, HumanCount(p.done), HumanCount(p.total)));
            }
            None => {}
        }
        if self.interrupt.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Remove the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(phase: &str) -> ProgressStyle {
    let counts = match phase {
        "checksum" => "{decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}",
        _ => "{human_pos}/{human_len} {per_sec}",
    };
    ProgressStyle::with_template(&format!("{{msg:11}} [{{bar:40}}] {counts} eta {{eta}}"))
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}
