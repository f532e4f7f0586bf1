//! What a history is asked for: a config or a variant, as the jobs of the ledger name them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::rated_jobs::JobIdentity;

/// A config or variant, and what of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Name or path of a config, or name of a variant.
    pub name: String,
    /// The only variant of the config that is asked for; `None` for all.
    pub only: Option<String>,
    /// The job from whose submission on jobs count; `None` for all.
    pub since: Option<u64>,
}

impl HistoryQuery {
    /// The name that a config of this name or path has.
    pub fn config_name(&self) -> &str {
        let path = Path::new(&self.name);
        let stem = path.file_stem().filter(|_| path.extension().is_some_and(|end| end == "toml"));
        stem.and_then(|stem| stem.to_str()).unwrap_or(&self.name)
    }

    /// Whether the job is one of the config.
    fn is_of_config(&self, job: &JobIdentity) -> bool {
        job.config == self.name || self.paths().iter().any(|path| is_same_file(path, &job.config_path))
    }

    /// The variants of a job that are asked for.
    pub fn selected_variants<'a>(&self, job: &'a JobIdentity) -> BTreeSet<&'a str> {
        let of_config = self.is_of_config(job);
        let is_selected = |variant: &&str| {
            let is_named = of_config || *variant == self.name;
            is_named && self.only.as_ref().is_none_or(|only| only == variant)
        };
        job.variants.iter().map(String::as_str).filter(is_selected).collect()
    }

    /// The name as a path, and where it leads: a job may have recorded the one or the other.
    fn paths(&self) -> Vec<PathBuf> {
        let path = Path::new(&self.name);
        if path.extension().is_none() && path.components().count() < 2 {
            return Vec::new();
        }
        std::iter::once(path.to_owned()).chain(path.canonicalize()).collect()
    }
}

/// Whether one of the paths is the end of the other, as `conf/small.toml` is of `/home/me/project/conf/small.toml`.
fn is_same_file(asked: &Path, recorded: &Path) -> bool {
    let plain = |path: &Path| path.strip_prefix(".").unwrap_or(path).to_owned();
    let (asked, recorded) = (plain(asked), plain(recorded));
    let is_end =
        |short: &Path, long: &Path| short.is_relative() && short.components().count() > 0 && long.ends_with(short);
    asked == recorded || is_end(&asked, &recorded) || is_end(&recorded, &asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_is_known_by_each_of_its_paths() {
        let same = |asked: &str, recorded: &str| is_same_file(Path::new(asked), Path::new(recorded));
        assert!(same("conf/a.toml", "conf/a.toml") && same("./conf/a.toml", "conf/a.toml"));
        assert!(same("/p/conf/a.toml", "conf/a.toml") && same("conf/a.toml", "/p/conf/a.toml"));
        assert!(same("a.toml", "conf/a.toml"));
        for (asked, recorded) in
            [("conf/b.toml", "conf/a.toml"), ("/q/conf/a.toml", "/p/conf/a.toml"), ("conf/a.toml", "")]
        {
            assert!(!same(asked, recorded), "{asked} {recorded}");
        }
        // A variant may have a dot in its name, but is no file of a job.
        let of = |name: &str| HistoryQuery { name: name.to_owned(), ..HistoryQuery::default() }.paths();
        assert!(of("lazy").is_empty());
        assert_eq!(of("conf/absent.toml"), [PathBuf::from("conf/absent.toml")]);
    }
}
