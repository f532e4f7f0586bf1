//! `expctl data verify`: whether a data set and its stores agree with their manifests.

use std::path::Path;

use expctl_datasets::{Damage, DatasetError, Family, array, graph};
use expctl_settings::{ArrayFormat, Data, StoreKind};
use expctl_text::format::count;

use super::build::{BuildProgressBar, failure};
use super::{DataSetArgs, described};
use crate::console::{out, say};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::project::Project;

/// Verify a data set: problems on stdout, store by store, and a hint for each of these stores.
pub fn run(project: &Project, set: &DataSetArgs) -> Result<(), Failure> {
    let (data, family) = described(project, set)?;
    let folder = project.data_dir(&data);
    let interrupt = Interrupt::listen()?;
    let mut progress = BuildProgressBar::new(&interrupt);
    let problems = match family {
        Family::Graph => graph::verify(&folder, &mut |p| progress.show(p)),
        Family::Array => array::verify(&folder, parallel_map::threads(), &mut |p| progress.show(p)),
    };
    let problems = problems.map_err(|e| match e {
        DatasetError::Stopped => Failure::new(Exit::Incomplete, "stopped before everything was compared"),
        e => failure(&e),
    })?;
    progress.finish();
    if problems.is_empty() {
        say(format_args!("{}: files and counts agree with the manifest", folder.display()));
        return Ok(());
    }
    let found = format!("{}: {}", folder.display(), count(problems.len() as u64, "problem"));
    let mut answer = Failure::new(Exit::Incomplete, found);
    let stores: Vec<&str> = match family {
        Family::Graph => StoreKind::ALL.iter().skip(1).map(|kind| kind.name()).collect(),
        Family::Array => ArrayFormat::ALL.iter().skip(1).map(|format| format.name()).collect(),
    };
    for store in std::iter::once(None).chain(stores.iter().map(|store| Some(*store))) {
        let of_store = problems.iter().filter(|problem| store_of(problem, &folder, &stores) == store);
        let of_store: Vec<&String> = of_store.collect();
        of_store.iter().for_each(out);
        if !of_store.is_empty() {
            answer = answer.hint(repair_hint(&folder, &data, store));
        }
    }
    Err(answer)
}

/// The converted store that a problem is of; `None` for the base store. Every problem begins with a path, relative to the data set or
/// absolute.
fn store_of<'s>(problem: &str, folder: &Path, stores: &[&'s str]) -> Option<&'s str> {
    let is_of = |store: &&&str| {
        // Up to the end of the name, which may be the beginning of another.
        let inside = format!("stores/{store}");
        let whole = folder.join(&inside).display().to_string();
        let ends = |rest: &str| rest.starts_with(['/', ':', ' ']) || rest.is_empty();
        let found = problem.split_once(&whole).map(|(_, rest)| rest).or_else(|| problem.strip_prefix(&inside));
        found.is_some_and(ends)
    };
    stores.iter().find(is_of).copied()
}

/// How to repair a store, with the advice of errors about it.
fn repair_hint(folder: &Path, data: &Data, store: Option<&str>) -> String {
    let problem = match store {
        None => DatasetError::NotBuilt { path: folder.to_owned() },
        Some(store) => DatasetError::Damaged { path: folder.join("stores").join(store), damage: Damage::Missing },
    };
    let advised = problem.advise(folder, data);
    let advice = advised.advice().map(ToString::to_string).unwrap_or_default();
    match store {
        None => format!(
            "the base store or what lies beside it: remove {} with everything in it, then {advice}",
            folder.display()
        ),
        Some(store) => format!("the {store} store alone: {advice}"),
    }
}
