use std::path::Path;

use super::file::{Known, title_of};
use super::options::NoteOptions;
use crate::conf::LinkStyle;

/// A link to a note of the folder by its name, without `.md`.
pub(super) fn to_name(folder: &Path, name: &str, options: &NoteOptions) -> String {
    let name = name.trim().strip_suffix(".md").unwrap_or(name.trim());
    // The last part of a dotted name is what Dendron titles a note that has no title.
    let last = name.rsplit('.').next().unwrap_or(name).replace(['-', '_'], " ");
    let title = title_of(&folder.join(format!("{name}.md"))).unwrap_or(last);
    link(&title, name, options)
}

/// A link to a note that was found in the folder.
pub(super) fn to_note(note: &Known, options: &NoteOptions) -> String {
    let name = note.path.file_stem().unwrap_or_default().to_string_lossy();
    link(&note.title, &name, options)
}

fn link(title: &str, name: &str, options: &NoteOptions) -> String {
    match options.links() {
        LinkStyle::Markdown => {
            let title = title.replace('[', "\\[").replace(']', "\\]");
            // A space or bracket would end the target.
            let target: String = name
                .chars()
                .map(|c| match c {
                    ' ' => "%20".to_owned(),
                    '(' => "%28".to_owned(),
                    ')' => "%29".to_owned(),
                    c => c.to_string(),
                })
                .collect();
            format!("[{title}]({target}.md)")
        }
        LinkStyle::Dendron => {
            let title = title.replace(['|', '[', ']'], " ");
            match &options.settings.vault {
                Some(vault) => format!("[[{}|dendron://{vault}/{name}]]", title.trim()),
                None => format!("[[{}|{name}]]", title.trim()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::NotesSettings;

    #[test]
    fn links_are_of_the_folders_kind() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.b.optimization-plan.md"), "---\nid: x\ntitle: 'The [plan]'\n---\n").unwrap();
        let mut options = NoteOptions::default();
        assert_eq!(
            to_name(dir.path(), "a.b.optimization-plan", &options),
            "[The \\[plan\\]](a.b.optimization-plan.md)"
        );
        assert_eq!(to_name(dir.path(), "a.other-plan.md", &options), "[other plan](a.other-plan.md)");
        options.settings = NotesSettings { links: Some(LinkStyle::Dendron), ..NotesSettings::default() };
        assert_eq!(to_name(dir.path(), "a.b.optimization-plan", &options), "[[The  plan|a.b.optimization-plan]]");
        options.settings.vault = Some("torchcell".into());
        assert_eq!(to_name(dir.path(), "a.other-plan", &options), "[[other plan|dendron://torchcell/a.other-plan]]");
    }
}
