/// Version of the markers.
pub const VERSION: u32 = 1;

/// What every marker begins with. The line that says which submission a note is of has a space behind the colon, and is none.
const START: &[u8] = b"<!-- expctl:";
const END: &str = "-->";

/// A line that only this program reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marker {
    /// `<!-- expctl:note 1 summary results -->`: the version, and the sections that the note was ever written with.
    Note(Vec<String>),
    /// `<!-- expctl:begin results 0123456789abcdef -->`; a template has no digest.
    Begin(String, Option<String>),
    /// `<!-- expctl:end results -->`
    End(String),
}

impl Marker {
    /// The marker that a line is, none for any other line: one in the middle of a line is prose. The line comes without its end.
    ///
    /// # Errors
    /// The line looks like a marker and is none; why.
    pub fn read(line: &[u8]) -> Result<Option<Self>, String> {
        let Some(rest) = line.trim_ascii_start().strip_prefix(START) else { return Ok(None) };
        if rest.first().is_none_or(|next| *next == b' ') {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(line);
        let inner = text
            .trim_end()
            .strip_prefix("<!-- expctl:")
            .and_then(|rest| rest.strip_suffix(END))
            .filter(|rest| !rest.contains(END))
            .ok_or("a marker must stand alone on its line, from the first column to `-->`")?;
        let words: Vec<&str> = inner.split_ascii_whitespace().collect();
        match words[..] {
            ["note", version, ref sections @ ..] => {
                if version != VERSION.to_string() {
                    return Err(format!("these markers are of version {version}; this expctl knows version {VERSION}"));
                }
                Ok(Some(Self::Note(sections.iter().map(|s| name(s)).collect::<Result<_, _>>()?)))
            }
            ["begin", of] => Ok(Some(Self::Begin(name(of)?, None))),
            ["begin", of, digest] if is_digest(digest) => Ok(Some(Self::Begin(name(of)?, Some(digest.to_owned())))),
            ["begin", _, digest] => Err(format!("`{digest}` is no digest: 16 digits from 0 to f are expected")),
            ["end", of] => Ok(Some(Self::End(name(of)?))),
            _ => Err(format!("`expctl:{}` is no marker of version {VERSION}", inner.trim())),
        }
    }

    /// The marker as a line without its end.
    pub fn line(&self) -> String {
        match self {
            Self::Note(sections) => {
                let names: String = sections.iter().map(|section| format!(" {section}")).collect();
                format!("<!-- expctl:note {VERSION}{names} -->")
            }
            Self::Begin(name, None) => format!("<!-- expctl:begin {name} -->"),
            Self::Begin(name, Some(digest)) => format!("<!-- expctl:begin {name} {digest} -->"),
            Self::End(name) => format!("<!-- expctl:end {name} -->"),
        }
    }
}

fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is no name of a section: lowercase letters, digits and `_` are"))
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        for marker in [
            Marker::Note(vec!["head".into(), "results".into()]),
            Marker::Note(Vec::new()),
            Marker::Begin("results".into(), None),
            Marker::Begin("what_2".into(), Some("0123456789abcdef".into())),
            Marker::End("results".into()),
        ] {
            assert_eq!(Marker::read(marker.line().as_bytes()), Ok(Some(marker)));
        }
        let others = [
            "",
            "text",
            "<!-- expctl: job 1, submitted 2, config c -->",
            "<!-- other -->",
            "<!-- expctl:",
            "the marker `<!-- expctl:end results -->`",
        ];
        others.iter().for_each(|line| assert_eq!(Marker::read(line.as_bytes()), Ok(None), "{line}"));
    }

    #[test]
    fn what_only_looks_like_a_marker_is_damage() {
        for (line, why) in [
            ("  <!-- expctl:begin results -->", "alone on its line"),
            ("\t<!-- expctl:end results -->", "alone on its line"),
            ("<!-- expctl:begin results", "alone on its line"),
            ("<!-- expctl:begin a --> <!-- expctl:end a -->", "alone on its line"),
            ("<!-- expctl:note 2 results -->", "are of version 2; this expctl knows version 1"),
            ("<!-- expctl:begin results 123 -->", "`123` is no digest"),
            ("<!-- expctl:begin Results -->", "no name of a section"),
            ("<!-- expctl:start results -->", "no marker of version 1"),
        ] {
            let found = Marker::read(line.as_bytes()).unwrap_err();
            assert!(found.contains(why), "{line}: {found}");
        }
    }
}
