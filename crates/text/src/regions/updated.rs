use std::ops::Range;

/// The text with `updated:` in its frontmatter set to `ms` (since the epoch), where there is such a key. All else stays.
pub fn with_updated(text: &[u8], ms: i64) -> Vec<u8> {
    match value(text) {
        Some(place) => [&text[..place.start], ms.to_string().as_bytes(), &text[place.end..]].concat(),
        None => text.to_owned(),
    }
}

/// Where the value of `updated` stands.
fn value(text: &[u8]) -> Option<Range<usize>> {
    let mut start = 0;
    let mut found = None;
    for (index, whole) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let line = whole.trim_ascii_end();
        if index == 0 {
            // A file from an editor of Windows may begin with a byte order mark.
            if line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) != b"---" {
                return None;
            }
        } else if line == b"---" {
            return found;
        } else if let Some(rest) = line.strip_prefix(b"updated:") {
            let blank = rest.len() - rest.trim_ascii_start().len();
            // A key without a value, or with something else than a time, is the writer's.
            if blank > 0 && rest.trim_ascii().iter().all(u8::is_ascii_digit) {
                found = Some(start + b"updated:".len() + blank..start + line.len());
            }
        }
        start += whole.len();
    }
    // No second `---`: that was no frontmatter.
    None
}

#[cfg(test)]
mod tests {
    use super::*;

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
