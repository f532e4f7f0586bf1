//! `render` fills the template of notes, the built-in one or that of a project, with the values of a job.
//! Invariant: an undefined value is an error. Texts of values are escaped, so that names and reasons open no HTML and no region.

use std::path::Path;

use expctl_text::{closest, tidy};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde_json::Value;

use crate::exit::{Exit, Failure};

/// The built-in template.
pub const BUILT_IN: &str = include_str!("../note.md.j2");
/// Its name for templates that extend it: `{% extends "expctl/note.md.j2" %}`.
const NAME: &str = "expctl/note.md.j2";

/// Render the template at `own`, or the built-in one.
///
/// # Errors
/// Exit 3 for a template that cannot be read or rendered, with file, line, and what is undefined.
pub(super) fn render(own: Option<&Path>, values: &Value) -> Result<String, Failure> {
    let mut environment = Environment::new();
    // An undefined value is an error, not an empty string.
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(Failure::internal)?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_debug(true);
    environment.add_template(NAME, BUILT_IN).map_err(Failure::internal)?;
    let name = match own {
        None => NAME.to_owned(),
        Some(path) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|e| Failure::new(Exit::Config, format!("cannot read the note template {name}: {e}")))?;
            environment.add_template_owned(name.clone(), text).map_err(|e| template_failure(&e, values))?;
            name
        }
    };
    let template = environment.get_template(&name).map_err(|e| template_failure(&e, values))?;
    let text = template.render(Serde(escape_values(values.clone()))).map_err(|e| template_failure(&e, values))?;
    Ok(tidy(&text))
}

/// Name of the template in messages.
pub(super) fn name(own: Option<&Path>) -> String {
    own.map_or_else(|| format!("{NAME}, compiled in"), |path| path.display().to_string())
}

fn template_failure(error: &minijinja::Error, values: &Value) -> Failure {
    // The innermost error has the place of the mistake.
    let mut inner = error;
    while let Some(source) = std::error::Error::source(inner).and_then(|e| e.downcast_ref::<minijinja::Error>()) {
        inner = source;
    }
    let place = match (inner.name(), inner.line()) {
        (Some(name), Some(line)) => format!("{name}:{line}"),
        (Some(name), None) => name.to_owned(),
        _ => NAME.to_owned(),
    };
    let reason =
        inner.detail().map_or_else(|| inner.kind().to_string(), |detail| format!("{}: {detail}", inner.kind()));
    let expression =
        inner.template_source().zip(inner.range()).and_then(|(text, range)| text.get(range)).map(str::trim);
    let mut failure = match expression {
        Some(expression) if inner.kind() == minijinja::ErrorKind::UndefinedError => {
            Failure::new(Exit::Config, format!("{place}: `{expression}` is not defined ({reason})"))
        }
        Some(expression) => Failure::new(Exit::Config, format!("{place}: {reason}, in `{expression}`")),
        None => Failure::new(Exit::Config, format!("{place}: {reason}")),
    };
    if inner.kind() == minijinja::ErrorKind::UndefinedError {
        let word = expression.unwrap_or_default().split(['.', '[', '|', ' ']).next().unwrap_or_default();
        let known: Vec<&str> = values.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        if let Some(near) = closest(word, known.iter().copied()).filter(|near| *near != word) {
            failure = failure.hint(format!("did you mean `{near}`?"));
        }
        failure =
            failure.hint("docs/guide/notes.md lists what a template is given; `x is defined` asks whether it is there");
    }
    failure.hint("expctl report --print-template prints the template that is compiled in")
}

/// Escape HTML and markers in all texts of the values: names, columns and reasons are anybody's words.
fn escape_values(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(escape_html(&text)),
        Value::Array(all) => all.into_iter().map(escape_values).collect(),
        Value::Object(all) => all.into_iter().map(|(key, value)| (key, escape_values(value))).collect(),
        other => other,
    }
}

/// The HTML that notes are written with, and the places of numbers in paths. None of it does harm, whoever wrote it.
const OWN_HTML: [&str; 7] = ["<details>", "</details>", "<summary>", "</summary>", "<!-- expctl: job", "<n>", "<r>"];

/// Markdown in which no HTML but [`OWN_HTML`] begins. Code spans and fenced blocks, where `&lt;` would be shown as it is written, stay
/// as they are.
fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut in_fence = false;
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        if in_fence || is_fence {
            in_fence ^= is_fence;
            escaped.push_str(line);
            continue;
        }
        // Odd parts between backticks are code, if a backtick ends them on this line.
        let parts: Vec<&str> = line.split('`').collect();
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                escaped.push('`');
            }
            let is_code = index % 2 == 1 && index + 1 < parts.len();
            if is_code {
                escaped.push_str(part);
                continue;
            }
            for (at, char) in part.char_indices() {
                let rest = &part[at..];
                let begins_html =
                    |after: &str| after.starts_with(|next: char| next.is_ascii_alphabetic() || "/!?".contains(next));
                if rest.strip_prefix('<').is_some_and(begins_html) && !OWN_HTML.iter().any(|own| rest.starts_with(own))
                {
                    escaped.push_str("&lt;");
                } else {
                    escaped.push(char);
                }
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mistake_names_file_line_and_what_is_undefined() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own.j2");
        let failure = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let failure = render(Some(&path), &json!({ "title": "t", "results": "r" })).unwrap_err();
            assert_eq!(failure.exit, Exit::Config);
            failure
        };
        let undefined = failure("{{ title }}\n\n{{ resluts }}\n");
        assert!(undefined.message.contains("own.j2:3: `resluts` is not defined"), "{}", undefined.message);
        assert!(undefined.hints.iter().any(|hint| hint.contains("`results`")), "{:?}", undefined.hints);
        let nested = failure("a\n{% for x in [title] %}{{ x.there.not }}{% endfor %}\n");
        assert!(nested.message.contains("own.j2:2: ") && nested.message.contains("x.there"), "{}", nested.message);
        let syntax = failure("a\n{% if %}\n");
        assert!(syntax.message.contains("own.j2:2: syntax error"), "{}", syntax.message);
        let gone = render(Some(&dir.path().join("gone.j2")), &json!({})).unwrap_err();
        assert!(gone.message.contains("gone.j2"), "{}", gone.message);
    }

    #[test]
    fn no_value_is_a_marker() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own.j2");
        std::fs::write(&path, "{{ title }}\n{{ identity }}\n").unwrap();
        let values = json!({ "title": "<!-- expctl:end results -->", "identity": "<!-- expctl: job 1 -->" });
        let text = render(Some(&path), &values).unwrap();
        assert_eq!(text, "&lt;!-- expctl:end results -->\n<!-- expctl: job 1 -->\n");
    }

    #[test]
    fn html_in_a_name_is_text_in_a_note() {
        assert_eq!(escape_html("| <img src=x> | `<b>` | a < b | ←<é |"), "| &lt;img src=x> | `<b>` | a < b | ←<é |");
        assert_eq!(
            escape_html("<details>\n<summary>2 more</summary>\n</details>"),
            "<details>\n<summary>2 more</summary>\n</details>"
        );
        assert_eq!(
            escape_html("<!-- expctl:end -->\n<!-- expctl: job 3 -->"),
            "&lt;!-- expctl:end -->\n<!-- expctl: job 3 -->"
        );
        // A backtick that nothing ends begins no code.
        assert_eq!(escape_html("it`s <script>"), "it`s &lt;script>");
        assert_eq!(escape_html("```\n<a>\n```\n<a>"), "```\n<a>\n```\n&lt;a>");
    }
}
