//! `expctl init`: the folders of a project and a first config in it.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use expctl_settings::is_url;
use toml::Value;

use super::plan::{CheckArgs, check};
use crate::console::{out, say};
use crate::exit::{Exit, Failure};
use crate::program::find_program;
use crate::project::Project;

/// Arguments of `expctl init`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  expctl init first --graph\n  expctl init cells --h5ad data/*.h5ad\n  expctl init mine --script train.py"
)]
pub struct InitArgs {
    /// Name of the config, conf/NAME.toml, and of its study, experiments/NAME
    #[arg(value_name = "NAME")]
    name: ConfigName,
    #[command(flatten)]
    kind: Kind,
}

/// What the config compares; one of them.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Kind {
    /// Compare ways to draw rows from these .h5ad files
    #[arg(long, value_name = "FILES", num_args = 1..)]
    h5ad: Vec<String>,
    /// Compare runs of this training script, whose processes are the ranks
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Compare ways to make a sample of a perturbed graph, on generated data
    #[arg(long)]
    graph: bool,
}

/// The name of a new config: ASCII letters, digits, `-` and `_`, the first of them a letter or digit. It is the name of a file, a folder
/// and a note.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ConfigName(String);

/// The text cannot name a config.
#[derive(Debug, thiserror::Error)]
#[error("a name has letters, digits, - and _, and begins with a letter or digit, for example first_try")]
struct ConfigNameError;

impl FromStr for ConfigName {
    type Err = ConfigNameError;

    fn from_str(text: &str) -> Result<Self, ConfigNameError> {
        let known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let fits = text.chars().all(known) && text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if fits { Ok(Self(text.to_owned())) } else { Err(ConfigNameError) }
    }
}

/// Make the folders and the config, and check it; prints the path of the config. What exists is never written over, and a config that
/// cannot be right is not left behind.
pub fn run(project: &Project, args: &InitArgs) -> Result<(), Failure> {
    let name = args.name.0.as_str();
    let config = project.root().join("conf").join(format!("{name}.toml"));
    let study = project.study(name);
    let mut files = vec![(config.clone(), config_text(project, name, &args.kind)?)];
    if args.kind.graph {
        files.push((study.join("dataset.toml"), RECIPE.replace("{name}", name)));
        files.push((study.join("genes.txt"), String::new()));
        files.push((study.join("record.json"), RECORD.to_owned()));
    } else if !study.exists() {
        // An empty folder would be lost in version control.
        files.push((
            study.join("README.md"),
            format!("# {name}\n\nWhat this study asks, and what its configs compare.\n"),
        ));
    }
    if let Some((path, _)) = files.iter().find(|(path, _)| path.symlink_metadata().is_ok()) {
        return Err(exists(path));
    }
    let mut new = NewFiles::default();
    let made = files.iter().try_for_each(|(path, text)| new.write(path, text));
    made.and_then(|()| check(project, &CheckArgs::of(&config))).inspect_err(|_| new.remove())?;
    for path in &new.files {
        say(format_args!("made {}", path.display()));
    }
    let shown = config.display();
    say(format_args!("next: edit it, then `expctl submit {shown} --wait`, on this machine with --backend local"));
    out(shown);
    Ok(())
}

fn exists(path: &Path) -> Failure {
    Failure::new(Exit::Usage, format!("{} exists, and init writes over nothing", path.display()))
        .hint("give another name, or edit the config that is there")
}

/// Files and folders that were made, in order.
#[derive(Debug, Default)]
struct NewFiles {
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl NewFiles {
    /// Write a new file, with the folders that it needs.
    fn write(&mut self, path: &Path, text: &str) -> Result<(), Failure> {
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::AlreadyExists => exists(path),
            _ => Failure::new(Exit::Incomplete, format!("cannot make {}: {e}", path.display())),
        };
        let missing = path.ancestors().skip(1).take_while(|folder| !folder.exists());
        let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        for folder in missing.into_iter().rev() {
            std::fs::create_dir(&folder).map_err(failed)?;
            self.folders.push(folder);
        }
        let mut file = std::fs::File::create_new(path).map_err(failed)?;
        self.files.push(path.to_owned());
        file.write_all(text.as_bytes()).map_err(failed)
    }

