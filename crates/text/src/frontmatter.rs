use std::ops::Range;
use std::path::Path;

/// The YAML frontmatter of a Dendron note.
///
/// Invariant: `id` and `created` never change once a note exists, because other notes link to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontmatter {
    /// 23 lowercase letters and digits.
    pub id: String,
    /// Creation time, ms since the epoch.
    pub created: i64,
    /// Time of the last update, ms since the epoch.
    pub updated: i64,
}

impl Frontmatter {
    /// The frontmatter for the note at `path`: that of the existing note, updated, or a new one.
    pub fn for_note(path: &Path) -> Self {
        let now = jiff::Timestamp::now().as_millisecond();
        let (id, created) = std::fs::read(path)
            .ok()
            .and_then(|text| parse(&String::from_utf8_lossy(&text)))
            .unwrap_or_else(|| (fresh_id(path), now));
        Self { id, created, updated: now }
    }

    /// As YAML between `---` lines, with keys in Dendron's order.
    pub fn render(&self, title: &str, desc: &str) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''").replace('\n', " "));
        format!(
            "---\nid: {}\ntitle: {}\ndesc: {}\nupdated: {}\ncreated: {}\n---",
            self.id,
            quoted(title),
            quoted(desc),
            self.updated,
            self.created
        )
    }
}

/// Id and creation time of a note's text.
fn parse(text: &str) -> Option<(String, i64)> {
    // An editor may have changed line ends, or put a byte order mark in front.
    let mut lines = text.strip_prefix('\u{feff}').unwrap_or(text).lines();
    lines.next().filter(|line| *line == "---")?;
    let head: Vec<&str> = lines.take_while(|line| *line != "---").collect();
    let field = |name: &str| head.iter().find_map(|l| l.strip_prefix(name)?.strip_prefix(": ")).map(str::trim);
    let id = field("id").filter(|id| is_id(id))?;
    Some((id.to_owned(), field("created")?.parse().ok()?))
}

fn is_id(id: &str) -> bool {
    id.len() == 23 && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// A new id: a digest of path, time and process.
fn fresh_id(path: &Path) -> String {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let now = jiff::Timestamp::now().as_nanosecond();
    let digest = blake3::hash(format!("{} {now} {}", path.display(), std::process::id()).as_bytes());
    digest.as_bytes().iter().take(23).map(|b| char::from(LETTERS[usize::from(*b) % LETTERS.len()])).collect()
}

/// The text with `updated:` in its frontmatter set to `ms` since the epoch, if it has that key. Nothing else changes.
pub fn with_updated(text: &[u8], ms: i64) -> Vec<u8> {
    match updated_value(text) {
        Some(place) => [&text[..place.start], ms.to_string().as_bytes(), &text[place.end..]].concat(),
        None => text.to_owned(),
    }
}

/// Byte range of the value of `updated`.
fn updated_value(text: &[u8]) -> Option<Range<usize>> {
    let mut start = 0;
    let mut found = None;
    for (index, whole) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let line = whole.trim_ascii_end();
        if index == 0 {
            // Editors on Windows may write a byte order mark.
            if line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) != b"---" {
                return None;
            }
        } else if line == b"---" {
            return found;
        } else if let Some(rest) = line.strip_prefix(b"updated:") {
            let blank = rest.len() - rest.trim_ascii_start().len();
            // Any other value is not ours.
            if blank > 0 && rest.trim_ascii().iter().all(u8::is_ascii_digit) {
                found = Some(start + b"updated:".len() + blank..start + line.len());
            }
        }
        start += whole.len();
    }
    // Without a second `---` it is no frontmatter.
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frontmatter_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n.md");
        let first = Frontmatter::for_note(&path);
        assert!(is_id(&first.id));
        std::fs::write(&path, first.render("a 'b'", "") + "\n\n## x\nid: no\n").unwrap();
        let second = Frontmatter::for_note(&path);
        assert_eq!((&second.id, second.created), (&first.id, first.created));
        let windows = std::fs::read_to_string(&path).unwrap().replace('\n', "\r\n");
        std::fs::write(&path, [windows.as_bytes(), b"\xff"].concat()).unwrap();
        assert_eq!(Frontmatter::for_note(&path).id, first.id);
        std::fs::write(&path, "no head").unwrap();
        assert_ne!(Frontmatter::for_note(&path).id, first.id);
    }

    #[test]
    fn only_the_time_changes() {
        let set = |text: &str| String::from_utf8(with_updated(text.as_bytes(), 7)).unwrap();
        assert_eq!(
            set("---\nid: x\nupdated: 1 \ncreated: 1\n---\nupdated: 1\n"),
            "---\nid: x\nupdated: 7 \ncreated: 1\n---\nupdated: 1\n"
        );
        assert_eq!(set("\u{feff}---\r\nupdated: 12\r\n---\r\n"), "\u{feff}---\r\nupdated: 7\r\n---\r\n");
        for same in ["---\nupdated: 1\n", "updated: 1\n---\n", "---\nupdated: soon\n---\n", "", "---\ntitle: t\n---\n"]
        {
            assert_eq!(set(same), same);
        }
    }
}
