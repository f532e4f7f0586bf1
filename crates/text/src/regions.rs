//! Generated sections ("regions") of a markdown note between markers, in a text that a writer edits.
//!
//! Invariant: text outside of the markers is never changed, byte for byte; text between them is replaced only if it is as it was
//! generated, or on request.

use std::ops::Range;

/// Version of the markers.
const VERSION: u32 = 1;

/// Start of every marker. A line with a space after the colon is no marker: notes have one that names their job.
const START: &[u8] = b"<!-- expctl:";
const END: &str = "-->";

/// A marker: a line of its own, which no markdown reader shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marker {
    /// `<!-- expctl:note 1 summary results -->`: the version of the markers, and all regions that the note was ever written with.
    Note(Vec<String>),
    /// `<!-- expctl:begin results 0123456789abcdef -->`: name, and digest of the generated text; templates have no digest.
    Begin(String, Option<String>),
    /// `<!-- expctl:end results -->`
    End(String),
}

/// A line that starts like a marker and is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkerError {
    /// Other text on its line.
    #[error("a marker must stand alone on its line, from the first column to `-->`")]
    NotAlone,
    /// Markers of another version.
    #[error("these markers are of version {found}; this expctl knows version {VERSION}")]
    Version {
        /// Their version.
        found: String,
    },
    /// The digest of a region is malformed.
    #[error("`{found}` is no digest: 16 digits from 0 to f are expected")]
    Digest {
        /// Its text.
        found: String,
    },
    /// The name of a region is malformed.
    #[error("`{found}` is no name of a section: lowercase letters, digits and `_` are")]
    Name {
        /// Its text.
        found: String,
    },
    /// The version has no such marker.
    #[error("`expctl:{found}` is no marker of version {VERSION}")]
    Unknown {
        /// Its text.
        found: String,
    },
}

impl Marker {
    /// Parse a line, given without its line end. `None`: it is no marker; one in the middle of a line is prose.
    ///
    /// # Errors
    /// The line starts like a marker and is none.
    pub fn parse(line: &[u8]) -> Result<Option<Self>, MarkerError> {
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
            .ok_or(MarkerError::NotAlone)?;
        let words: Vec<&str> = inner.split_ascii_whitespace().collect();
        match words[..] {
            ["note", version, ref sections @ ..] => {
                if version != VERSION.to_string() {
                    return Err(MarkerError::Version { found: version.to_owned() });
                }
                Ok(Some(Self::Note(sections.iter().map(|s| region_name(s)).collect::<Result<_, _>>()?)))
            }
            ["begin", of] => Ok(Some(Self::Begin(region_name(of)?, None))),
            ["begin", of, digest] if is_digest(digest) => {
                Ok(Some(Self::Begin(region_name(of)?, Some(digest.to_owned()))))
            }
            ["begin", _, digest] => Err(MarkerError::Digest { found: digest.to_owned() }),
            ["end", of] => Ok(Some(Self::End(region_name(of)?))),
            _ => Err(MarkerError::Unknown { found: inner.trim().to_owned() }),
        }
    }

    /// The marker as a line, without its line end.
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

fn region_name(text: &str) -> Result<String, MarkerError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if text.chars().all(plain) { Ok(text.to_owned()) } else { Err(MarkerError::Name { found: text.to_owned() }) }
}

fn is_digest(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A region of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name.
    pub name: String,
    /// Digest of the text as it was generated; `None` in the text of a template.
    pub digest: Option<String>,
    /// Line of its first marker, from 1.
    pub line: usize,
    /// First marker, with its line end.
    pub begin: Range<usize>,
    /// Text between the markers.
    pub body: Range<usize>,
    /// Second marker, with its line end if it has one.
    pub end: Range<usize>,
}

/// The markers of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionLayout {
    /// The regions, in the order of the text.
    pub regions: Vec<Region>,
    /// The note marker with its line end, and the regions that it names.
    pub note: Option<(Range<usize>, Vec<String>)>,
}