    /// Remove them again, as far as nothing else is in the folders by now.
    fn remove(&self) {
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
        for folder in self.folders.iter().rev() {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// The text of the config.
fn config_text(project: &Project, name: &str, kind: &Kind) -> Result<String, Failure> {
    let text = match &kind.script {
        Some(script) => SCRIPT.replace("{command}", &command(project, script)?),
        None if kind.graph => GRAPH.to_owned(),
        None => {
            let files = kind.h5ad.iter().map(|file| array_file(project, file)).collect::<Result<Vec<_>, _>>()?;
            ARRAY.replace("{files}", &list(files))
        }
    };
    Ok((HEAD.to_owned() + &text + TAIL).replace("{name}", name))
}

/// Texts as an array in TOML.
fn list(texts: Vec<String>) -> String {
    Value::Array(texts.into_iter().map(Value::String).collect()).to_string()
}

/// An entry of `array.files`: URLs and patterns unchanged, an existing file by its path.
fn array_file(project: &Project, file: &str) -> Result<String, Failure> {
    if is_url(file) {
        return Ok(file.to_owned());
    }
    let path = Path::new(file);
    if !path.exists() && !file.contains(['*', '?', '[']) {
        return Err(no_file(path));
    }
    in_project(project, path)
}

/// `worker.command`: the program of a Python or shell script with the script, or a program by its path.
fn command(project: &Project, script: &Path) -> Result<String, Failure> {
    if !script.is_file() {
        return Err(no_file(script));
    }
    let path = in_project(project, script)?;
    let extension = script.extension().unwrap_or_default();
    Ok(if extension == "py" {
        let python = if find_program(project.root(), "python").is_ok() { "python" } else { "python3" };
        list(vec![python.to_owned(), path])
    } else if extension == "sh" {
        list(vec!["bash".to_owned(), path])
    } else if path.contains('/') {
        list(vec![path])
    } else {
        // A bare name would be looked for in PATH.
        list(vec![format!("./{path}")])
    })
}

fn no_file(path: &Path) -> Failure {
    Failure::new(Exit::Config, format!("there is no file {}", path.display()))
}

/// A path from the current folder as one that configs have: from the project folder, or absolute where it lies outside.
fn in_project(project: &Project, path: &Path) -> Result<String, Failure> {
    let absolute = std::path::absolute(path).map_err(|e| Failure::internal(format!("{}: {e}", path.display())))?;
    let shown = absolute.strip_prefix(project.root()).unwrap_or(&absolute);
    let text = shown.to_str().ok_or_else(|| {
        Failure::new(Exit::Usage, format!("{} is not UTF-8, and a config cannot name it", path.display()))
    })?;
    Ok(text.to_owned())
}

const HEAD: &str = r#"# Made by `expctl init`: a config to change. All keys are in docs/reference/config.md of expctl; `expctl check` says what does not fit.

[experiment]
# The folder experiments/{name}; configs that ask about the same thing share it.
study = "{name}"
title = "{name}"
# What it asks, for the note.
description = ""
"#;

const ARRAY: &str = r#"
[array]
format = "h5ad"                 # own files are also read as "zarr", "parquet" and "mds"
# Paths and patterns, from the project folder.
files = {files}
# layer = "layers/counts"       # where the matrix is: X, raw or layers/NAME
# labels = ["cell_type"]        # columns of obs that a batch has as class numbers
# normalize = 10_000            # scale each row to this sum …
# log1p = true                  # … then ln(1 + x)

[loader]
batch_size = 128                # rows of a rank in a step
workers = 2                     # threads that load

[train]
mode = "data"                   # only loads; "train" trains a model that tells the first of `labels`

# What is compared: a section for each variant, with the keys in which it differs.
[variant.single]
method = "single rows in random order"
sampler.draw = "uniform"

[variant.chunked]
method = "chunks of rows, shuffled in memory"
sampler.draw = "chunked"

[compare]
baseline = "single"
"#;

const SCRIPT: &str = r#"
[loader]
batch_size = 32                 # what the program reports as samples of a step, unless it says otherwise

[train]
mode = "train"                  # what a step of the program does; only runs of the same mode are compared

# What is compared: a section for each variant. The program reports its steps: docs/guide/command-workers.md of expctl has the few lines.
[variant.baseline]
method = "as it is"
# A program and its arguments, without a shell; it runs in the project folder.
worker.command = {command}

# [variant.changed]
# method = "with the change"
# worker.command = ["python", "train.py", "--workers", "8"]

[compare]
baseline = "baseline"
"#;

const GRAPH: &str = r#"
[data]
# Generated as experiments/{name}/dataset.toml says, when it is first needed.
set = "{name}"
samples = 1_000

[loader]
batch_size = 16                 # samples of a rank in a step
workers = 1                     # threads that load

[model]
kind = "dango"
hidden = 16
edge_types = ["physical", "regulatory"]

[train]
mode = "train"                  # "data" only loads; "forward" and "forward_backward" lie between

# What is compared: a section for each variant, with the keys in which it differs.
[variant.lazy]
method = "a copy of the graph for each sample, with masks of removed edges"
pipeline.processor = "lazy"

[variant.shared]
method = "one graph for all samples, with lists of removed edges"
pipeline.processor = "shared"

[variant.ids]
method = "ids of the perturbed genes alone"
pipeline.processor = "ids"

[compare]
baseline = "lazy"
"#;

const TAIL: &str = r#"
[measure]
warmup = 10                     # steps in front, not counted
steps = 200                     # a run of less than a second has no verdict: take more where steps are short
repeats = 3                     # runs of each variant; with one there is no verdict
interleave = true               # A B A B, so that a busy machine is busy for all variants

[launch]
ranks = 1                       # processes of a run

# [slurm]                       # what a run asks for on a cluster; `expctl plan CONF --script` shows the batch script
# cpus_per_rank = 4
# memory_mib = 8192
# time_min = 30
"#;

const RECIPE: &str = r#"# Made by `expctl init`: a graph of genes and samples that perturb three of them, all generated. A change makes another data set.
title = "Generated graph of {name}"
genes = 1_000
gene_names = "genes.txt"        # a name a line; generated names fill up to `genes`

[samples]
count = 10_000                  # the most that a config may ask for
genes_per_sample = 3
record = "record.json"          # what is stored for a sample; $gene0 to $gene2 and the label are filled in
label_mean = 0.0
label_sd = 0.06
label_min = -1.0
label_max = 1.0

[[network]]
name = "physical"
edges = 21_000                  # one self-loop per gene included
directed = false
source = "generated"            # or { file = "edges.tsv.gz" }: lines of two row numbers in genes.txt and a score

[[network]]
name = "regulatory"
edges = 7_000
directed = true
source = "generated"

# Reactions of the genes and their metabolites, which `pipeline.metabolism = true` adds to the graph.
[bipartite]
reactions = 1_000
reactions_with_genes = 700
metabolites = 400
gpr = 800
rmr = 4_000
"#;

/// Record of a sample as published, with places for genes and label.
const RECORD: &str = include_str!("../../experiments/006-kuzmin-tmi/record.json");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_files_folders_and_notes() {
        for name in ["first", "006_fair", "a-B_2"] {
            assert_eq!(name.parse::<ConfigName>().unwrap().0, name);
        }
        for name in ["", "-a", "_a", "a/b", "..", "a b", "ä", "a.toml"] {
            assert!(name.parse::<ConfigName>().is_err(), "{name}");
        }
    }
}
