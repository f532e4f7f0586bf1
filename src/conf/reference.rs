use super::keys::{KEYS, Preset, SECTIONS};

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
