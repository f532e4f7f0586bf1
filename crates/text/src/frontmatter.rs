use std::path::Path;

/// The head of a Dendron note.
///
/// Invariant: `id` and `created` never change once a note exists, because other notes link to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontmatter {
    /// 23 lowercase letters and digits.
    pub id: String,
    /// Created, ms since the epoch.
    pub created: i64,
    /// Updated, ms since the epoch.
    pub updated: i64,
}

impl Frontmatter {
    /// The head for the note at `path`: that of the note that is there, updated, or a new one.
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

/// An id that no other note has: a digest of what is unique about this one.
fn fresh_id(path: &Path) -> String {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let now = jiff::Timestamp::now().as_nanosecond();
    let digest = blake3::hash(format!("{} {now} {}", path.display(), std::process::id()).as_bytes());
    digest.as_bytes().iter().take(23).map(|b| char::from(LETTERS[usize::from(*b) % LETTERS.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_back() {
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
}
