//! `render` fills the template of notes, the built-in one or that of a project, with the values of a job.
//! Invariant: an undefined value is an error. Texts of values are escaped, so that names and reasons open no HTML and no region. What a value opens
//! depends on what the template puts before and behind it, so the rendered note is what is judged.

use std::ops::Range;
use std::path::Path;

use expctl_text::{closest, tidy};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};
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
    let text = template.render(Serde(mask_values(values.clone()))).map_err(|e| template_failure(&e, values))?;
    Ok(escape_masked(&tidy(&text)))
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

/// Stands for a `<` of a value while the note is rendered. Unicode keeps this code point free for use inside of a program.
const MASK: char = '\u{fdd0}';

/// Mask all texts of the values: names, columns and reasons are anybody's words.
fn mask_values(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(mask(&text)),
        Value::Array(all) => all.into_iter().map(mask_values).collect(),
        Value::Object(all) => all.into_iter().map(|(key, value)| (key, mask_values(value))).collect(),
        other => other,
    }
}

/// The HTML that notes are written with, and the places of numbers in paths. None of it does harm, whoever wrote it.
const OWN_HTML: [&str; 7] = ["<details>", "</details>", "<summary>", "</summary>", "<!-- expctl: job", "<n>", "<r>"];

/// The text with [`MASK`] for each `<` but those of [`OWN_HTML`].
fn mask(text: &str) -> String {
    let is_own = |at: usize| OWN_HTML.iter().any(|own| text[at..].starts_with(own));
    text.char_indices().map(|(at, char)| if char == '<' && !is_own(at) { MASK } else { char }).collect()
}

/// A note with `<` again for each [`MASK`], or `&lt;` where HTML would begin. In code, where `&lt;` would be shown as it is written, only a
/// comment is escaped: a marker of a region counts there, too.
fn escape_masked(note: &str) -> String {
    if !note.contains(MASK) {
        return note.to_owned();
    }
    let code = code_ranges(note);
    let mut escaped = String::with_capacity(note.len());
    for (at, char) in note.char_indices() {
        if char != MASK {
            escaped.push(char);
            continue;
        }
        let after = &note[at + char.len_utf8()..];
        let begins_html = after.starts_with(|next: char| next.is_ascii_alphabetic() || "/!?".contains(next));
        let is_code = code.iter().any(|range| range.contains(&at)) && !after.starts_with("!--");
        escaped.push_str(if begins_html && !is_code { "&lt;" } else { "<" });
    }
    escaped
}

/// Where the code of a note is, in bytes: code in fences, and spans on one line. A line of a longer span, or of code that is only indented, may
/// be HTML to another reader of markdown.
fn code_ranges(note: &str) -> Vec<Range<usize>> {
    let code = |(event, range): (Event<'_>, Range<usize>)| {
        let is_code = match event {
            Event::Code(_) => !note[range.clone()].contains('\n'),
            Event::Start(Tag::CodeBlock(kind)) => matches!(kind, CodeBlockKind::Fenced(_)),
            _ => false,
        };
        is_code.then_some(range)
    };
    Parser::new_ext(note, Options::ENABLE_TABLES).into_offset_iter().filter_map(code).collect()
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

    /// A text as the only value of a note.
    fn shown(text: &str) -> String {
        escape_masked(&mask(text))
    }

    #[test]
    fn html_in_a_name_is_text_in_a_note() {
        assert_eq!(shown("| <img src=x> | `<b>` | a < b | ←<é |"), "| &lt;img src=x> | `<b>` | a < b | ←<é |");
        assert_eq!(
            shown("<details>\n<summary>2 more</summary>\n</details>"),
            "<details>\n<summary>2 more</summary>\n</details>"
        );
        assert_eq!(
            shown("<!-- expctl:end -->\n<!-- expctl: job 3 -->"),
            "&lt;!-- expctl:end -->\n<!-- expctl: job 3 -->"
        );
        // A backtick that nothing ends begins no code.
        assert_eq!(shown("it`s <script>"), "it`s &lt;script>");
        assert_eq!(shown("```\n<a>\n<!-- expctl:end -->\n```\n<a>"), "```\n<a>\n&lt;!-- expctl:end -->\n```\n&lt;a>");
    }

    #[test]
    fn code_is_what_a_reader_of_markdown_takes_for_it() {
        // Cells of a table end code, and so does the length of its first backticks.
        let head = "| a | b | c |\n|---|---|---|\n";
        assert_eq!(shown(&format!("{head}| ` | <b> | ` |")), format!("{head}| ` | &lt;b> | ` |"));
        assert_eq!(shown("`` ` `` <b> `x`"), "`` ` `` &lt;b> `x`");
        assert_eq!(shown("`` ` <b> `` `x`"), "`` ` <b> `` `x`");
        // A line that begins with a tag is HTML before it is part of code.
        assert_eq!(shown("`a\n<b>\n`"), "`a\n&lt;b>\n`");
    }

    #[test]
    fn values_open_no_html_together_or_with_the_template() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own.j2");
        let rendered = |template: &str, title: &str, config: &str| {
            std::fs::write(&path, template).unwrap();
            render(Some(&path), &json!({ "title": title, "config": config })).unwrap()
        };
        assert_eq!(rendered("{{ title }}{{ config }}", "<", "script>"), "&lt;script>\n");
        assert_eq!(rendered("{{ title }}script>", "<", ""), "&lt;script>\n");
        assert_eq!(rendered("{{ title }} {{ config }}", "a <", "< b"), "a < < b\n");
        // Backticks of the template and of another value decide what is code.
        assert_eq!(rendered("`{{ title }}`", "x` <img> `y", ""), "`x` &lt;img> `y`\n");
        assert_eq!(rendered("`{{ title }}`", "<img>", ""), "`<img>`\n");
        assert_eq!(rendered("{{ title }} {{ config }}", "a `", "` <img> `"), "a ` ` &lt;img> `\n");
        assert_eq!(rendered("```\n{{ title }}\n```", "a\n```\n<img>", ""), "```\na\n```\n&lt;img>\n```\n");
    }
}
