//! [`ListedWord`]: what may follow on a command line, from the ledger, the configs and the profiles as they are now.
//!
//! Invariant: nothing here prints or fails. A shell in the middle of a line has no place for messages: what cannot be read is not listed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Command;
use expctl_config::{ISOLATED, UserDefaults, profile, profile_names, variant_names};
use expctl_ledger::{JobDir, JobRecord, JobVariants, Ledger, RecordedTrials};
use expctl_settings::{KEYS, KeySpec, Search, Section, Slurm, Trial, ValueType, find};

use super::typed_line::{Listed, TypedLine};
use crate::cli::host_words::is_known;
use crate::project::Project;

/// Newest jobs whose records are read for a list: of thousands, reading takes longer than a shell may.
const MAX_READ: usize = 50;
/// Bytes of records that are read for a list; that of the newest job is read whatever it has. A record of thousands of trials has some megabytes.
const MAX_READ_BYTES: u64 = 16 << 20;
/// Characters of a description.
const MAX_HELP: usize = 70;

/// A word that may follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedWord {
    /// The word.
    pub word: String,
    /// What it stands for, in a line; may be empty.
    pub help: String,
}

impl ListedWord {
    fn new(word: impl Into<String>, help: impl AsRef<str>) -> Self {
        // Titles are texts of others.
        let words: Vec<&str> = help.as_ref().split_whitespace().collect();
        let shown: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
        let help = match shown.char_indices().nth(MAX_HELP) {
            Some((end, _)) => format!("{}…", &shown[..end]),
            None => shown,
        };
        Self { word: word.into(), help }
    }

    fn plain(word: impl Into<String>) -> Self {
        Self::new(word, "")
    }
}

/// What may follow `words`, where the word at the cursor begins with `typed`. Not every word that is listed does.
pub fn words_after(cli: &Command, words: &[String], typed: &str) -> Vec<ListedWord> {
    let Some(line) = TypedLine::read(cli, words) else { return Vec::new() };
    let Some(listed) = line.argument().and_then(Listed::of) else { return Vec::new() };
    // A shell that takes `delta:12` for one word has the machine before the cursor, too.
    let (machine, typed) = match typed.split_once(':') {
        Some((name, rest)) if is_known(line.root.map(Path::new), name) => (Some(name), rest),
        _ => (None, typed),
    };
    let Some(lists) = Lists::open(&line, machine, typed) else { return Vec::new() };
    let found = match listed {
        Listed::Job => lists.jobs(),
        Listed::JobOrTrial => match typed.split_once('_') {
            Some((job, _)) => lists.trials(job),
            None => lists.jobs(),
        },
        Listed::Variant => lists.variants(),
        Listed::Config => lists.configs(),
        Listed::ConfigOrVariant => lists.configs_and_variants(),
        Listed::Setting => lists.settings(),
        Listed::Host => lists.hosts(),
        Listed::Profile => lists.profiles(),
        Listed::DataSet => lists.data_sets(),
    };
    let with_machine = |found: ListedWord| match machine {
        Some(name) => ListedWord { word: format!("{name}:{}", found.word), ..found },
        None => found,
    };
    found.into_iter().map(with_machine).filter(|found| is_one_word(&found.word)).collect()
}

/// Whether a shell reads the text as one word, as it is. Other names are left to the user to quote.
fn is_one_word(text: &str) -> bool {
    let text = text.replace('=', "");
    shlex::try_quote(&text).is_ok_and(|quoted| quoted == text)
}

/// What the lists are made from.
struct Lists<'a> {
    line: &'a TypedLine<'a>,
    typed: &'a str,
    project: Project,
    user: UserDefaults,
}

impl<'a> Lists<'a> {
    fn open(line: &'a TypedLine<'a>, machine: Option<&str>, typed: &'a str) -> Option<Self> {
        let root = line.root.map(Path::new);
        let is_of_job = matches!(line.subject(), Some(Listed::Job | Listed::JobOrTrial));
        let config = line.positionals.first().filter(|_| !is_of_job).map(Path::new);
        let project = Project::find(root, config).ok()?;
        let user = UserDefaults::load(&project).ok()?;
        let project = project.with_folders(user.data.clone(), user.runs.clone());
        let of_jobs = line.positionals.iter().filter_map(|word| Some(word.split_once(':')?.0));
        let host = machine.into_iter().chain(line.host).chain(of_jobs).find(|name| is_known(root, name));
        let project = match host {
            Some(host) => project.of_host(host),
            None => project,
        };
        Some(Self { line, typed, project, user })
    }

    fn ledger(&self) -> Option<Ledger> {
        Ledger::open(&self.project).ok()
    }

