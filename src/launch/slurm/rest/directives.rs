//! The `#SBATCH` lines of a batch script. slurmctld itself does not read them: `sbatch` does, and so must we.

use crate::launch::slurm::tools::ToolError;

/// An option of the script: `--name=value`, or `--name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directive {
    pub name: String,
    pub value: Option<String>,
}

impl Directive {
    /// The option as it would be written on a command line.
    pub fn shown(&self) -> String {
        match &self.value {
            Some(value) => format!("--{}={value}", self.name),
            None => format!("--{}", self.name),
        }
    }
}

/// The options of a script, in order. Like `sbatch`, ends at the first line of code.
///
/// # Errors
/// If a line holds anything but long options whose values follow an equals sign.
pub(super) fn directives(script: &str) -> Result<Vec<Directive>, ToolError> {
    let mut found = Vec::new();
    for line in script.lines() {
        let line = line.trim_start();
        if let Some(options) = line.strip_prefix("#SBATCH") {
            for word in words(options) {
                found.push(directive(&word)?);
            }
        } else if !line.is_empty() && !line.starts_with('#') {
            break;
        }
    }
    Ok(found)
}

fn directive(word: &str) -> Result<Directive, ToolError> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (word, None),
    };
    match name.strip_prefix("--") {
        Some(name) if !name.is_empty() => Ok(Directive { name: name.to_owned(), value }),
        _ => {
            Err(ToolError::Option { option: word.to_owned(), why: "only --name and --name=value are read".to_owned() })
        }
    }
}

/// The words of a line: blanks part them, quotes keep them together, inside double quotes a backslash protects a quote or a
/// backslash, and a `#` between words begins a comment.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some('"'), '\\') => {
                let protected = characters.next_if(|next| matches!(next, '"' | '\\'));
                word.get_or_insert_default().push(protected.unwrap_or('\\'));
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn option(name: &str, value: Option<&str>) -> Directive {
        Directive { name: name.to_owned(), value: value.map(str::to_owned) }
    }

    #[test]
    fn options_end_where_the_code_begins() {
        let script = "#!/bin/bash\n# --nodes=9\n#SBATCH --job-name=\"a \\\"b\\\" \\\\ $(c) # '\"\n#SBATCH --array=0-3%2 --exclusive # x\n\n\
                      #SBATCH --no-requeue\nset -u\n#SBATCH --nodes=2\n";
        assert_eq!(
            directives(script).unwrap(),
            [
                option("job-name", Some(r#"a "b" \ $(c) # '"#)),
                option("array", Some("0-3%2")),
                option("exclusive", None),
                option("no-requeue", None),
            ]
        );
    }

    #[test]
    fn short_options_are_named_in_the_error() {
        let error = directives("#!/bin/sh\n#SBATCH -N 2\n").unwrap_err().to_string();
        assert!(error.contains("option -N of"), "{error}");
    }

    proptest! {
        #[test]
        fn what_the_script_quotes_is_read_back(value in "[^\\p{Cc}]{0,40}") {
            // As the filter of the script's template does.
            let quoted = format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""));
            let script = format!("#!/bin/bash\n#SBATCH --comment={quoted}\n");
            prop_assert_eq!(directives(&script).unwrap(), [option("comment", Some(&value))]);
        }

        #[test]
        fn any_text_is_read(script in "(#SBATCH )?\\PC{0,60}") {
            let _ = directives(&script);
        }
    }
}
