use std::ops::Range;

use super::marker::Marker;

/// A generated section in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name.
    pub name: String,
    /// Digest of what was generated; none in a template's text.
    pub digest: Option<String>,
    /// Line of its first marker, from 1.
    pub line: usize,
    /// First marker, with its line end.
    pub begin: Range<usize>,
    /// What stands between the markers.
    pub body: Range<usize>,
    /// Second marker, with its line end, if it has one.
    pub end: Range<usize>,
}

/// Where the markers of a text stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The sections, in the order of the text.
    pub regions: Vec<Region>,
    /// The line of the note itself with its line end, and the sections that it names.
    pub note: Option<(Range<usize>, Vec<String>)>,
}

/// A marker that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl Damage {
    fn new(line: usize, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { line, what: what.into(), remedy: remedy.into() }
    }
}

impl Layout {
    /// Find the markers of a text.
    ///
    /// # Errors
    /// The first marker that does not fit.
    pub fn of(text: &[u8]) -> Result<Self, Damage> {
        let mut layout = Self::default();
        // The section that is open: its first marker is behind, its second one is not.
        let mut open: Option<Region> = None;
        let mut start = 0;
        for (index, whole) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let (line, place) = (index + 1, start..start + whole.len());
            start = place.end;
            let text = whole.strip_suffix(b"\n").unwrap_or(whole);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            let marker = Marker::read(text).map_err(|what| Damage::new(line, what, RESTORE))?;
            match (marker, open.take()) {
                (None, still) => open = still,
                (Some(Marker::Begin(name, digest)), None) => {
                    if let Some(first) = layout.regions.iter().find(|region| region.name == name) {
                        let what = format!("the section `{name}` stands twice, here and at line {}", first.line);
                        return Err(Damage::new(line, what, "remove the two markers of one of them"));
                    }
                    let body = place.end..place.end;
                    open = Some(Region { name, digest, line, begin: place.clone(), body, end: place });
                }
                (Some(Marker::Begin(name, _)), Some(outer)) => {
                    let what = format!(
                        "`{name}` begins inside the section `{}`, which began at line {}",
                        outer.name, outer.line
                    );
                    return Err(Damage::new(line, what, missing_end(&outer.name)));
                }
                (Some(Marker::End(name)), Some(mut region)) if region.name == name => {
                    (region.body.end, region.end) = (place.start, place);
                    layout.regions.push(region);
                }
                (Some(Marker::End(name)), Some(outer)) => {
                    let what = format!(
                        "`{name}` ends inside the section `{}`, which began at line {}",
                        outer.name, outer.line
                    );
                    return Err(Damage::new(line, what, missing_end(&outer.name)));
                }
                (Some(Marker::End(name)), None) => {
                    let what = format!("the section `{name}` ends here and does not begin");
                    let remedy = format!("put its `<!-- expctl:begin {name} … -->` back, or remove this line");
                    return Err(Damage::new(line, what, remedy));
                }
                (Some(Marker::Note(_)), Some(outer)) => {
                    let what = format!("the line of the note stands inside the section `{}`", outer.name);
                    return Err(Damage::new(line, what, missing_end(&outer.name)));
                }
                (Some(Marker::Note(_)), None) if layout.note.is_some() => {
                    return Err(Damage::new(line, "the line of the note stands twice", "remove one of them"));
                }
                (Some(Marker::Note(sections)), None) => layout.note = Some((place, sections)),
            }
        }
        if let Some(region) = open {
            let what = format!("the section `{}` begins here and does not end", region.name);
            return Err(Damage::new(region.line, what, missing_end(&region.name)));
        }
        Ok(layout)
    }

    /// The section of this name.
    pub fn region(&self, name: &str) -> Option<&Region> {
        self.regions.iter().find(|region| region.name == name)
    }
}

const RESTORE: &str = "put the marker back as it was, or remove the line if you do not want the section; \
                       in your own text, write `&lt;!--` for `<!--`";

fn missing_end(name: &str) -> String {
    format!("put `<!-- expctl:end {name} -->` on a line of its own where the section ends, or remove its first marker")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found_with_their_lines() {
        let text =
            b"a\n<!-- expctl:note 1 x -->\r\n<!-- expctl:begin x 0123456789abcdef -->\nbody\n<!-- expctl:end x -->";
        let layout = Layout::of(text).unwrap();
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
            let damage = Layout::of(text.as_bytes()).unwrap_err();
            assert!(damage.line == line && damage.what.contains(what) && !damage.remedy.is_empty(), "{damage:?}");
        }
    }
}