/// Markers that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// A line that starts like a marker and is none.
    #[error("{source}")]
    Marker {
        /// Its line, from 1.
        line: usize,
        /// The defect.
        source: MarkerError,
    },
    /// Two regions have the same name.
    #[error("the section `{name}` stands twice, here and at line {first}")]
    Duplicate {
        /// Line of the second one.
        line: usize,
        /// Name of the region.
        name: String,
        /// Line of the first one.
        first: usize,
    },
    /// A region begins before the one before it has ended.
    #[error("`{name}` begins inside the section `{outer}`, which began at line {outer_line}")]
    BeginsInside {
        /// Line of the marker.
        line: usize,
        /// Name of the region that begins.
        name: String,
        /// Name of the region that is open.
        outer: String,
        /// Line where that one began.
        outer_line: usize,
    },
    /// The end of another region than the one that is open.
    #[error("`{name}` ends inside the section `{outer}`, which began at line {outer_line}")]
    EndsInside {
        /// Line of the marker.
        line: usize,
        /// Name of the region that ends.
        name: String,
        /// Name of the region that is open.
        outer: String,
        /// Line where that one began.
        outer_line: usize,
    },
    /// The end of a region that did not begin.
    #[error("the section `{name}` ends here and does not begin")]
    NoBegin {
        /// Line of the marker.
        line: usize,
        /// Name of the region.
        name: String,
    },
    /// A region without an end.
    #[error("the section `{name}` begins here and does not end")]
    NoEnd {
        /// Line of its first marker.
        line: usize,
        /// Name of the region.
        name: String,
    },
    /// The note marker inside a region.
    #[error("the line of the note stands inside the section `{outer}`")]
    NoteInside {
        /// Line of the marker.
        line: usize,
        /// Name of the region that is open.
        outer: String,
    },
    /// Two note markers.
    #[error("the line of the note stands twice")]
    SecondNote {
        /// Line of the second one.
        line: usize,
    },
    /// A generated text without a note marker.
    #[error("the line `<!-- expctl:note 1 -->` is missing")]
    NoNote,
}

impl RegionError {
    /// The line of the mistake, from 1.
    pub fn line(&self) -> usize {
        match self {
            Self::Marker { line, .. }
            | Self::Duplicate { line, .. }
            | Self::BeginsInside { line, .. }
            | Self::EndsInside { line, .. }
            | Self::NoBegin { line, .. }
            | Self::NoEnd { line, .. }
            | Self::NoteInside { line, .. }
            | Self::SecondNote { line } => *line,
            Self::NoNote => 1,
        }
    }

    /// The way to repair it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Marker { .. } => "put the marker back as it was, or remove the line if you do not want the section; \
                                    in your own text, write `&lt;!--` for `<!--`"
                .to_owned(),
            Self::Duplicate { .. } => "remove the two markers of one of them".to_owned(),
            Self::BeginsInside { outer: name, .. }
            | Self::EndsInside { outer: name, .. }
            | Self::NoteInside { outer: name, .. }
            | Self::NoEnd { name, .. } => format!(
                "put `<!-- expctl:end {name} -->` on a line of its own where the section ends, or remove its first marker"
            ),
            Self::NoBegin { name, .. } => {
                format!("put its `<!-- expctl:begin {name} … -->` back, or remove this line")
            }
            Self::SecondNote { .. } => "remove one of them".to_owned(),
            Self::NoNote => "put it near the top: it says which sections the note has had".to_owned(),
        }
    }
}

