//! `expctl data verify`: whether a data set and its stores are what their manifests say.

use std::path::Path;

use expctl_pipeline::PipelineError;
use expctl_pipeline::dataset::{self, Dataset};
use expctl_record::StoreKind;

use super::build_bar::BuildBar;
use super::data::{Set, failure, known};
use super::{out, say};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::project::Project;
use crate::report::format::count;

/// Run the verb: what is wrong on stdout, store by store, and for each of these stores what to do.
pub(super) fn run(project: &Project, set: &Set) -> Result<(), Failure> {
    let data = known(project, set)?;
    let folder = project.data_dir(&data);
    let interrupt = Interrupt::listen()?;
    let mut progress = BuildBar::new(&interrupt);
    let problems = dataset::verify(&folder, &mut |p| progress.show(p)).map_err(|e| match e {
        PipelineError::Stopped => Failure::new(Exit::Incomplete, "stopped before everything was compared"),
        e => failure(&e),
    })?;
    progress.finish();
    if problems.is_empty() {
        say(format_args!("{}: files and counts agree with the manifest", folder.display()));
        return Ok(());
    }
    let found = format!("{}: {}", folder.display(), count(problems.len() as u64, "problem"));
    let mut answer = Failure::new(Exit::Incomplete, found);
    for kind in StoreKind::ALL {
        let of_store: Vec<&String> = problems.iter().filter(|problem| store_of(problem, &folder) == kind).collect();
        of_store.iter().for_each(out);
        if !of_store.is_empty() {
            answer = answer.hint(what_to_do(&folder, set, kind));
        }
    }
    Err(answer)
}

/// The store that a problem is of: every problem begins with a path, inside the data set or absolute. What lies in no store
/// counts as the base store's, which is built with it.
fn store_of(problem: &str, folder: &Path) -> StoreKind {
    let is_of = |kind: &&StoreKind| {
        let whole = Dataset::store_folder_in(folder, **kind);
        let inside = Dataset::store_folder_in(Path::new(""), **kind);
        problem.contains(&*whole.to_string_lossy()) || problem.starts_with(&*inside.to_string_lossy())
    };
    StoreKind::ALL.iter().filter(|kind| **kind != StoreKind::Json).find(is_of).copied().unwrap_or_default()
}

fn what_to_do(folder: &Path, set: &Set, kind: StoreKind) -> String {
    let (name, store) = (&set.name, Dataset::store_folder_in(folder, kind));
    match kind {
        StoreKind::Json => format!(
            "the base store or what lies beside it: remove {} and everything in it; `expctl data build {name}` with the same \
             options builds it again",
            folder.display()
        ),
        kind => format!(
            "the {kind} store alone: remove {}; `expctl data convert {name} --to {kind}` with the same options makes it again",
            store.display(),
            kind = kind.name()
        ),
    }
}
