//! `expctl data`: build, show and verify data sets.

use std::collections::BTreeMap;

use expctl_pipeline::PipelineError;
use expctl_pipeline::dataset::{self, Dataset, Manifest, Recipe};
use expctl_record::{Data, Networks, Trial};
use indicatif::{HumanBytes, HumanCount};

use super::build_bar::BuildBar;
use super::{out, say};
use crate::conf::closest;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::project::Project;
use crate::report::Table;

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
    /// Compare the files of a built data set with its checksums and counts
    Verify(Set),
}

/// Which data set. The same options name the same folder.
#[derive(Debug, clap::Args)]
pub struct Set {
    /// Folder in experiments/ that holds dataset.toml
    #[arg(value_name = "SET")]
    name: String,
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
        }
    }
}

/// Run the verb.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    match args {
        Args::Build(set) => {
            let recipe = recipe(project, &set.name)?;
            let data = set.data(&recipe);
            ensure(project, &data, &Interrupt::listen()?)?;
            out(project.data_dir(&data).display());
            Ok(())
        }
        Args::Info { set, json } => info(project, set, *json),
        Args::Verify(set) => verify(project, set),
    }
}

/// Build the data set if it is not there, with progress on stderr; an interrupt leaves a build that can go on.
pub fn ensure(project: &Project, data: &Data, interrupt: &Interrupt) -> Result<(), Failure> {
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
    Ok(())
}

/// [`ensure`] for every data set that trials read.
pub fn ensure_all(project: &Project, trials: &[Trial], interrupt: &Interrupt) -> Result<(), Failure> {
    let wanted: BTreeMap<_, _> = trials.iter().map(|t| (&t.data_dir, &t.settings.data)).collect();
    wanted.values().try_for_each(|settings| ensure(project, settings, interrupt))
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
fn known(project: &Project, set: &Set) -> Result<Data, Failure> {
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

fn failure(e: &PipelineError) -> Failure {
    match e {
        PipelineError::Stopped => Failure::new(Exit::Incomplete, "stopped before the data set was complete")
            .hint("the same command goes on where it stopped"),
        PipelineError::NotBuilt { .. } => {
            Failure::new(Exit::Incomplete, e).hint("`expctl data build SET` with the same options builds it")
        }
        PipelineError::Invalid(_) => Failure::new(Exit::Config, e),
        PipelineError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            Failure::internal(e).hint("fewer --samples need less; EXPCTL_DATA moves data sets to another disk")
        }
        PipelineError::Damaged { .. } => Failure::new(Exit::Incomplete, e),
        _ => Failure::internal(e),
    }
}

fn info(project: &Project, set: &Set, json: bool) -> Result<(), Failure> {
    let data = known(project, set)?;
    let folder = project.data_dir(&data);
    let dataset = Dataset::open(&folder).map_err(|e| failure(&e))?;
    let manifest = dataset.manifest();
    if json {
        out(serde_json::to_string_pretty(manifest).map_err(Failure::internal)?);
        return Ok(());
    }
    out(format_args!("{}\n{}\n", manifest.title, folder.display()));
    out(network_table(manifest).markdown());
    out("\nEdges count each undirected edge once and one self-loop per gene.\n");
    out(facts_table(manifest).markdown());
    Ok(())
}

fn network_table(manifest: &Manifest) -> Table {
    let mut table = Table::new(["Network", "Edges", "Real", "Generated", "Self-loops", "Class"]).right(1..5);
    let count = |n: u64| HumanCount(n).to_string();
    let mut row = |name: &str, edges, real, generated, loops, class: &str| {
        table.row([name.to_owned(), count(edges), count(real), count(generated), count(loops), class.to_owned()]);
    };
    for n in &manifest.networks {
        row(&n.name, n.edges, n.real, n.generated, n.self_loops, n.class.name());
    }
    let sum = |of: fn(&dataset::NetworkInfo) -> u64| manifest.networks.iter().map(of).sum();
    row("all", manifest.num_edges(), sum(|n| n.real), sum(|n| n.generated), sum(|n| n.self_loops), "");
    for (name, edges) in
        [("gpr (gene→reaction)", manifest.bipartite.gpr), ("rmr (reaction→metabolite)", manifest.bipartite.rmr)]
    {
        row(name, edges, 0, edges, 0, manifest.bipartite.class.name());
    }
    table
}

fn facts_table(manifest: &Manifest) -> Table {
    let (genes, samples, store) = (&manifest.genes, &manifest.samples, &manifest.store);
    let mut table = Table::new(["What", "Value"]);
    let mut row = |what: &str, value: String| {
        table.row([what.to_owned(), value]);
    };
    let per_sample = |bytes: u64| bytes as f64 / samples.count.max(1) as f64;
    let store_file = manifest.files.iter().find(|file| file.path.ends_with("data.mdb"));
    row(
        "genes",
        format!("{} ({} real + {} generated)", HumanCount(genes.count), HumanCount(genes.real), genes.generated),
    );
    row(
        "samples",
        format!("{} of {} genes, {}", HumanCount(samples.count), samples.genes_per_sample, samples.class.name()),
    );
    row("label mean", format!("{:.6}", samples.label_mean));
    row("label sd (population)", format!("{:.6}", samples.label_sd));
    row("label min, max", format!("{:.6}, {:.6}", samples.label_min, samples.label_max));
    row("bytes, apparent", format!("{} ({})", HumanCount(manifest.bytes()), HumanBytes(manifest.bytes())));
    let allocated = manifest.allocated_bytes();
    row("bytes, allocated when built", format!("{} ({})", HumanCount(allocated), HumanBytes(allocated)));
    row("JSON bytes per sample", format!("{:.1}", per_sample(store.value_bytes)));
    row("store bytes per sample", format!("{:.1}", per_sample(store_file.map_or(0, |file| file.bytes))));
    let resumed = match manifest.resumed_at {
        0 => String::new(),
        n => format!(" (last run only; {} samples were there)", HumanCount(n)),
    };
    row("build time", format!("{:.1} s{resumed}", manifest.build_seconds));
    table
}

fn verify(project: &Project, set: &Set) -> Result<(), Failure> {
    let data = known(project, set)?;
    let folder = project.data_dir(&data);
    let interrupt = Interrupt::listen()?;
    let mut progress = BuildBar::new(&interrupt);
    let problems = dataset::verify(&folder, &mut |p| progress.show(p)).map_err(|e| failure(&e))?;
    progress.finish();
    if problems.is_empty() {
        say(format_args!("{}: files and counts agree with the manifest", folder.display()));
        return Ok(());
    }
    problems.iter().for_each(out);
    Err(Failure::new(Exit::Incomplete, format_args!("{}: {} problem(s)", folder.display(), problems.len()))
        .hint("remove the folder and build it again"))
}
