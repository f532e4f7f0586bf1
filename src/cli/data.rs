//! `expctl data`: build, convert, show and verify data sets.

use std::collections::BTreeMap;
use std::path::PathBuf;

use expctl_pipeline::PipelineError;
use expctl_pipeline::dataset::{self, Dataset, Recipe};
use expctl_record::{Data, LabelSource, Networks, StoreKind, Trial};
use indicatif::HumanCount;

use super::build_bar::BuildBar;
use super::{data_convert, data_info, data_verify, out, say};
use crate::conf::closest;
use crate::data_state::DataState;
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

/// Which data set. The same options name the same folder.
#[derive(Debug, clap::Args)]
pub struct Set {
    /// Folder in experiments/ that holds dataset.toml
    #[arg(value_name = "SET")]
    pub(super) name: String,
    /// Number of samples [default: the published number]
    #[arg(long, value_name = "N")]
    samples: Option<u64>,
    /// Share of the genes, in (0, 1]
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    scale: f64,
    /// Edges of the networks that ship: the real ones as they are, or completed to the published counts
    #[arg(long, value_enum, default_value_t = Edges::Real)]
    networks: Edges,
    /// Seed of everything that is generated
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
    /// Labels: drawn at random, or a function of the three perturbed genes
    #[arg(long, value_enum, default_value_t = Labels::Random)]
    labels: Labels,
}

/// [`LabelSource`] on the command line.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Labels {
    Random,
    Planted,
}

/// [`Networks`] on the command line.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Edges {
    Real,
    Completed,
}

impl Set {
    fn data(&self, recipe: &Recipe) -> Data {
        Data {
            set: self.name.clone(),
            samples: self.samples.unwrap_or(recipe.samples.count),
            scale: self.scale,
            networks: match self.networks {
                Edges::Real => Networks::Real,
                Edges::Completed => Networks::Completed,
            },
            seed: self.seed,
            labels: match self.labels {
                Labels::Random => LabelSource::Random,
                Labels::Planted => LabelSource::Planted,
            },
            files: 1,
        }
    }
}

/// What to do about work that was stopped.
pub(super) const GOES_ON: &str = "the same command goes on where it stopped";

/// Run the verb.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    match args {
        Args::Build(set) => {
            let recipe = recipe(project, &set.name)?;
            let data = set.data(&recipe);
            ensure(project, &data, StoreKind::Json, &Interrupt::listen()?)?;
            out(project.data_dir(&data).display());
            Ok(())
        }
        Args::Info { set, json } => data_info::info(project, set, *json),
        Args::Convert(args) => data_convert::run(project, args),
        Args::Verify(set) => data_verify::run(project, set),
    }
}

/// Build the data set if it is not there and convert it to `store`, with progress on stderr; an interrupt leaves a build that
/// can go on.
pub fn ensure(project: &Project, data: &Data, store: StoreKind, interrupt: &Interrupt) -> Result<(), Failure> {
    let folder = project.data_dir(data);
    let recipe = recipe(project, &data.set)?;
    let new = Dataset::open(&folder).is_err();
    let mut progress = BuildBar::new(interrupt);
    let manifest = dataset::build(&recipe, data, &folder, &mut |p| progress.show(p)).map_err(|e| failure(&e))?;
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

/// Refuse what [`ensure`] would refuse, before hours of building what is missing beside it.
pub fn refuse_damaged(states: &BTreeMap<PathBuf, DataState>) -> Result<(), Failure> {
    states.values().try_for_each(|state| match state {
        DataState::Refused(e) => Err(failure(e)),
        DataState::There(()) | DataState::Missing => Ok(()),
    })
}

/// [`ensure`] for every store that trials read.
pub fn ensure_all(project: &Project, trials: &[Trial], interrupt: &Interrupt) -> Result<(), Failure> {
    let store = |trial: &Trial| trial.settings.pipeline.store;
    let wanted: BTreeMap<_, _> = trials.iter().map(|t| ((&t.data_dir, store(t)), &t.settings.data)).collect();
    wanted.iter().try_for_each(|((_, store), data)| ensure(project, data, *store, interrupt))
}

/// The recipe of a data set; an unknown name is answered with those that exist.
fn recipe(project: &Project, set: &str) -> Result<Recipe, Failure> {
    let known = known_sets(project);
    if known.iter().any(|name| name == set) {
        return Recipe::load(&project.study(set)).map_err(|e| failure(&e));
    }
    let unknown = Failure::new(Exit::Config, format_args!("there is no data set `{set}`"));
    let unknown = match closest(set, known.iter().map(String::as_str)) {
        Some(name) => unknown.hint(format_args!("did you mean `{name}`?")),
        None => unknown,
    };
    Err(match known.as_slice() {
        [] => unknown.hint(format_args!("no folder in {} holds a dataset.toml", project.studies().display())),
        known => unknown.hint(format_args!("data sets: {}", known.join(", "))),
    })
}

/// What `set` asks for, if its recipe can make such a thing.
pub(super) fn known(project: &Project, set: &Set) -> Result<Data, Failure> {
    let recipe = recipe(project, &set.name)?;
    let data = set.data(&recipe);
    recipe.check(&data).map_err(|e| failure(&e))?;
    Ok(data)
}

fn known_sets(project: &Project) -> Vec<String> {
    let folders = std::fs::read_dir(project.studies()).into_iter().flatten().flatten();
    let mut names: Vec<String> = folders
        .filter(|folder| folder.path().join("dataset.toml").is_file())
        .map(|folder| folder.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

pub(super) fn failure(e: &PipelineError) -> Failure {
    match e.cause() {
        PipelineError::Stopped => {
            Failure::new(Exit::Incomplete, "stopped before the data set was complete").hint(GOES_ON)
        }
        PipelineError::NotBuilt { .. } if e.advice().is_none() => {
            Failure::new(Exit::Incomplete, e).hint("`expctl data build SET` with the same options builds it")
        }
        PipelineError::Busy { .. } => Failure::new(Exit::Incomplete, e).hint("wait for it, or stop it"),
        PipelineError::NotConverted { .. } => Failure::new(Exit::Incomplete, e),
        PipelineError::Invalid(_) => Failure::new(Exit::Config, e),
        PipelineError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            Failure::internal(e).hint("fewer --samples need less; EXPCTL_DATA moves data sets to another disk")
        }
        PipelineError::NotBuilt { .. } | PipelineError::Damaged { .. } | PipelineError::Rewritten { .. } => {
            Failure::new(Exit::Incomplete, e)
        }
        _ => Failure::internal(e),
    }
}
