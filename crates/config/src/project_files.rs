//! `ProjectFolders` and `ProjectFiles`: what rules ask about the folders, programs and data of a project. Whoever calls this crate implements them.
//! Invariant: no rule opens a file of data itself, so this crate depends on no format of data.

use std::error::Error;
use std::path::{Path, PathBuf};

use expctl_settings::{Data, Settings};

/// Why a file or data set cannot be used, for the reader of a config.
pub type Reason = Box<dyn Error + Send + Sync>;

/// The facts of a data set of graphs that rules need.
#[derive(Clone, Debug)]
pub struct GraphDataSet {
    /// Names of its networks, in order.
    pub networks: Vec<String>,
    /// Samples that it has.
    pub samples: u64,
    /// Genes of its graph at scale 1.
    pub genes: u64,
    /// Genes that a sample perturbs.
    pub genes_per_sample: u32,
}

/// Why a pattern cannot name notes.
#[derive(Clone, Debug)]
pub struct NoteNameError {
    /// The message.
    pub message: String,
    /// A hint at the solution.
    pub help: String,
}

/// The project that a config belongs to: its folders and its programs. No data.
pub trait ProjectFolders {
    /// The project's folder. Relative paths of a config start here.
    fn root(&self) -> &Path;

    /// Folder of the studies: `experiments/`.
    fn studies(&self) -> PathBuf;

    /// Folder of the user's own settings; none without a home.
    fn config_home(&self) -> Option<&Path>;

    /// The profile of configs that name none, and that the user names none for either.
    fn default_profile(&self) -> Option<&str> {
        None
    }

    /// Whether its code was sent from another machine: where its config was written, other files may lie.
    fn is_sent(&self) -> bool {
        false
    }

    /// Folder of a built data set, absolute.
    fn data_dir(&self, data: &Data) -> PathBuf;

    /// The program that `name` stands for: a path from the root, or a name in `PATH`.
    ///
    /// # Errors
    /// There is no such program.
    fn find_program(&self, name: &str) -> Result<PathBuf, Reason>;

    /// Checks a pattern for names of notes.
    ///
    /// # Errors
    /// It makes no file name.
    fn check_note_name(&self, pattern: &str) -> Result<(), NoteNameError>;
}

/// The content of a project's data sets and files.
///
/// This crate opens configs and profiles alone. Whoever calls it knows the formats of data, and answers for them here.
pub trait ProjectFiles {
    /// The project.
    fn folders(&self) -> &dyn ProjectFolders;

    /// The data set of graphs whose recipe is in `folder`.
    ///
    /// # Errors
    /// The recipe cannot be read.
    fn graph_data_set(&self, folder: &Path) -> Result<GraphDataSet, Reason>;

    /// Rows of the data set of arrays whose recipe is in `folder`.
    ///
    /// # Errors
    /// The recipe cannot be read.
    fn array_data_set(&self, folder: &Path) -> Result<u64, Reason>;

    /// The array files that `named` stands for: a path below the root, a pattern, or a URL. Remote files are not looked for.
    ///
    /// # Errors
    /// No file fits, or it is not a pattern or URL that can be read.
    fn array_files(&self, named: &str) -> Result<Vec<PathBuf>, Reason>;

    /// Whether the path is a folder in zarr.
    fn is_zarr(&self, path: &Path) -> bool;

    /// Rows of an array file; `layer` says which matrix of it, empty is `X`.
    ///
    /// # Errors
    /// The file cannot be read, or has no such layer.
    fn rows(&self, file: &Path, layer: &str) -> Result<u64, Reason>;

    /// All that the ranks of a trial with these settings would refuse of its array files before their first step; nothing of files that are
    /// remote, or not built yet.
    fn array_refusals(&self, settings: &Settings) -> Vec<ArrayRefusal>;

    /// The recorded step times of the job, variant or trial that `named` stands for (`JOB` or `JOB/NAME`), ms, ascending; at least one.
    ///
    /// # Errors
    /// There is no such job or variant, or none of its steps computed anything.
    fn step_times(&self, named: &str) -> Result<Vec<f64>, Reason>;
}

/// What ranks would refuse of array files.
#[derive(Clone, Debug)]
pub struct ArrayRefusal {
    /// Key of the setting that asks for it.
    pub key: &'static str,
    /// Why it cannot be.
    pub message: String,
}
