//! `expctl completions`: the script of a shell, which at each completion also lists what only the project knows: jobs of the ledger, configs and
//! their variants, settings, other machines.
//!
//! The script asks `expctl completions --word TYPED --after WORDS…`. `typed_line` reads the words, `listed_words` has the lists.

mod listed_words;
mod typed_line;

use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;

use self::listed_words::words_after;
use self::typed_line::Listed;
use super::Cli;
use crate::console::out;
use crate::exit::Failure;

/// Arguments of `expctl completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  source <(expctl completions bash)")]
pub struct CompletionsArgs {
    /// The shell to complete for
    #[arg(required_unless_present = "after")]
    shell: Option<Shell>,
    /// (inside the script) The beginning of the word at the cursor; the answer then has a description of each word, behind a tab
    #[arg(long, hide = true, allow_hyphen_values = true, value_name = "TYPED")]
    word: Option<String>,
    /// (inside the script) Print what may follow these words of a command line, a line each
    #[arg(long, hide = true, num_args = 0.., allow_hyphen_values = true, value_name = "WORD")]
    after: Option<Vec<String>>,
}

/// Print a script, or what may follow some words.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    if let Some(shell) = args.shell {
        out(script(shell).trim_end());
    }
    let Some(words) = &args.after else { return Ok(()) };
    let mut cli = Cli::command();
    cli.build();
    for listed in words_after(&cli, words, args.word.as_deref().unwrap_or_default()) {
        match args.word {
            Some(_) if !listed.help.is_empty() => out(format_args!("{}\t{}", listed.word, listed.help)),
            _ => out(listed.word),
        }
    }
    Ok(())
}

/// The command line without the verbs and arguments that only expctl itself uses.
fn listed_verbs() -> Command {
    let cli = Cli::command();
    let verbs: Vec<Command> = cli.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    let arguments: Vec<Arg> = cli.get_arguments().filter(|arg| !arg.is_hide_set()).cloned().collect();
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

/// `compgen -W` would run what a name has in `$(…)`, so words are compared one by one. bash ends a word at `=` and `:`, which then are words of
/// their own: behind `key=` the word at the cursor is `=`, and what is to be completed is empty.
const BASH: &str = r#"
# What the project knows: jobs, configs, variants, settings, machines.
_expctl_listed() {
    local word count=$((COMP_CWORD - 1))
    COMPREPLY=()
    if [[ $2 != -* ]]; then
        [[ -z $2 && ${COMP_WORDS[COMP_CWORD]} == [=:] ]] && count=$COMP_CWORD
        while IFS= read -r word; do
            word=${word%%$'\t'*}
            [[ $word == "$2"* ]] && COMPREPLY+=("$word")
        done < <("$1" completions --word "$2" --after "${COMP_WORDS[@]:1:count}" 2>/dev/null)
    fi
    if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
        _expctl "$@"
    elif [[ ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
"#;

/// A line each, with its description; behind `key=` comes the value, without a space.
const ZSH: &str = r#"# What the project knows: jobs, configs, variants, settings, machines.
_expctl() {
    local -a before=("${(@)words[2,CURRENT-1]}") listed=() shown=() suffix=()
    local line tab=$'\t'
    if [[ $PREFIX != -* ]]; then
        for line in ${(f)"$("$words[1]" completions --word "$PREFIX" --after "${before[@]}" 2>/dev/null)"}; do
            listed+=("${line%%$tab*}")
            shown+=("${line/$tab/  -- }")
        done
        [[ ${listed[1]} == *= ]] && suffix=(-S '')
        compadd -V listed -l -d shown "${suffix[@]}" -a listed && return 0
    fi
    _expctl_static "$@"
}
"#;

const FISH: &str = r#"
# What the project knows: jobs, configs, variants, settings, machines.
function __expctl_listed
    set -l before (commandline -opc)
    set -l program $before[1]
    set -e before[1]
    set -l word (commandline -ct)
    $program completions --word "$word" --after $before 2>/dev/null
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
    fn the_scripts_ask_for_what_the_project_knows() {
        let bash = script(Shell::Bash);
        assert_eq!((bash.matches("complete -F _expctl_listed ").count(), bash.matches("-F _expctl ").count()), (2, 0));
        assert!(bash.contains("submit") && !bash.contains("stage-attempt") && !bash.contains("run-command"));
        let zsh = script(Shell::Zsh);
        assert_eq!((zsh.matches("\n_expctl() {").count(), zsh.matches("\n_expctl_static() {").count()), (1, 1));
        let fish = script(Shell::Fish);
        for option in [
            "plan\" -l only",
            "submit\" -l only",
            "isolate\" -l only",
            "compare\" -l baseline",
            "submit\" -l set",
            "watch\" -l on",
        ] {
            assert!(fish.contains(&format!("__fish_expctl_using_subcommand {option} -x -k")), "{option}");
        }
    }
}
