//! Where things are: the folder that holds experiments/, conf/, data/ and results/.

use std::path::{Path, PathBuf};

use expctl_config::{NoteNameError, ProjectFolders, Reason};
use expctl_ledger::JobDir;
use expctl_settings::Data;
use expctl_text::{NoteName, NoteNameError as NameMistake};

use crate::program::find_program;

/// Variable with the commit of code that was sent from another machine, as JSON; its repository is on that machine. `null`: it has no commit.
pub const SENT_SOURCE: &str = "EXPCTL_SOURCE";

/// The folders of a project.
#[derive(Clone, Debug)]
pub struct Project {
    root: PathBuf,
    data: PathBuf,
    runs: PathBuf,
    config_home: Option<PathBuf>,
    cache_home: Option<PathBuf>,
    /// Where programs are, if not in `root`.
    programs: Option<PathBuf>,
    /// The machine whose ledger it is, if not this one.
    host: Option<String>,
    /// The name of this machine where the user is, if that is another one.
    known_as: Option<String>,
    default_profile: Option<String>,
    /// Its code was sent from another machine.
    is_sent: bool,
}

impl Project {
    /// The project at `root`; without it, the nearest folder that holds `experiments/` at or above the current folder, or
    /// else above `config`; else the folder of `config`, so that its jobs have one ledger from wherever it is submitted; else
    /// the current folder. `EXPCTL_DATA` and `EXPCTL_RUNS` move data sets and ledger elsewhere,
    /// for example to scratch.
    pub fn find(root: Option<&Path>, config: Option<&Path>) -> std::io::Result<Self> {
        let current = std::env::current_dir()?;
        let above = |place: &Path| place.ancestors().find(|d| d.join("experiments").is_dir()).map(Path::to_owned);
        let root = match root {
            Some(root) => current.join(root),
            None => above(&current)
                .or_else(|| above(&current.join(config?)))
                .or_else(|| current.join(config?).parent()?.canonicalize().ok())
                .unwrap_or_else(|| current.clone()),
        };
        let moved = |variable: &str, default: PathBuf| match std::env::var_os(variable) {
            Some(path) if !path.is_empty() => current.join(path),
            _ => default,
        };
        Ok(Self {
            data: moved("EXPCTL_DATA", root.join("data")),
            runs: moved("EXPCTL_RUNS", root.join("results").join("runs")),
            config_home: home_folder("XDG_CONFIG_HOME", ".config"),
            cache_home: home_folder("XDG_CACHE_HOME", ".cache"),
            programs: None,
            host: None,
            known_as: None,
            default_profile: std::env::var("EXPCTL_PROFILE").ok().filter(|name| !name.is_empty()),
            is_sent: std::env::var_os(SENT_SOURCE).is_some(),
            root,
        })
    }

    /// The same with a user's own folders, where no variable names others.
    #[must_use]
    pub fn with_folders(mut self, data: Option<PathBuf>, runs: Option<PathBuf>) -> Self {
        let free = |variable: &str| std::env::var_os(variable).is_none_or(|path| path.is_empty());
        if let Some(data) = data.filter(|_| free("EXPCTL_DATA")) {
            self.data = data;
        }
        if let Some(runs) = runs.filter(|_| free("EXPCTL_RUNS")) {
            self.runs = runs;
        }
        self
    }

    /// The same with the programs of another folder: the copy of the code that a job runs from.
    #[must_use]
    pub fn with_programs_of(mut self, folder: PathBuf) -> Self {
        self.programs = Some(folder);
        self
    }

    /// The same with this ledger and these data sets.
    #[must_use]
    pub fn with_ledger(mut self, runs: PathBuf, data: PathBuf) -> Self {
        self.runs = runs;
        self.data = data;
        self
    }

    /// The same with the ledger of another machine, as far as it was fetched.
    #[must_use]
    pub fn of_host(mut self, host: &str) -> Self {
        self.runs = self.host_folder(host).join("runs");
        self.host = Some(host.to_owned());
        self
    }

    /// The machine whose ledger it is, if not this one.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The same for a user who is on another machine, and calls this one `name`.
    #[must_use]
    pub fn known_as(mut self, name: Option<String>) -> Self {
        self.known_as = name;
        self
    }

