//! [`TypedLine`]: a command line up to the cursor, and [`Listed`]: what the next word of it is, where that can be listed.

use clap::{Arg, Command};

/// What a value of an argument is, where it can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// The number of a job.
    Job,
    /// A job, or one trial of it: `12_3`.
    JobOrTrial,
    /// The name of a variant.
    Variant,
    /// The path of a config.
    Config,
    /// A config, or a variant of any, as jobs of the ledger name it.
    ConfigOrVariant,
    /// A key with its value: `loader.workers=4`.
    Setting,
    /// Another machine.
    Host,
    /// A cluster profile.
    Profile,
    /// A data set.
    DataSet,
}

impl Listed {
    /// By the names that the help has.
    pub fn of(arg: &Arg) -> Option<Self> {
        match (arg.get_value_names()?.first()?.as_str(), arg.get_long()) {
            ("JOB[_TASK]", _) => Some(Self::JobOrTrial),
            (value, _) if value.starts_with("JOB") => Some(Self::Job),
            ("NAME", Some("only")) => Some(Self::Variant),
            ("NAME", Some("on")) => Some(Self::Host),
            ("NAME", Some("profile")) => Some(Self::Profile),
            ("CONF", None) => Some(Self::Config),
            ("CONF|VARIANT", None) => Some(Self::ConfigOrVariant),
            ("KEY=VALUE", _) => Some(Self::Setting),
            ("SET" | "SET|FILE", None) => Some(Self::DataSet),
            _ => None,
        }
    }
}

/// A command line up to where the user stands.
#[derive(Debug)]
pub struct TypedLine<'a> {
    verb: &'a Command,
    /// Value of `--root`.
    pub root: Option<&'a str>,
    /// Value of `--on`, or the machine in a word such as `delta:12` that a shell took for three.
    pub host: Option<&'a str>,
    /// Words that are no options and no values of options.
    pub positionals: Vec<&'a str>,
    /// The key whose value comes next, where a shell takes `loader.workers=4` for three words.
    pub key: Option<&'a str>,
    /// The option whose value comes next.
    open: Option<&'a Arg>,
}

impl<'a> TypedLine<'a> {
    /// None where there is no such verb. `cli` is built.
    pub fn read(cli: &'a Command, words: &'a [String]) -> Option<Self> {
        let mut line = Self { verb: cli, root: None, host: None, positionals: Vec::new(), key: None, open: None };
        // The option whose value the word before is, and that word.
        let mut closed: Option<(&'a Arg, &'a str)> = None;
        // bash takes `--only=lazy`, `loader.workers=4` and `delta:12` for three words.
        for word in words.iter().map(String::as_str) {
            let before = closed.take();
            if word == "=" {
                if let Some((option, key)) = before.filter(|(option, _)| Listed::of(option) == Some(Listed::Setting)) {
                    line.open = Some(option);
                    line.key = Some(key);
                }
            } else if word == ":" {
                let Some((option, name)) = before else {
                    line.host = line.positionals.pop().or(line.host);
                    continue;
                };
                line.open = Some(option);
                line.host = Some(name);
            } else if let Some(option) = line.open.take() {
                line.key = None;
                match option.get_id().as_str() {
                    "root" => line.root = Some(word),
                    "on" => line.host = Some(word),
                    _ => {}
                }
                closed = Some((option, word));
            } else if let Some(path) = word.strip_prefix("--root=") {
                line.root = Some(path);
            } else if let Some(name) = word.strip_prefix("--on=") {
                line.host = Some(name);
            } else if word.starts_with('-') {
                line.open = option(line.verb, word).filter(|option| option.get_action().takes_values());
            } else if let Some(verb) = line.verb.find_subcommand(word) {
                line.verb = verb;
            } else if line.verb.has_subcommands() {
                return None;
            } else {
                line.positionals.push(word);
            }
        }
        Some(line)
    }

