use expctl_datasets::Family;
use expctl_datasets::array::ArrayRecipe;
use expctl_datasets::graph::Recipe;
use expctl_record::{Data, LabelSource, Networks};

use super::data::failure;
use crate::conf::closest;
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// Which data set. The same options name the same folder.
#[derive(Debug, clap::Args)]
pub struct Set {
    /// Folder in experiments/ that holds dataset.toml
    #[arg(value_name = "SET")]
    pub(super) name: String,
    #[command(flatten)]
    pub(super) options: SetOptions,
}

/// What a data set is to be.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct SetOptions {
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
    #[arg(long, value_enum)]
    networks: Option<Edges>,
    /// Seed of everything that is generated [default: 42]
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Of a graph: labels drawn at random, or a function of the three perturbed genes [default: random]
    #[arg(long, value_enum)]
    labels: Option<Labels>,
    /// Of an array: number of files that its rows are in [default: 1]
    #[arg(long, value_name = "N")]
    files: Option<u32>,
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

/// A recipe of either family.
#[derive(Debug)]
pub(super) enum AnyRecipe {
    Graph(Recipe),
    Array(ArrayRecipe),
}

impl SetOptions {
    /// The options that say which data set; the seed may mean something else.
    pub(super) fn named(&self) -> Option<&'static str> {
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

impl Set {
    pub(super) fn data(&self, recipe: &AnyRecipe) -> Result<Data, Failure> {
        let SetOptions { samples, scale, genes, networks, seed, labels, files } = &self.options;
        let foreign = |what: &str, family: &str| {
            let message = format_args!("{what} is of data sets of {family}, and {} is none", self.name);
            Err(Failure::new(Exit::Config, message).hint("leave it out"))
        };
        let (published, networks) = match recipe {
            AnyRecipe::Graph(recipe) => {
                if files.is_some() {
                    return foreign("--files", "arrays");
                }
                if genes.is_some() {
                    return foreign("--genes", "arrays");
                }
                let networks = match networks {
                    None | Some(Edges::Real) => Networks::Real,
                    Some(Edges::Completed) => Networks::Completed,
                };
                (recipe.samples.count, networks)
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
            labels: match labels {
                None | Some(Labels::Random) => LabelSource::Random,
                Some(Labels::Planted) => LabelSource::Planted,
            },
            files: files.unwrap_or(1),
            genes: genes.unwrap_or(0),
        })
    }
}

impl AnyRecipe {
    /// The recipe of a data set; an unknown name is answered with those that exist.
    pub(super) fn load(project: &Project, set: &str) -> Result<Self, Failure> {
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

/// What `set` asks for, if its recipe can make such a thing; and whether that is an array.
pub(super) fn known(project: &Project, set: &Set) -> Result<(Data, Family), Failure> {
    let recipe = AnyRecipe::load(project, &set.name)?;
    let data = set.data(&recipe)?;
    let (checked, family) = match &recipe {
        AnyRecipe::Graph(recipe) => (recipe.check(&data), Family::Graph),
        AnyRecipe::Array(recipe) => (recipe.check(&data), Family::Array),
    };
    checked.map_err(|e| failure(&e))?;
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
