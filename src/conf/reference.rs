use super::keys::{KEYS, Preset, SECTIONS};
use super::synonyms::{KEY_SYNONYMS, WORD_SYNONYMS};

/// The reference of all keys as markdown: the part of docs/config.md between its `keys` marks.
pub fn reference() -> String {
    let mut text = String::new();
    for section in SECTIONS {
        text.push_str(&format!("### [{section}]\n\n| Key | Takes | Default | Meaning |\n|---|---|---|---|\n"));
        for spec in KEYS.iter().filter(|spec| spec.section() == section) {
            let default = match spec.preset {
                Preset::Required => "**required**".to_owned(),
                Preset::Value(literal) => format!("`{literal}`"),
                Preset::Derived(from) => from.to_owned(),
            };
            let takes = spec.kind.describe();
            text.push_str(&format!("| `{}` | {takes} | {default} | {} |\n", spec.leaf(), spec.help));
        }
        text.push('\n');
    }
    text.trim_end().to_owned()
}

/// Names of other systems as markdown: the part of docs/their-names.md between its `names` marks.
pub fn their_names() -> String {
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut text = "### Keys\n\n| There | Here | What changes |\n|---|---|---|\n".to_owned();
    for synonym in KEY_SYNONYMS {
        let here = synonym.ours.map_or_else(|| "–".to_owned(), |key| format!("`{key}`"));
        let changed = synonym.values.iter().map(|(theirs, ours)| match (*theirs, *ours) {
            ("*", _) => "set it by hand".to_owned(),
            (theirs, "") => format!("`{theirs}`: leave it out"),
            (theirs, ours) => format!("`{theirs}`: `{ours}`"),
        });
        let note = (!synonym.note.is_empty()).then(|| synonym.note.to_owned());
        let said: Vec<String> = changed.chain(note).collect();
        text.push_str(&format!("| {} | {here} | {} |\n", quoted(synonym.theirs), said.join("; ")));
    }
    text.push_str("\n### Words\n\n| There | Here | What else |\n|---|---|---|\n");
    for synonym in WORD_SYNONYMS {
        let here = match synonym.ours {
            "" => "–".to_owned(),
            ours => format!("`{} = \"{ours}\"`", synonym.key),
        };
        text.push_str(&format!("| {} | {here} | {} |\n", quoted(synonym.theirs), synonym.note));
    }
    text.trim_end().to_owned()
}
