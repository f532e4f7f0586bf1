//! `expctl completions`: the script of a shell, which at each completion also lists the jobs of the ledger and the variants of a config.

use std::collections::BTreeSet;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use expctl_config::{UserDefaults, variant_names};
use expctl_ledger::Ledger;

use super::Cli;
use crate::console::out;
use crate::exit::Failure;
use crate::project::Project;

/// Arguments of `expctl completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  source <(expctl completions bash)")]
pub struct CompletionsArgs {
    /// The shell to complete for
    #[arg(required_unless_present = "after")]
    shell: Option<Shell>,
    /// (inside the script) Print the jobs or variants that may follow these words of a command line
    #[arg(long, hide = true, num_args = 0.., allow_hyphen_values = true, value_name = "WORD")]
    after: Option<Vec<String>>,
}

/// Print a script, or what may follow some words, a line each.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    if let Some(shell) = args.shell {
        out(script(shell).trim_end());
    }
    for candidate in args.after.iter().flat_map(|words| candidates(words)) {
        out(candidate);
    }
    Ok(())
}

/// What a value of an argument is, where it can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// The number of a job.
    Job,
    /// The name of a variant.
    Variant,
}

impl Listed {
    /// By the names that the help has.
    fn of(arg: &Arg) -> Option<Self> {
        let value = arg.get_value_names()?.first()?;
        match () {
            () if value.starts_with("JOB") => Some(Self::Job),
            () if value == "NAME" && arg.get_long() == Some("only") => Some(Self::Variant),
            () => None,
        }
    }
}

/// A command line up to where the user stands.
struct TypedLine<'a> {
    verb: &'a Command,
    root: Option<&'a str>,
    /// Words that are no options and no values of options.
    positionals: Vec<&'a str>,
    /// The option whose value comes next.
    open: Option<&'a Arg>,
}

impl<'a> TypedLine<'a> {
    /// None where no verb is named yet. `cli` is built.
    fn read(cli: &'a Command, words: &'a [String]) -> Option<Self> {
        let (mut verb, mut root, mut positionals, mut open) = (None, None, Vec::new(), None::<&Arg>);
        // bash takes `--only=lazy` for three words.
        for word in words.iter().map(String::as_str).filter(|word| *word != "=") {
            if let Some(option) = open.take() {
                root = if option.get_id() == "root" { Some(word) } else { root };
            } else if let Some(path) = word.strip_prefix("--root=") {
                root = Some(path);
            } else if word.starts_with('-') {
                let named = |arg: &&Arg| {
                    let short = arg.get_short().map(|short| format!("-{short}"));
                    arg.get_long() == word.strip_prefix("--") || short.as_deref() == Some(word)
                };
                let option = verb.unwrap_or(cli).get_arguments().filter(|arg| !arg.is_positional()).find(named);
                open = option.filter(|option| option.get_action().takes_values());
            } else if verb.is_none() {
                verb = Some(cli.find_subcommand(word)?);
            } else {
                positionals.push(word);
            }
        }
        Some(Self { verb: verb?, root, positionals, open })
    }

    /// The argument that the next word is of: of an option, else the positional one. None if all have been given.
    fn next(&self) -> Option<&'a Arg> {
        self.open.or_else(|| {
            let positional = self.verb.get_positionals().next()?;
            let several = positional.get_num_args().is_some_and(|count| count.max_values() > 1)
                || matches!(positional.get_action(), clap::ArgAction::Append);
            (several || self.positionals.is_empty()).then_some(positional)
        })
    }
}

/// Jobs, newest first, or variants, in the order of the config, that may follow `words`. None where anything cannot be read: a shell in the
/// middle of a line has no place for messages.
fn candidates(words: &[String]) -> Vec<String> {
    let mut cli = Cli::command();
    cli.build();
    let Some(line) = TypedLine::read(&cli, words) else { return Vec::new() };
    let Some(listed) = line.next().and_then(Listed::of) else { return Vec::new() };
    let first = line.positionals.first().copied();
    let job = line.verb.get_positionals().next().and_then(Listed::of) == Some(Listed::Job);
    let config = first.filter(|_| !job).map(Path::new);
    let Some(ledger) = ledger(line.root.map(Path::new), config) else { return Vec::new() };
    let found = match (listed, first) {
        (Listed::Job, _) => {
            let mut jobs = ledger.measured_ids();
            // Published ones have no ranks and no trials.
            jobs.extend(ledger.published_jobs().filter(|_| line.verb.get_name() == "compare"));
            // A baseline is mostly one of the jobs before it.
            let is_new = |job: &String| line.open.is_some() || !line.positionals.contains(&job.as_str());
            jobs.iter().rev().map(u64::to_string).filter(is_new).collect()
        }
        (Listed::Variant, Some(first)) if job => {
            let record = first.parse().ok().and_then(|job| ledger.measured(job).ok()?.record().ok());
            let mut seen = BTreeSet::new();
            let trials = record.into_iter().flat_map(|record| record.trials);
            trials.map(|trial| trial.variant).filter(|variant| seen.insert(variant.clone())).collect()
        }
        (Listed::Variant, Some(first)) => variant_names(Path::new(first)),
        (Listed::Variant, None) => Vec::new(),
    };
    // What a shell would read as more than a word is left to the user to quote.
    found.into_iter().filter(|word| shlex::try_quote(word).is_ok_and(|quoted| quoted == word.as_str())).collect()
}

