//! What a job ran with and on, in words, and in what two jobs differ.

use std::collections::{BTreeMap, BTreeSet};

use expctl_ledger::{Provenance, Run};
use expctl_settings::{InId, find};
use serde::Serialize;

use crate::report::differences::is_relevant;
use crate::report::recorded_facts::{FACTS, fact_name, recorded_facts, short_hash};

/// Facts that say which code ran.
const CODE: [&str; 2] = ["commit", "changes"];

/// What a job ran with and on, by key.
pub type Facts = BTreeMap<String, String>;

/// Whether the key of [`crate::ledger::run_settings`] is that of a setting, and not of what the runs ran on.
fn is_setting(key: &str) -> bool {
    key.contains('.') && !key.starts_with("program.")
}

/// Whether a setting is a part of the identity of a trial.
fn is_in_identity(key: &str) -> bool {
    find(key).is_none_or(|spec| !matches!(spec.in_id, InId::Never))
}

/// The settings that make up the identity of a trial.
pub fn identity(run_settings: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_of_it = |(key, _): &(&String, &String)| is_setting(key) && is_in_identity(key);
    run_settings.iter().filter(is_of_it).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// What the runs of a row ran with and on, by key: what is in `run_settings` beside their identity, and what only `env.json` and
/// `provenance.json` have.
pub fn environment(runs: &[&Run], run_settings: &BTreeMap<String, String>, provenance: Option<&Provenance>) -> Facts {
    let known = run_settings.iter().filter(|(key, _)| match is_setting(key) {
        true => !is_in_identity(key) && is_relevant(key),
        // That of the job is the one of the rank where there is one.
        false => key.as_str() != "cpus",
    });
    let mut found: Facts = known.map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for environment in runs.iter().flat_map(|run| run.environments()) {
        for (key, value) in recorded_facts(environment).into_iter().filter(|(_, value)| !value.is_empty()) {
            all.entry(key).or_default().insert(value);
        }
    }
    found.extend(all.into_iter().map(|(key, values)| (key, values.into_iter().collect::<Vec<_>>().join("; "))));
    if let Some(provenance) = provenance {
        let source = provenance.source.as_ref();
        let changes = source.and_then(|source| source.hash.as_deref()).map_or("none", short_hash);
        found.insert("changes".to_owned(), changes.to_owned());
        for (key, program) in [("expctl_build", Some(&provenance.expctl)), ("worker_build", provenance.worker.as_ref())]
        {
            let build = program.and_then(|program| program.commit.as_deref().or(program.hash.as_deref()));
            found.extend(build.map(|build| (key.to_owned(), short_hash(build).to_owned())));
        }
    }
    found
}

/// A fact in which a job differs from the one before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EnvironmentChange {
    /// Key of the fact.
    pub key: String,
    /// Its name for a reader.
    pub name: String,
    /// What it was.
    pub before: String,
    /// What it is.
    pub after: String,
    /// Whether no job behind the change has a value that one before it had: only then can it explain that the rate changed for good.
    pub lasting: bool,
}

impl EnvironmentChange {
    /// Whether it says which code ran.
    pub fn is_of_code(&self) -> bool {
        CODE.contains(&self.key.as_str())
    }

    /// `GPU driver 550.54 → 560.28`.
    pub fn words(&self) -> String {
        format!("{} {} → {}", self.name, self.before, self.after)
    }
}

/// Facts in which the first of `behind` differs from the last of `before`; both are stretches of one series and not empty. A fact that is
/// known of only one of the two is no difference, but for variables, which are not set then.
pub fn environment_changes(before: &[&Facts], behind: &[&Facts]) -> Vec<EnvironmentChange> {
    let (Some(&last), Some(&first)) = (before.last(), behind.first()) else { return Vec::new() };
    let keys: BTreeSet<&String> = last.keys().chain(first.keys()).collect();
    let place = |key: &&String| FACTS.iter().position(|(known, _)| known == key).unwrap_or(FACTS.len());
    let mut keys: Vec<&String> = keys.into_iter().collect();
    keys.sort_by_key(place);
    let change = |key: &String| {
        let (old, new) = (value(last, key)?, value(first, key)?);
        let all = |of: &[&Facts]| of.iter().filter_map(|facts| value(facts, key)).collect::<BTreeSet<_>>();
        (old != new).then(|| EnvironmentChange {
            key: key.clone(),
            name: fact_name(key).to_owned(),
            before: old,
            after: new,
            lasting: all(before).is_disjoint(&all(behind)),
        })
    };
    keys.into_iter().filter_map(change).collect()
}

/// The value of a fact. Where a variable of the environment is not known, it was not set; the names of no other facts are in capitals.
fn value(facts: &Facts, key: &str) -> Option<String> {
    let is_variable = key.starts_with(|c: char| c.is_ascii_uppercase());
    facts.get(key).cloned().or_else(|| is_variable.then(|| "not set".to_owned()))
}

/// Several changes in words, without those of the code.
pub fn words_of<'a>(changes: impl IntoIterator<Item = &'a EnvironmentChange>) -> String {
    let others = changes.into_iter().filter(|change| !change.is_of_code());
    others.map(EnvironmentChange::words).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(facts: &[(&str, &str)]) -> Facts {
        facts.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_comes_back_explains_nothing() {
        let old = job(&[("gpu_driver", "550"), ("node", "n1"), ("kernel", "6.1")]);
        let other = job(&[("gpu_driver", "550"), ("node", "n2"), ("kernel", "6.1")]);
        let new = job(&[("gpu_driver", "560"), ("node", "n2"), ("OMP_NUM_THREADS", "1")]);
        let changes = environment_changes(&[&other, &old], &[&new, &new]);
        let found: Vec<(&str, bool)> = changes.iter().map(|change| (change.name.as_str(), change.lasting)).collect();
        assert_eq!(found, [("GPU driver", true), ("node", false), ("OMP_NUM_THREADS", true)]);
        assert_eq!(words_of(&changes), "GPU driver 550 → 560, node n1 → n2, OMP_NUM_THREADS not set → 1");
    }

    #[test]
    fn settings_of_the_identity_are_no_environment() {
        let settings = job(&[
            ("loader.workers", "4"),
            ("slurm.cpus_per_rank", "2"),
            ("slurm.partition", "a"),
            ("cpu", "X"),
            ("program.amp", "true"),
        ]);
        assert_eq!(identity(&settings).into_keys().collect::<Vec<_>>(), ["loader.workers", "slurm.cpus_per_rank"]);
    }
}
