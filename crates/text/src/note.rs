//! The file of a note: its name, and its frontmatter.

use std::ops::Range;
use std::path::Path;

use jiff::tz::TimeZone;

/// A pattern that makes no file name.
#[derive(Debug, thiserror::Error)]
pub enum NoteNameError {
    /// A `{` without `}`.
    #[error("the note name {pattern:?} has a `{{` without `}}`")]
    Unclosed {
        /// The pattern.
        pattern: String,
    },
    /// A placeholder that does not exist.
    #[error("the note name {pattern:?} has the unknown place {{{placeholder}}}")]
    UnknownPlaceholder {
        /// The pattern.
        pattern: String,
        /// The placeholder, without braces.
        placeholder: String,
    },
    /// The name is empty, begins with a dot, or has a character that no file name has.
    #[error("the note name {pattern:?} is no file name")]
    NoFileName {
        /// The pattern.
        pattern: String,
    },
    /// The time of the job is out of range.
    #[error("{reason}")]
    Time {
        /// The reason.
        reason: String,
    },
}

/// The values that a pattern of file names may use.
#[derive(Clone, Copy, Debug)]
pub struct NoteName<'a> {
    /// Name of the study.
    pub study: &'a str,
    /// Name of the config.
    pub config: &'a str,
    /// Number of the job.
    pub job: u64,
    /// Time of submission, seconds since the epoch; its day in UTC is in the name.
    pub submitted: i64,
}

impl NoteName<'_> {
    /// The default pattern.
    pub const DEFAULT: &'static str = "{config}_{job}";

    /// The placeholders of a pattern with what each stands for.
    pub const PLACEHOLDERS: &'static str =
        "{study}, {config}, {job}, {date} (2025.11.04), {year}, {month}, {day} (2025, 11, 4)";

    /// The file name of a note, without `.md`, by a pattern such as
    /// `experiments.{study}.scripts.{config}.{year}.{month}.{day}.results`.
    ///
    /// # Errors
    /// A pattern that makes no file name.
    pub fn fill(&self, pattern: &str) -> Result<String, NoteNameError> {
        let day = jiff::Timestamp::from_second(self.submitted)
            .map_err(|e| NoteNameError::Time { reason: e.to_string() })?
            .to_zoned(TimeZone::UTC);
        let mut name = String::new();
        let mut rest = pattern.strip_suffix(".md").unwrap_or(pattern);
        while let Some((before, after)) = rest.split_once('{') {
            let (placeholder, behind) =
                after.split_once('}').ok_or_else(|| NoteNameError::Unclosed { pattern: pattern.to_owned() })?;
            name.push_str(before);
            name.push_str(&match placeholder {
                "study" => self.study.to_owned(),
                "config" => self.config.to_owned(),
                "job" => self.job.to_string(),
                "date" => day.strftime("%Y.%m.%d").to_string(),
                "year" => day.year().to_string(),
                "month" => day.month().to_string(),
                "day" => day.day().to_string(),
                other => {
                    return Err(NoteNameError::UnknownPlaceholder {
                        pattern: pattern.to_owned(),
                        placeholder: other.to_owned(),
                    });
                }
            });
            rest = behind;
        }
        name.push_str(rest);
        let bad = |c: char| c.is_control() || matches!(c, '/' | '\\' | '}');
        if name.is_empty() || name.starts_with('.') || name.contains(bad) {
            return Err(NoteNameError::NoFileName { pattern: pattern.to_owned() });
        }
        Ok(name)
    }
}

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

    /// YAML between `---` lines, with keys in Dendron's order.
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
    fn patterns_make_names() {
        let of = NoteName { study: "006-kuzmin-tmi", config: "086", job: 12, submitted: 1_762_300_800 };
        assert_eq!(of.fill(NoteName::DEFAULT).unwrap(), "086_12");
        let dendron = "experiments.{study}.scripts.{config}.{year}.{month}.{day}.results.md";
        assert_eq!(of.fill(dendron).unwrap(), "experiments.006-kuzmin-tmi.scripts.086.2025.11.5.results");
        for (pattern, what) in [
            ("{conf}", "unknown place {conf}"),
            ("{config", "without `}`"),
            ("a/{job}", "no file name"),
            ("", "no file name"),
            (".{job}", "no file name"),
        ] {
            let error = of.fill(pattern).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

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