    /// Name of the verb.
    pub fn verb(&self) -> &'a str {
        self.verb.get_name()
    }

    /// What the verb is about: its first argument that is no option.
    pub fn subject(&self) -> Option<Listed> {
        self.verb.get_positionals().next().and_then(Listed::of)
    }

    /// Whether the next word is the value of an option.
    pub fn is_in_option(&self) -> bool {
        self.open.is_some()
    }

    /// The argument that the next word is of: of an option, else the positional one. None if all have been given.
    pub fn argument(&self) -> Option<&'a Arg> {
        self.open.or_else(|| {
            let positional = self.verb.get_positionals().next()?;
            let several = positional.get_num_args().is_some_and(|count| count.max_values() > 1)
                || matches!(positional.get_action(), clap::ArgAction::Append);
            (several || self.positionals.is_empty()).then_some(positional)
        })
    }
}

/// The option of `verb` with this name, `--only` or `-f`.
fn option<'a>(verb: &'a Command, word: &str) -> Option<&'a Arg> {
    verb.get_arguments().filter(|arg| !arg.is_positional()).find(|arg| {
        let short = arg.get_short().map(|short| format!("-{short}"));
        arg.get_long() == word.strip_prefix("--") || short.as_deref() == Some(word)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn what_comes_next_is_known_by_the_words_before_it() {
        let mut cli = Cli::command();
        cli.build();
        let next = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            TypedLine::read(&cli, &words).and_then(|line| Listed::of(line.argument()?))
        };
        let (job, variant, setting) = (Some(Listed::Job), Some(Listed::Variant), Some(Listed::Setting));
        for (line, expected) in [
            ("", None),
            ("--on", Some(Listed::Host)),
            ("watch", job),
            ("watch --on", Some(Listed::Host)),
            ("watch --on delta", job),
            ("watch delta :", job),
            ("--root x watch", job),
            ("--root=x logs -f", Some(Listed::JobOrTrial)),
            ("watch 3", None),
            ("status 3 --attempts", job),
            ("compare 1", job),
            ("compare 1 --baseline", job),
            ("compare 1 --format", None),
            ("timings", job),
            ("timings 1 --range 1200 : 1800", job),
            ("history", Some(Listed::ConfigOrVariant)),
            ("history lazy --since", job),
            ("history conf/a.toml --only", variant),
            ("predict 3 --only", variant),
            ("check conf/a.toml", Some(Listed::Config)),
            ("plan conf/a.toml", None),
            ("submit", Some(Listed::Config)),
            ("search", Some(Listed::Config)),
            ("submit a.toml --only", variant),
            ("submit a.toml --only =", variant),
            ("submit a.toml --only lazy", None),
            ("submit a.toml --set", setting),
            ("submit a.toml --set loader.workers", None),
            ("submit a.toml --set loader.workers =", setting),
            ("submit a.toml --set loader.workers = 4", None),
            ("isolate 3 --only a --only", variant),
            ("doctor --profile", Some(Listed::Profile)),
            ("data info", Some(Listed::DataSet)),
            ("data", None),
            ("nonsense", None),
        ] {
            assert_eq!(next(line), expected, "{line}");
        }
    }

    #[test]
    fn a_shell_may_take_a_key_or_a_machine_for_words_of_their_own() {
        let mut cli = Cli::command();
        cli.build();
        let read = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let line = TypedLine::read(&cli, &words).unwrap();
            (line.key.map(str::to_owned), line.host.map(str::to_owned), line.positionals.len())
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(read("submit a --set loader.workers ="), (text("loader.workers"), None, 1));
        assert_eq!(read("submit a --set loader.workers = 4 --set"), (None, None, 1));
        assert_eq!(read("compare delta : 1"), (None, text("delta"), 1));
        assert_eq!(read("compare 1 --baseline delta : 2"), (None, text("delta"), 1));
        assert_eq!(read("status --on delta 1"), (None, text("delta"), 1));
        assert_eq!(read("--on=delta status"), (None, text("delta"), 0));
    }
}
