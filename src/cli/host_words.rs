//! [`HostWords`]: the words of a command line, in which `--on delta`, or `delta:12` in the place of a job, names another machine.

use std::ffi::OsString;
use std::path::Path;

use expctl_config::{UserDefaults, has_profile};

use crate::exit::{Exit, Failure};
use crate::project::Project;
use crate::remote::is_host_name;

/// The words of a command line.
#[derive(Debug, PartialEq, Eq)]
pub struct HostWords {
    /// All of them, with the machine as `--on NAME` in front.
    pub all: Vec<OsString>,
    /// The verb and its arguments, for that machine: without `--on` and `--root`. Empty where no machine is named.
    pub passed: Vec<String>,
}

impl HostWords {
    /// Read the words of this process, the first of which is the program.
    ///
    /// # Errors
    /// Exit 2 if two machines are named, or a word for another machine is no text.
    pub fn read(words: Vec<OsString>) -> Result<Self, Failure> {
        let root = root_of(&words);
        Self::read_with(words, &|name| is_known(root.as_deref().map(Path::new), name))
    }

    fn read_with(words: Vec<OsString>, is_known: &dyn Fn(&str) -> bool) -> Result<Self, Failure> {
        // What a shell completes is not a command yet.
        if words.get(1).is_some_and(|verb| verb == "completions") {
            return Ok(Self { all: words, passed: Vec::new() });
        }
        let mut words = words.into_iter();
        let program: Vec<OsString> = words.by_ref().take(1).collect();
        let (mut host, mut rest, mut passed): (Option<String>, Vec<OsString>, Vec<OsString>) =
            (None, Vec::new(), Vec::new());
        while let Some(word) = words.next() {
            let Some(text) = word.to_str() else {
                passed.push(word.clone());
                rest.push(word);
                continue;
            };
            if text == "--" {
                let behind: Vec<OsString> = std::iter::once(word).chain(words.by_ref()).collect();
                passed.extend(behind.iter().cloned());
                rest.extend(behind);
            } else if text == "--on" {
                // Without a name, clap says what is missing.
                match words.next().map(OsString::into_string) {
                    Some(Ok(name)) => name_host(&mut host, &name)?,
                    _ => rest.push(word),
                }
            } else if let Some(name) = text.strip_prefix("--on=") {
                name_host(&mut host, name)?;
            } else if text == "--root" {
                rest.push(word);
                rest.extend(words.next());
            } else if text.starts_with("--root=") {
                rest.push(word);
            } else if let Some((name, job)) = job_of_host(text).filter(|(name, _)| is_known(name)) {
                name_host(&mut host, name)?;
                passed.push(job.into());
                rest.push(job.into());
            } else {
                passed.push(word.clone());
                rest.push(word);
            }
        }
        let Some(host) = host else { return Ok(Self { all: [program, rest].concat(), passed: Vec::new() }) };
        let passed: Result<Vec<String>, OsString> = passed.into_iter().map(OsString::into_string).collect();
        let passed = passed.map_err(|word| {
            let message = format!("{} is no text, which is all that another machine takes", word.display());
            Failure::new(Exit::Usage, message)
        })?;
        Ok(Self { all: [program, vec!["--on".into(), host.into()], rest].concat(), passed })
    }
}

fn name_host(host: &mut Option<String>, name: &str) -> Result<(), Failure> {
    match host.as_deref() {
        Some(before) if before != name => {
            let message = format!("{before} and {name} are two machines, and a command is for one");
            Err(Failure::new(Exit::Usage, message)
                .hint("expctl fetch JOB --on NAME copies records; expctl export writes tables to put side by side"))
        }
        _ => {
            *host = Some(name.to_owned());
            Ok(())
        }
    }
}

/// The machine and the job of `delta:12`, `delta:12_0`, `delta:428/430`.
fn job_of_host(text: &str) -> Option<(&str, &str)> {
    let (name, job) = text.split_once(':')?;
    (is_host_name(name) && job.starts_with(|first: char| first.is_ascii_digit())).then_some((name, job))
}

/// The value of `--root`, before clap has looked.
fn root_of(words: &[OsString]) -> Option<OsString> {
    let behind = words.iter().position(|word| word == "--root").and_then(|at| words.get(at + 1)).cloned();
    let joined = || words.iter().find_map(|word| word.to_str()?.strip_prefix("--root=").map(OsString::from));
    behind.or_else(joined).or_else(|| std::env::var_os("EXPCTL_ROOT")).filter(|root| !root.is_empty())
}

/// Whether there is a profile, or a machine of the user's, of this name. Where files cannot be read, the verb says so later.
pub fn is_known(root: Option<&Path>, name: &str) -> bool {
    let Ok(project) = Project::find(root, None) else { return false };
    has_profile(&project, name) || UserDefaults::load(&project).is_ok_and(|user| user.ssh.contains_key(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(String, String), Failure> {
        let words = line.split(' ').map(OsString::from).collect();
        let read = HostWords::read_with(words, &|name| name == "delta" || name == "mmli")?;
        let all: Vec<String> = read.all.into_iter().map(|word| word.into_string().unwrap()).collect();
        Ok((all.join(" "), read.passed.join(" ")))
    }

    #[test]
    fn a_machine_is_named_by_on_or_by_a_job() {
        for (line, all, passed) in [
            ("x status 12", "x status 12", ""),
            ("x status delta:12", "x --on delta status 12", "status 12"),
            ("x logs delta:12_0 -f", "x --on delta logs 12_0 -f", "logs 12_0 -f"),
            ("x compare delta:1 delta:2", "x --on delta compare 1 2", "compare 1 2"),
            ("x --root /p status --on delta", "x --on delta --root /p status", "status"),
            ("x --on=delta --root=/p status --json", "x --on delta --root=/p status --json", "status --json"),
            ("x compare published:392 12", "x compare published:392 12", ""),
            ("x timings 1 --range 1200:1800", "x timings 1 --range 1200:1800", ""),
            ("x remote run --folder f -- logs delta:1", "x remote run --folder f -- logs delta:1", ""),
            ("x completions --after status --on delta", "x completions --after status --on delta", ""),
            ("x status --on", "x status --on", ""),
        ] {
            assert_eq!(read(line).unwrap(), (all.to_owned(), passed.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_command_is_for_one_machine() {
        let failure = read("x compare delta:1 mmli:2").unwrap_err();
        assert!(failure.exit == Exit::Usage && failure.message.contains("delta and mmli"), "{failure}");
        assert!(read("x compare --on delta delta:1 2").is_ok());
    }
}
