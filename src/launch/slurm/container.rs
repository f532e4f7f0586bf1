//! The words that put a rank into a container.
//!
//! Invariant: what the rank reads and writes lies at the same path inside as outside.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use expctl_record::{JobRecord, Trial, is_url};

use super::path_text;
use super::tools::Programs;
use crate::conf::{Container, NO_DATA_SET, Profile};
use crate::exit::{Exit, Failure};
use crate::launch::libtorch_folder;
use crate::project::Project;

/// How the template starts a rank in a container.
#[derive(Debug)]
pub(super) struct Wrapping {
    runtime: String,
    nv: bool,
    binds: Vec<String>,
    image: String,
    /// What the runtime takes `LD_LIBRARY_PATH` from; it hides the one outside.
    library_variable: &'static str,
}

impl Wrapping {
    /// As the template sees it.
    pub fn into_value(self) -> minijinja::Value {
        let Self { runtime, nv, binds, image, library_variable } = self;
        minijinja::context! { runtime, nv, binds, image, library_variable }
    }

    /// None where there is no image.
    pub fn of(
        image: &str,
        profile: &Profile,
        project: &Project,
        job: &JobRecord,
        programs: &Programs,
    ) -> Result<Option<Self>, Failure> {
        if image.is_empty() {
            return Ok(None);
        }
        if image.starts_with('-') || image.contains(char::is_control) {
            return Err(Failure::new(Exit::Config, format!("{image:?} cannot be a container image"))
                .hint("set slurm.image to the path of one"));
        }
        let Container { runtime, mut binds, nv } = profile.container.clone().unwrap_or_default();
        binds.extend(profile.scratch.clone());
        let library_variable =
            if runtime == "apptainer" { "APPTAINERENV_LD_LIBRARY_PATH" } else { "SINGULARITYENV_LD_LIBRARY_PATH" };
        for folder in folders(project, job, programs) {
            let text = path_text(&folder)?;
            if text.contains([',', ':']) {
                return Err(Failure::new(Exit::Usage, format!("a container cannot be shown a folder named {text:?}"))
                    .hint("`,` and `:` have a meaning there; move the folder, or link to it"));
            }
            if !binds.iter().any(|bind| bind == text) {
                binds.push(text.to_owned());
            }
        }
        Ok(Some(Self { runtime, nv, binds, image: image.to_owned(), library_variable }))
    }
}

/// What a rank needs: its program with libtorch, the ledger, the data.
fn folders(project: &Project, job: &JobRecord, programs: &Programs) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = programs.worker.parent().map(Path::to_owned).into_iter().collect();
    folders.extend(libtorch_folder(&programs.worker));
    if job.trials.iter().any(|trial| trial.settings.runs_command()) {
        // The program is found and runs in the project folder, watched over by the launcher's own program.
        folders.push(project.root().to_owned());
        folders.extend(programs.expctl.parent().map(Path::to_owned));
    }
    folders.push(project.runs().to_owned());
    let data: BTreeSet<PathBuf> = job.trials.iter().flat_map(data_folders).collect();
    folders.extend(data);
    folders
}

/// Where a trial reads its data from: the data set, or own files.
fn data_folders(trial: &Trial) -> Vec<PathBuf> {
    match trial.settings.array.files.as_slice() {
        [] if trial.settings.data.set == NO_DATA_SET => Vec::new(),
        [] => vec![trial.data_dir.clone()],
        own => {
            let local = own.iter().filter(|file| !is_url(file));
            local.filter_map(|file| Some(Path::new(file).parent()?.to_owned())).collect()
        }
    }
}