fn ledger(root: Option<&Path>, config: Option<&Path>) -> Option<Ledger> {
    let project = Project::find(root, config).ok()?;
    let user = UserDefaults::load(&project).ok()?;
    Ledger::open(&project.with_folders(user.data, user.runs)).ok()
}

/// The command line without the verbs that only expctl itself runs.
fn listed_verbs() -> Command {
    let cli = Cli::command();
    let verbs: Vec<Command> = cli.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    let arguments: Vec<Arg> = cli.get_arguments().cloned().collect();
    Command::new("expctl").version(env!("CARGO_PKG_VERSION")).propagate_version(true).args(arguments).subcommands(verbs)
}

/// The completion script: that of clap, and above it a function that asks `--after` first. Where nothing that is listed fits, clap's script
/// completes.
fn script(shell: Shell) -> String {
    let mut cli = listed_verbs();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli, "expctl", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => script.replace("complete -F _expctl -o", "complete -F _expctl_listed -o") + BASH,
        // The name that zsh loads the file by is that of the function which it calls from then on.
        Shell::Zsh => script.replacen("\n_expctl() {", &format!("\n{ZSH}\n_expctl_static() {{"), 1),
        Shell::Fish => script + FISH + &fish_options(&mut cli),
        _ => script,
    }
}

/// `compgen -W` would run what a name has in `$(…)`, so words are compared one by one.
const BASH: &str = r#"
# Jobs and variants as they are now.
_expctl_listed() {
    local word
    COMPREPLY=()
    if [[ $2 != -* ]]; then
        while IFS= read -r word; do
            [[ $word == "$2"* ]] && COMPREPLY+=("$word")
        done < <("$1" completions --after "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)
    fi
    [[ ${#COMPREPLY[@]} -gt 0 ]] || _expctl "$@"
}
"#;

const ZSH: &str = r#"# Jobs and variants as they are now.
_expctl() {
    local -a before=("${(@)words[2,CURRENT-1]}") listed=()
    if [[ $PREFIX != -* ]]; then
        listed=(${(f)"$("$words[1]" completions --after "${before[@]}" 2>/dev/null)"})
        compadd -V listed -a listed && return 0
    fi
    _expctl_static "$@"
}
"#;

const FISH: &str = r#"
# Jobs and variants as they are now.
function __expctl_listed
    set -l before (commandline -opc)
    set -l program $before[1]
    set -e before[1]
    $program completions --after $before 2>/dev/null
end
complete -c expctl -k -a '(__expctl_listed)'
"#;

/// Options whose values are listed: fish takes these from the option alone.
fn fish_options(cli: &mut Command) -> String {
    let mut lines = String::new();
    for verb in cli.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        for long in verb.get_arguments().filter(|arg| Listed::of(arg).is_some()).filter_map(Arg::get_long) {
            let verb = verb.get_name();
            lines += &format!(
                "complete -c expctl -n \"__fish_expctl_using_subcommand {verb}\" -l {long} -x -k -a '(__expctl_listed)'\n"
            );
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_ask_for_jobs_and_variants() {
        let bash = script(Shell::Bash);
        assert_eq!((bash.matches("complete -F _expctl_listed ").count(), bash.matches("-F _expctl ").count()), (2, 0));
        assert!(bash.contains("submit") && !bash.contains("stage-attempt") && !bash.contains("run-command"));
        let zsh = script(Shell::Zsh);
        assert_eq!((zsh.matches("\n_expctl() {").count(), zsh.matches("\n_expctl_static() {").count()), (1, 1));
        let fish = script(Shell::Fish);
        for option in ["plan\" -l only", "submit\" -l only", "isolate\" -l only", "compare\" -l baseline"] {
            assert!(fish.contains(&format!("__fish_expctl_using_subcommand {option} -x -k")), "{option}");
        }
    }

    #[test]
    fn what_comes_next_is_known_by_the_words_before_it() {
        let mut cli = Cli::command();
        cli.build();
        let next = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            TypedLine::read(&cli, &words).and_then(|line| Listed::of(line.next()?))
        };
        let (job, variant) = (Some(Listed::Job), Some(Listed::Variant));
        for (line, expected) in [
            ("", None),
            ("watch", job),
            ("--root x watch", job),
            ("--root=x logs -f", job),
            ("watch 3", None),
            ("status 3 --attempts", job),
            ("compare 1", job),
            ("compare 1 --baseline", job),
            ("compare 1 --format", None),
            ("timings", job),
            ("check conf/a.toml", None),
            ("submit", None),
            ("submit a.toml --only", variant),
            ("submit a.toml --only =", variant),
            ("submit a.toml --only lazy", None),
            ("isolate 3 --only a --only", variant),
            ("nonsense", None),
        ] {
            assert_eq!(next(line), expected, "{line}");
        }
    }
}
