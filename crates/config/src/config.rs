use std::path::{Path, PathBuf};

use expctl_record::Estimator;

use super::document::Document;
use super::files::Reader;
use super::layer::Layer;
use super::problem::{ConfErrors, Problem};
use super::profile_find::Ground;
use super::resolve::resolve;
use super::source::{Origin, Sources};
use super::suggest::closest;
use super::values::Values;
use crate::project::Project;

/// One variant at one point of the sweep, before repeats: what is run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name of the variant.
    pub variant: String,
    /// What tables call it.
    pub method: String,
    /// What the sweep set.
    pub point: Layer,
    /// Where the point stands; none without a sweep.
    pub at: Option<Origin>,
    /// All settings.
    pub values: Values,
}

/// A valid config.
#[derive(Clone, Debug)]
pub struct Config {
    /// Stem of the file name.
    pub name: String,
    /// The file, as given.
    pub path: PathBuf,
    /// `--set` arguments, as given.
    pub overrides: Vec<String>,
    /// Folder of the study in experiments/.
    pub study: String,
    /// Variant that ratios refer to.
    pub baseline: Option<String>,
    /// Published ways to make a rate that the note shows beside the right one.
    pub estimators: Vec<Estimator>,
    /// What is run: every variant at every point of the sweep. Never empty.
    pub runs: Vec<Run>,
    /// Number of variants.
    pub variants: usize,
    /// Number of points of the sweep; 1 without one.
    pub points: usize,
    /// The texts that it was read from.
    pub sources: Sources,
}

/// Read the config at `path` with its parents, put the `--set` arguments on top, and check everything.
///
/// # Errors
/// All problems of all texts, each with its place.
pub fn load(project: &Project, path: &Path, overrides: &[String]) -> Result<Config, ConfErrors> {
    let mut reader = Reader::new();
    let document = reader.file(path, None);
    let shown = path.display().to_string();
    let name = path.file_stem().map_or_else(|| shown.clone(), |stem| stem.to_string_lossy().into_owned());
    finish(project, reader, document, (name, path.to_owned()), overrides)
}

/// The same for a config that is not in a file: `text`, which messages call `shown`.
///
/// # Errors
/// As [`load`].
pub fn load_text(
    project: &Project,
    name: &str,
    shown: &str,
    text: &str,
    overrides: &[String],
) -> Result<Config, ConfErrors> {
    let mut reader = Reader::new();
    let tree = reader.text(shown, text).unwrap_or_default();
    let document = Document::read(&tree, &mut reader.problems);
    finish(project, reader, document, (name.to_owned(), PathBuf::from(shown)), overrides)
}

/// Put the `--set` arguments on top of what was read, and check everything. `called` is the name and the path of the config.
fn finish(
    project: &Project,
    mut reader: Reader,
    document: Document,
    called: (String, PathBuf),
    overrides: &[String],
) -> Result<Config, ConfErrors> {
    let (name, path) = called;
    let mut set = Document::default();
    for argument in overrides {
        let over = reader.argument(argument);
        set.extend(over);
    }
    let ground = Ground::lay(project, [&set.settings, &document.settings], &mut reader);
    let shown = path.display().to_string();
    let Reader { sources, mut problems, complete, .. } = reader;
    if !complete {
        return Err(ConfErrors::new(shown, problems, sources));
    }
    let resolved = resolve(project, &ground.settings, document, &set, &mut problems);
    if let Some(run) = resolved.runs.first() {
        ground.check(&run.values, &mut problems);
    }
    if !problems.is_empty() {
        return Err(ConfErrors::new(shown, problems, sources));
    }
    let study = resolved.runs.first().and_then(|run| run.values.text("experiment.study")).unwrap_or("").to_owned();
    Ok(Config {
        name,
        path,
        overrides: overrides.to_vec(),
        study,
        baseline: resolved.baseline,
        estimators: resolved.estimators,
        runs: resolved.runs,
        variants: resolved.variants,
        points: resolved.points,
        sources,
    })
}

/// The baseline, if there is such a variant.
pub(super) fn check_baseline(
    baseline: Option<(String, Origin)>,
    names: &[String],
    problems: &mut Vec<Problem>,
) -> Option<String> {
    let (name, at) = baseline?;
    if names.contains(&name) {
        return Some(name);
    }
    let problem = Problem::new(at, format!("the baseline `{name}` is not a variant"), "no such variant");
    problems.push(match closest(&name, names.iter().map(String::as_str)) {
        Some(near) => problem.help(format!("did you mean \"{near}\"?")),
        None => problem.help(format!("variants are {}", names.join(", "))),
    });
    None
}