    /// Jobs, newest first.
    fn jobs(&self) -> Vec<ListedWord> {
        let Some(ledger) = self.ledger() else { return Vec::new() };
        let mut jobs = ledger.measured_ids();
        // Published ones have no ranks and no trials.
        jobs.extend(ledger.published_jobs().filter(|_| matches!(self.line.verb(), "compare" | "export")));
        // A baseline is mostly one of the jobs before it.
        let is_new = |name: &String| self.line.is_in_option() || !self.line.positionals.contains(&name.as_str());
        let mut described = 0;
        let listed = |(job, name): (u64, String)| {
            if described == MAX_READ || !name.starts_with(self.typed) {
                return ListedWord::plain(name);
            }
            described += 1;
            ListedWord::new(name, description(&ledger, job))
        };
        let named = jobs.iter().rev().map(|job| (*job, job.to_string()));
        named.filter(|(_, name)| is_new(name)).map(listed).collect()
    }

    /// The trials of a job, as its tasks.
    fn trials(&self, job: &str) -> Vec<ListedWord> {
        let record: Option<JobRecord> = self.job(job).and_then(|folder| folder.record().ok());
        let trials = record.map(|record| record.trials).unwrap_or_default();
        let listed = |(task, trial): (usize, &Trial)| ListedWord::new(format!("{job}_{task}"), trial.name());
        trials.iter().enumerate().map(listed).collect()
    }

    /// The folder of a job of this name: `12`, `delta:12`.
    fn job(&self, name: &str) -> Option<JobDir> {
        let number = name.rsplit(':').next().unwrap_or(name);
        self.ledger()?.measured(number.parse().ok()?).ok()
    }

    /// Config and variants of the newest jobs, newest first: of as many as can be read while a shell waits.
    fn newest_jobs(&self) -> Vec<JobVariants> {
        let Some(ledger) = self.ledger() else { return Vec::new() };
        let newest = ledger.measured_ids().into_iter().rev().take(MAX_READ);
        let folders = newest.filter_map(|job| ledger.measured(job).ok());
        let mut bytes = 0;
        let has_room = |folder: &JobDir| {
            let before = bytes;
            bytes += std::fs::metadata(folder.record_path()).map_or(0, |found| found.len());
            before == 0 || bytes <= MAX_READ_BYTES
        };
        folders.take_while(has_room).filter_map(|folder| JobVariants::read(&folder).ok()).collect()
    }

    /// Variants of the job or config that the line names.
    fn variants(&self) -> Vec<ListedWord> {
        let Some(first) = self.line.positionals.first().copied() else { return Vec::new() };
        let names = match self.line.subject() {
            Some(Listed::Job | Listed::JobOrTrial) => {
                self.job(first).and_then(|folder| JobVariants::read(&folder).ok()).map(|job| names_of(&job))
            }
            Some(Listed::ConfigOrVariant) if !Path::new(first).is_file() => {
                self.newest_jobs().iter().find(|job| job.config == first).map(names_of)
            }
            _ => Some(variant_names(Path::new(first))),
        };
        names.unwrap_or_default().into_iter().map(ListedWord::plain).collect()
    }

    /// The configs in conf/, as paths from where the user is.
    fn configs(&self) -> Vec<ListedWord> {
        let here = std::env::current_dir().unwrap_or_default();
        let mut paths: Vec<PathBuf> = entries(&self.project.root().join("conf"));
        paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
        let shown = |path: &PathBuf| Some(ListedWord::plain(path.strip_prefix(&here).unwrap_or(path).to_str()?));
        paths.iter().filter_map(shown).collect()
    }

    /// The configs in conf/, then configs and variants of the newest jobs.
    fn configs_and_variants(&self) -> Vec<ListedWord> {
        let mut words = self.configs();
        let jobs = self.newest_jobs();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for job in &jobs {
            if seen.insert(&job.config) {
                words.push(ListedWord::new(&job.config, "config of jobs here"));
            }
        }
        for job in &jobs {
            for variant in job.variants() {
                if seen.insert(variant) {
                    words.push(ListedWord::new(variant, format!("variant of {}", job.config)));
                }
            }
        }
        words
    }