    /// Whether the user is on another machine.
    pub fn is_for_another_machine(&self) -> bool {
        self.known_as.is_some()
    }

    /// The machine whose ledger it is, as the user names it; none if that is the one where the user is.
    pub fn machine(&self) -> Option<&str> {
        self.host().or(self.known_as.as_deref())
    }

    /// A job as the user names it: `12`, or `delta:12`.
    pub fn job_name(&self, job: u64) -> String {
        self.machine().map_or_else(|| job.to_string(), |machine| format!("{machine}:{job}"))
    }

    /// What names the machine in a command that the user types: nothing, or ` --on delta`.
    pub fn on_machine(&self) -> String {
        self.machine().map_or_else(String::new, |machine| format!(" --on {machine}"))
    }

    /// What is known here of another machine: its ledger, and what was submitted there.
    pub fn host_folder(&self, host: &str) -> PathBuf {
        self.results().join("hosts").join(host)
    }

    /// Folder of the user's own settings, `~/.config/expctl`.
    pub fn config_home(&self) -> Option<&Path> {
        self.config_home.as_deref()
    }

    /// Folder of what can be made again, `~/.cache/expctl`.
    pub fn cache_home(&self) -> Option<&Path> {
        self.cache_home.as_deref()
    }

    /// Whether there are studies here; without them most questions have no answer.
    pub fn has_studies(&self) -> bool {
        self.studies().is_dir()
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of a study.
    pub fn study(&self, study: &str) -> PathBuf {
        self.root.join("experiments").join(study)
    }

    /// Folder of all studies.
    pub fn studies(&self) -> PathBuf {
        self.root.join("experiments")
    }

    /// Folder of a built data set, absolute.
    pub fn data_dir(&self, data: &Data) -> PathBuf {
        self.data.join(&data.set).join(data.folder_name())
    }

    /// Folder of all data sets.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The ledger.
    pub fn runs(&self) -> &Path {
        &self.runs
    }

    /// A job in the ledger.
    pub fn job(&self, id: u64) -> JobDir {
        JobDir::new(self.runs.join(id.to_string()))
    }

    /// Folder of the generated notes.
    pub fn results(&self) -> PathBuf {
        self.root.join("results")
    }

    /// Folder of published results that the user imported.
    pub fn imported(&self) -> PathBuf {
        self.root.join("results").join("imported")
    }
}

impl ProjectFolders for Project {
    fn root(&self) -> &Path {
        self.root()
    }

    fn studies(&self) -> PathBuf {
        self.studies()
    }

    fn config_home(&self) -> Option<&Path> {
        self.config_home()
    }

    fn default_profile(&self) -> Option<&str> {
        self.default_profile.as_deref()
    }

    fn is_sent(&self) -> bool {
        self.is_sent
    }

    fn data_dir(&self, data: &Data) -> PathBuf {
        self.data_dir(data)
    }

    fn find_program(&self, name: &str) -> Result<PathBuf, Reason> {
        Ok(find_program(self.programs.as_deref().unwrap_or(&self.root), name)?)
    }

    fn check_note_name(&self, pattern: &str) -> Result<(), NoteNameError> {
        // A job to fill the pattern with: a config is checked before it has one.
        const SAMPLE: NoteName<'_> = NoteName { study: "study", config: "config", job: 1, submitted: 0 };
        let mistake = match SAMPLE.fill(pattern) {
            Ok(_) => return Ok(()),
            Err(mistake) => mistake,
        };
        let help = match mistake {
            NameMistake::UnknownPlaceholder { .. } => format!("known are {}", NoteName::PLACEHOLDERS),
            NameMistake::NoFileName { .. } => "--notes names the folder, --name only the file in it".to_owned(),
            _ => String::new(),
        };
        Err(NoteNameError { message: mistake.to_string(), help })
    }
}

/// `$XDG_CONFIG_HOME/expctl`, or `~/.config/expctl`, for example. The XDG rules have relative paths ignored.
fn home_folder(variable: &str, default: &str) -> Option<PathBuf> {
    let set = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set.or_else(|| Some(std::env::home_dir().filter(|home| home.is_absolute())?.join(default)))?;
    Some(base.join("expctl"))
}
