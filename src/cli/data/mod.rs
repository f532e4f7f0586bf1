//! `expctl data`: build, convert, show and verify data sets.

mod build;
mod convert;
mod info;
mod verify;

use expctl_datasets::Family;
use expctl_datasets::array::ArrayRecipe;
use expctl_datasets::graph::Recipe;
use expctl_settings::{ArrayFormat, Data, LabelSource, Networks, StoreKind};
use expctl_text::closest;

use self::build::failure;
pub use self::build::{
    data_json, ensure, ensure_all, folder_json, missing_data_line, refuse_damaged, say_missing_data,
};
use self::convert::ConvertArgs;
use super::words;
use crate::console::out;
use crate::data::StoredForm;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::project::Project;

/// Arguments of `expctl data`.
#[derive(Debug, clap::Subcommand)]
pub enum DataCommand {
    /// Build a data set; goes on where an earlier build was stopped
    #[command(
        after_help = "Examples:\n  expctl data build arrayloader --samples 20000\n  expctl data build 006-kuzmin-tmi --scale 0.1"
    )]
    Build(DataSetArgs),
    /// Show what a built data set holds, and what of it is real
    Info {
        #[command(flatten)]
        set: DataSetArgs,
        /// Print the manifest as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make stores of other kinds from the base store; goes on where an earlier conversion was stopped
    Convert(ConvertArgs),
    /// Compare the files of a built data set with its checksums and counts
    Verify(DataSetArgs),
}

impl DataCommand {
    /// Whether it converts files that are no data set.
    pub fn is_of_files(&self) -> bool {
        matches!(self, Self::Convert(args) if args.is_of_files())
    }
}

/// Run the verb.
pub fn run(project: &Project, command: &DataCommand) -> Result<(), Failure> {
    match command {
        DataCommand::Build(set) => {
            let (data, family) = described(project, set)?;
            let form = match family {
                Family::Graph => StoredForm::Graph(StoreKind::Json),
                Family::Array => StoredForm::Array(ArrayFormat::H5ad),
            };
            ensure(project, &data, form, 0, &Interrupt::listen()?)?;
            out(project.data_dir(&data).display());
            Ok(())
        }
        DataCommand::Info { set, json } => match described(project, set)? {
            (data, Family::Graph) => info::print_graph(project, &data, *json),
            (data, Family::Array) => info::print_array(project, &data, *json),
        },
        DataCommand::Convert(args) => convert::run(project, args),
        DataCommand::Verify(set) => verify::run(project, set),
    }
}

/// Which data set. The same options name the same folder.
#[derive(Debug, clap::Args)]
pub struct DataSetArgs {
    /// Folder in experiments/ that holds dataset.toml
    #[arg(value_name = "SET")]
    pub name: String,
    #[command(flatten)]
    pub options: DataSetOptions,
}

/// Properties of a data set.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct DataSetOptions {
    /// Number of samples, of an array its rows [default: what the recipe says]
    #[arg(long, value_name = "N")]
    samples: Option<u64>,
    /// Share of the genes, in (0, 1] [default: 1]
    #[arg(long, value_name = "X")]
    scale: Option<f64>,
    /// Of an array: number of genes, in place of a share of the recipe's
    #[arg(long, value_name = "N", conflicts_with = "scale", value_parser = clap::value_parser!(u64).range(1..))]
    genes: Option<u64>,
    /// Of a graph: the edges of the networks that ship, real ones as they are or completed to the published counts
    /// [default: real]
    #[arg(long, value_parser = words::<Networks>(&["real", "completed"]))]
    networks: Option<Networks>,
    /// Seed of everything that is generated [default: 42]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Of a graph: labels drawn at random, or a function of the three perturbed genes [default: random]
    #[arg(long, value_parser = words::<LabelSource>(&["random", "planted"]))]
    labels: Option<LabelSource>,
    /// Of an array: number of files that its rows are in [default: 1]
    #[arg(long, value_name = "N")]
    files: Option<u32>,
}

/// A recipe of either family.
#[derive(Debug)]
pub enum AnyRecipe {
    Graph(Recipe),
    Array(ArrayRecipe),
}

impl DataSetOptions {
    /// The first option that was given, except the seed, which has another meaning with --out.
    pub fn named(&self) -> Option<&'static str> {
        let given = [
            ("--samples", self.samples.is_some()),
            ("--scale", self.scale.is_some()),
            ("--genes", self.genes.is_some()),
            ("--networks", self.networks.is_some()),
            ("--labels", self.labels.is_some()),
            ("--files", self.files.is_some()),
        ];
        given.into_iter().find_map(|(name, given)| given.then_some(name))
    }
}

impl DataSetArgs {
    /// The data set that the options describe, of a recipe.
    pub fn data(&self, recipe: &AnyRecipe) -> Result<Data, Failure> {
        let DataSetOptions { samples, scale, genes, networks, seed, labels, files } = &self.options;
        let foreign = |what: &str, family: &str| {
            let message = format_args!("{what} applies to data sets of {family}; {} is none of them", self.name);
            Err(Failure::new(Exit::Config, message).hint("remove it"))
        };
        let (published, networks) = match recipe {
            AnyRecipe::Graph(recipe) => {
                if files.is_some() {
                    return foreign("--files", "arrays");
                }
                if genes.is_some() {
                    return foreign("--genes", "arrays");
                }
                (recipe.samples.count, networks.unwrap_or(Networks::Real))
            }
            AnyRecipe::Array(recipe) => {
                if networks.is_some() {
                    return foreign("--networks", "graphs");
                }
                if labels.is_some() {
                    return foreign("--labels", "graphs");
                }
                (recipe.rows, Networks::None)
            }
        };
        Ok(Data {
            set: self.name.clone(),
            samples: samples.unwrap_or(published),
            scale: scale.unwrap_or(1.0),
            networks,
            seed: seed.unwrap_or(42),
            labels: labels.unwrap_or(LabelSource::Random),
            files: files.unwrap_or(1),
            genes: genes.unwrap_or(0),
        })
    }
}

impl AnyRecipe {
    /// The recipe of a data set; an unknown name is answered with those that exist.
    pub fn load(project: &Project, set: &str) -> Result<Self, Failure> {
        let known = known_sets(project);
        if known.iter().any(|name| name == set) {
            let folder = project.study(set);
            let recipe = match Family::of_recipe(&folder) {
                Ok(Family::Graph) => Recipe::load(&folder).map(Self::Graph),
                Ok(Family::Array) => ArrayRecipe::load(&folder).map(Self::Array),
                Err(e) => Err(e),
            };
            return recipe.map_err(|e| failure(&e));
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
}

/// The data set that the options describe, if its recipe can make it, and its family.
pub fn described(project: &Project, set: &DataSetArgs) -> Result<(Data, Family), Failure> {
    let recipe = AnyRecipe::load(project, &set.name)?;
    let data = set.data(&recipe)?;
    let (checked, family) = match &recipe {
        AnyRecipe::Graph(recipe) => (recipe.check(&data), Family::Graph),
        AnyRecipe::Array(recipe) => (recipe.check(&data), Family::Array),
    };
    checked.map_err(|e| failure(&e.into()))?;
    Ok((data, family))
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