    /// Keys with `=`, or the values of the key that is typed. Behind `variant.`, the keys of each variant.
    fn settings(&self) -> Vec<ListedWord> {
        if let Some(key) = self.line.key {
            return self.values_of(key).into_iter().map(ListedWord::plain).collect();
        }
        if let Some((key, _)) = self.typed.split_once('=') {
            let assigned = |value: String| ListedWord::plain(format!("{key}={value}"));
            return self.values_of(key).into_iter().map(assigned).collect();
        }
        let searched = if self.line.verb() == "search" { Search::KEYS } else { &[] };
        let can_be_set = |spec: &&KeySpec| self.line.verb() != "isolate" || !ISOLATED.contains(&spec.key);
        let keys: Vec<&KeySpec> = KEYS.iter().chain(searched).filter(can_be_set).collect();
        if !self.typed.starts_with("variant.") {
            return keys.iter().map(|spec| ListedWord::new(format!("{}=", spec.key), spec.help)).collect();
        }
        let is_bare = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        let variants: Vec<String> = self.variants().into_iter().map(|listed| listed.word).collect();
        let variants = variants.iter().filter(|name| is_bare(name));
        let of_variant = |name: &String| -> Vec<ListedWord> {
            let keys = keys.iter().filter(|spec| !spec.per_job);
            keys.map(|spec| ListedWord::new(format!("variant.{name}.{}=", spec.key), spec.help)).collect()
        };
        variants.flat_map(of_variant).collect()
    }

    /// The values of a key, where they can be listed.
    fn values_of(&self, key: &str) -> Vec<String> {
        let of_variant = key.strip_prefix("variant.").and_then(|rest| rest.split_once('.'));
        let key = of_variant.map_or(key, |(_, key)| key);
        if key == Slurm::PROFILE.name() {
            return profile_names(&self.project);
        }
        let words: &[&str] = match find(key).map(|spec| spec.value) {
            Some(ValueType::Bool) => &["true", "false"],
            Some(ValueType::Choice { words, .. }) => words,
            _ => &[],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Machines that `--on` gets to: those of the user, and the profiles that say how.
    fn hosts(&self) -> Vec<ListedWord> {
        let own = self.user.ssh.iter().map(|(name, ssh)| ListedWord::new(name, &ssh.host));
        let profiles = profile_names(&self.project).into_iter().filter(|name| !self.user.ssh.contains_key(name));
        let of_profiles = profiles.filter_map(|name| {
            let host = profile(&self.project, &name).ok()?.ssh?.host;
            Some(ListedWord::new(name, host))
        });
        own.chain(of_profiles).collect()
    }

    fn profiles(&self) -> Vec<ListedWord> {
        let described = |name: String| {
            let about = profile(&self.project, &name).map(|profile| profile.description).unwrap_or_default();
            ListedWord::new(name, about)
        };
        profile_names(&self.project).into_iter().map(described).collect()
    }

    /// Folders in experiments/ that hold a recipe.
    fn data_sets(&self) -> Vec<ListedWord> {
        let folders = entries(&self.project.studies()).into_iter().filter(|path| path.join("dataset.toml").is_file());
        folders.filter_map(|path| Some(ListedWord::plain(path.file_name()?.to_str()?))).collect()
    }
}

/// What a folder has, sorted.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = found.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// The variants of a job.
fn names_of(job: &JobVariants) -> Vec<String> {
    job.variants().into_iter().map(str::to_owned).collect()
}

/// The config of a job and the title of its experiment.
fn description(ledger: &Ledger, job: u64) -> String {
    let Ok(folder) = ledger.measured(job) else {
        let row = ledger.published_rows().iter().find(|row| row.jobs.contains(&job));
        return row.map(|row| format!("{}, published", row.config)).unwrap_or_default();
    };
    let config = folder.head().map(|head| head.config).unwrap_or_default();
    match title(&folder) {
        Some(title) if !title.is_empty() => format!("{config}: {title}"),
        _ => config,
    }
}

/// The title of the experiment of a job, which its trials have.
fn title(folder: &JobDir) -> Option<String> {
    let first = RecordedTrials::read(folder).ok()?.trial(folder, 0).ok()??;
    Some(first.settings.experiment.title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_one_line_that_steers_no_terminal() {
        let help = |text: &str| ListedWord::new("12", text).help;
        assert_eq!(help("Two\n\tlines \u{1b}[2J"), "Two lines [2J");
        assert_eq!(help(&"é".repeat(MAX_HELP)), "é".repeat(MAX_HELP));
        assert_eq!(help(&"é".repeat(MAX_HELP + 1)), format!("{}…", "é".repeat(MAX_HELP)));
    }

    #[test]
    fn what_a_shell_reads_as_more_than_a_word_is_not_listed() {
        assert!(["12", "conf/a.toml", "loader.workers=", "sampler.draw=chunked", "far:7"].into_iter().all(is_one_word));
        assert!(["$(touch run)", "a b", "a;b", "~", "=", ""].into_iter().all(|text| !is_one_word(text)));
    }
}
