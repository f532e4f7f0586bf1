//! `expctl data`: build, convert, show and verify data sets.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anndata_io::AnnDataError;
use expctl_datasets::array::{ArrayDataset, ArrayRecipe, ConvertOptions};
use expctl_datasets::graph::{Dataset, Recipe};
use expctl_datasets::{DatasetError, Family, array, graph};
use expctl_record::{ArrayFormat, Data, Settings, StoreKind, Trial};
use graph_loader::GraphError;
use indicatif::HumanCount;

use super::build_bar::BuildBar;
use super::data_set::{AnyRecipe, Set, known};
use super::{data_convert, data_convert_array, data_info, data_info_array, data_verify, out, say};
use crate::data_state::{DataState, Wanted};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::project::Project;

/// Arguments of `expctl data`.
#[derive(Debug, clap::Subcommand)]
pub enum Args {
    /// Build a data set; goes on where an earlier build was stopped
    Build(Set),
    /// Show what a built data set holds, and what of it is real
    Info {
        #[command(flatten)]
        set: Set,
        /// Print the manifest as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make stores of other kinds from the base store; goes on where an earlier conversion was stopped
    Convert(super::data_convert::Args),
    /// Compare the files of a built data set with its checksums and counts
    Verify(Set),
}

/// What to do about work that was stopped.
pub(super) const GOES_ON: &str = "the same command goes on where it stopped";

/// Run the verb.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    match args {
        Args::Build(set) => {
            let (data, family) = known(project, set)?;
            let wanted = match family {
                Family::Graph => Wanted::Graph(StoreKind::Json),
                Family::Array => Wanted::Array(ArrayFormat::H5ad),
            };
            ensure(project, &data, wanted, 0, &Interrupt::listen()?)?;
            out(project.data_dir(&data).display());
            Ok(())
        }
        Args::Info { set, json } => match known(project, set)? {
            (data, Family::Graph) => data_info::info(project, &data, *json),
            (data, Family::Array) => data_info_array::info(project, &data, *json),
        },
        Args::Convert(args) => data_convert::run(project, args),
        Args::Verify(set) => data_verify::run(project, set),
    }
}

/// Build the data set if it is not there and convert it to what is `wanted`, with progress on stderr; an interrupt leaves a
/// build that can go on. Files of an array are to be `file_count`, where that is not 0.
pub fn ensure(
    project: &Project,
    data: &Data,
    wanted: Wanted,
    file_count: u32,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    match (AnyRecipe::load(project, &data.set)?, wanted) {
        (AnyRecipe::Graph(recipe), Wanted::Graph(store)) => ensure_graph(project, &recipe, data, store, interrupt),
        (AnyRecipe::Array(recipe), Wanted::Array(format)) => {
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
    let mut progress = BuildBar::new(interrupt);
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
    data_convert::convert(&dataset, store, crate::parallel::threads(), interrupt)
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
    let mut progress = BuildBar::new(interrupt);
    let jobs = crate::parallel::threads();
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
    // Files that are there serve whatever options they were made with, but for a number of files that is asked for.
    if format == ArrayFormat::H5ad || dataset.converted_of(format, file_count).map_err(|e| failure(&e))?.is_some() {
        return Ok(());
    }
    let file_count = u64::from(file_count);
    let options = ConvertOptions { seed: data.seed, file_count, jobs, ..ConvertOptions::default() };
    data_convert_array::convert(&dataset, format, &options, interrupt)
}

/// Refuse what [`ensure`] would refuse, before hours of building what is missing beside it.
pub fn refuse_damaged(states: &BTreeMap<PathBuf, DataState>) -> Result<(), Failure> {
    states.values().try_for_each(|state| match state {
        DataState::Refused(e) => Err(failure(e)),
        DataState::There(()) | DataState::Missing => Ok(()),
    })
}

/// [`ensure`] for everything that trials read.
pub fn ensure_all(project: &Project, trials: &[Trial], interrupt: &Interrupt) -> Result<(), Failure> {
    let mut all: BTreeMap<(&PathBuf, Wanted), (&Data, u32)> = BTreeMap::new();
    for trial in trials {
        let Settings { data, array, .. } = &trial.settings;
        let Some(wanted) = Wanted::of(&trial.settings) else { continue };
        let (_, count) = all.entry((&trial.data_dir, wanted)).or_insert((data, 0));
        // A trial that asks for no number of files reads those of the others.
        *count = (*count).max(array.file_count);
    }
    all.iter().try_for_each(|((_, wanted), (data, count))| ensure(project, data, *wanted, *count, interrupt))
}

pub(super) fn failure(e: &DatasetError) -> Failure {
    match e.cause() {
        DatasetError::Stopped => {
            Failure::new(Exit::Incomplete, "stopped before the data set was complete").hint(GOES_ON)
        }
        DatasetError::NotBuilt { .. } if e.advice().is_none() => {
            Failure::new(Exit::Incomplete, e).hint("`expctl data build SET` with the same options builds it")
        }
        DatasetError::Busy { .. } => Failure::new(Exit::Incomplete, e).hint("wait for it, or stop it"),
        DatasetError::NotConverted { .. } => Failure::new(Exit::Incomplete, e),
        DatasetError::Invalid(_)
        | DatasetError::AnnData(AnnDataError::Invalid(_))
        | DatasetError::Graph(GraphError::UnknownEdgeType { .. } | GraphError::NoMasks { .. }) => {
            Failure::new(Exit::Config, e)
        }
        DatasetError::Io { source, .. }
        | DatasetError::AnnData(AnnDataError::Io { source, .. })
        | DatasetError::Graph(GraphError::Io { source, .. })
            if source.kind() == std::io::ErrorKind::StorageFull =>
        {
            Failure::internal(e).hint("fewer --samples need less; EXPCTL_DATA moves data sets to another disk")
        }
        DatasetError::NotBuilt { .. }
        | DatasetError::Damaged { .. }
        | DatasetError::Graph(GraphError::Rewritten { .. })
        | DatasetError::AnnData(
            AnnDataError::Damaged { .. } | AnnDataError::Rewritten { .. } | AnnDataError::CscTooLarge { .. },
        ) => Failure::new(Exit::Incomplete, e),
        _ => Failure::internal(e),
    }
}