impl RegionLayout {
    /// Find the markers of a text.
    ///
    /// # Errors
    /// The first marker that does not fit.
    pub fn parse(text: &[u8]) -> Result<Self, RegionError> {
        let mut layout = Self::default();
        // The region whose second marker has not come yet.
        let mut open: Option<Region> = None;
        let mut start = 0;
        for (index, whole) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let (line, place) = (index + 1, start..start + whole.len());
            start = place.end;
            let text = whole.strip_suffix(b"\n").unwrap_or(whole);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            let marker = Marker::parse(text).map_err(|source| RegionError::Marker { line, source })?;
            match (marker, open.take()) {
                (None, still) => open = still,
                (Some(Marker::Begin(name, digest)), None) => {
                    if let Some(first) = layout.region(&name).map(|region| region.line) {
                        return Err(RegionError::Duplicate { line, name, first });
                    }
                    let body = place.end..place.end;
                    open = Some(Region { name, digest, line, begin: place.clone(), body, end: place });
                }
                (Some(Marker::Begin(name, _)), Some(Region { name: outer, line: outer_line, .. })) => {
                    return Err(RegionError::BeginsInside { line, name, outer, outer_line });
                }
                (Some(Marker::End(name)), Some(mut region)) if region.name == name => {
                    (region.body.end, region.end) = (place.start, place);
                    layout.regions.push(region);
                }
                (Some(Marker::End(name)), Some(Region { name: outer, line: outer_line, .. })) => {
                    return Err(RegionError::EndsInside { line, name, outer, outer_line });
                }
                (Some(Marker::End(name)), None) => return Err(RegionError::NoBegin { line, name }),
                (Some(Marker::Note(_)), Some(outer)) => {
                    return Err(RegionError::NoteInside { line, outer: outer.name });
                }
                (Some(Marker::Note(_)), None) if layout.note.is_some() => return Err(RegionError::SecondNote { line }),
                (Some(Marker::Note(regions)), None) => layout.note = Some((place, regions)),
            }
        }
        if let Some(Region { name, line, .. }) = open {
            return Err(RegionError::NoEnd { line, name });
        }
        Ok(layout)
    }

    /// The region of this name.
    pub fn region(&self, name: &str) -> Option<&Region> {
        self.regions.iter().find(|region| region.name == name)
    }
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
            assert_eq!(Marker::parse(marker.line().as_bytes()), Ok(Some(marker)));
        }
        let others = [
            "",
            "text",
            "<!-- expctl: job 1, submitted 2, config c -->",
            "<!-- other -->",
            "<!-- expctl:",
            "the marker `<!-- expctl:end results -->`",
        ];
        others.iter().for_each(|line| assert_eq!(Marker::parse(line.as_bytes()), Ok(None), "{line}"));
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
            let found = Marker::parse(line.as_bytes()).unwrap_err();
            assert!(found.to_string().contains(why), "{line}: {found}");
        }
    }

    #[test]
    fn markers_are_found_with_their_lines() {
        let text =
            b"a\n<!-- expctl:note 1 x -->\r\n<!-- expctl:begin x 0123456789abcdef -->\nbody\n<!-- expctl:end x -->";
        let layout = RegionLayout::parse(text).unwrap();
        let region = layout.region("x").unwrap();
        assert_eq!((&text[region.body.clone()], region.line, region.end.end), (&b"body\n"[..], 3, text.len()));
        assert_eq!(layout.note.unwrap().1, ["x"]);
    }

    #[test]
    fn damage_names_the_line_and_what_to_do() {
        let (x, not_x) = ("<!-- expctl:begin x -->\n", "<!-- expctl:end x -->\n");
        let y = "<!-- expctl:begin y -->\n";
        for (text, line, what) in [
            (format!("a\n{x}b\n"), 2, "`x` begins here and does not end"),
            (format!("a\n{not_x}"), 2, "`x` ends here and does not begin"),
            (format!("{x}{y}"), 2, "`y` begins inside the section `x`"),
            (format!("{y}{not_x}"), 2, "`x` ends inside the section `y`"),
            (format!("{x}{not_x}{x}{not_x}"), 3, "`x` stands twice, here and at line 1"),
            (format!("{x}<!-- expctl:note 1 -->\n"), 2, "inside the section `x`"),
            ("<!-- expctl:note 1 -->\n".repeat(2), 2, "stands twice"),
        ] {
            let error = RegionLayout::parse(text.as_bytes()).unwrap_err();
            assert!(
                error.line() == line && error.to_string().contains(what) && !error.remedy().is_empty(),
                "{error:?}"
            );
        }
    }
}
