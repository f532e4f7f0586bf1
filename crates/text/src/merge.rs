//! `merge_regions` writes a note again: generated regions between markers are replaced, and all text outside of them stays as its author wrote it.
//! The digest in the marker of a region tells whether somebody edited that region.

use crate::regions::{Marker, Region, RegionError, RegionLayout};

/// A newly generated text with the bare markers of its template.
#[derive(Clone, Debug)]
pub struct GeneratedText<'a> {
    text: &'a str,
    layout: RegionLayout,
}

/// A note with its regions generated again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedNote {
    /// The whole text.
    pub text: Vec<u8>,
    /// Regions that were edited, with their lines. `text` overwrites them, so it is of use only if their loss was asked for.
    pub edited: Vec<(String, usize)>,
    /// Regions that are no longer generated; they stay as they are.
    pub stale: Vec<String>,
    /// Names to restore that are there already, or that are no region.
    pub not_restored: Vec<String>,
}

impl<'a> GeneratedText<'a> {
    /// Find the regions of a generated text.
    ///
    /// # Errors
    /// A marker that does not fit or is missing: a mistake of the template.
    pub fn parse(text: &'a str) -> Result<Self, RegionError> {
        let layout = RegionLayout::parse(text.as_bytes())?;
        if layout.note.is_none() { Err(RegionError::NoNote) } else { Ok(Self { text, layout }) }
    }

    /// The text of a region, without blank lines around it.
    fn body(&self, region: &Region) -> &'a str {
        self.text[region.body.clone()].trim_matches(['\n', '\r'])
    }

    /// Names of the regions with text.
    fn nonempty(&self) -> impl Iterator<Item = &str> {
        self.layout.regions.iter().filter(|r| !self.body(r).is_empty()).map(|r| r.name.as_str())
    }

    /// The text without markers.
    pub fn without_markers(&self) -> String {
        self.replaced("\n", |region| format!("{}\n", self.body(region)))
    }

    /// The text of a new note: with digests, without empty regions.
    pub fn new_note(&self) -> String {
        let names: Vec<String> = self.nonempty().map(str::to_owned).collect();
        self.replaced(&format!("{}\n", Marker::Note(names).line()), |region| {
            let body = self.body(region);
            if body.is_empty() { String::new() } else { marked(&region.name, body, "\n") }
        })
    }

    /// The text with `note` for the note marker, and `regions` for each region with its markers.
    fn replaced(&self, note: &str, regions: impl Fn(&Region) -> String) -> String {
        let notes = self.layout.note.iter().map(|(range, _)| (range.clone(), note.to_owned()));
        let regions = self.layout.regions.iter().map(|region| (region.begin.start..region.end.end, regions(region)));
        let mut pieces: Vec<_> = notes.chain(regions).collect();
        pieces.sort_by_key(|(range, _)| range.start);
        let (mut text, mut from) = (String::new(), 0);
        for (range, piece) in pieces {
            text.push_str(&self.text[from..range.start]);
            text.push_str(&piece);
            from = range.end;
        }
        text.push_str(&self.text[from..]);
        tidy(&text)
    }
}

/// Replace the regions of `old` (with the markers `layout`) by those of `new`, and put back the removed regions that `restore` names;
/// `all` names every one.
pub fn merge_regions(old: &[u8], layout: &RegionLayout, new: &GeneratedText<'_>, restore: &[String]) -> MergedNote {
    let line_end = if crlf(old, layout) { "\r\n" } else { "\n" };
    let known: Vec<String> = layout.note.iter().flat_map(|(_, names)| names.clone()).collect();
    let mut merged = MergedNote { text: Vec::new(), edited: Vec::new(), stale: Vec::new(), not_restored: Vec::new() };
    // Replacements by byte range; an empty range is an insertion.
    let mut changes: Vec<(std::ops::Range<usize>, Vec<u8>)> = Vec::new();
    for region in &layout.regions {
        let Some(source) = new.layout.region(&region.name) else {
            merged.stale.push(region.name.clone());
            continue;
        };
        let (new_body, old_body) = (new.body(source), body(old, region));
        let untouched = region.digest.as_deref() == Some(digest(&old_body).as_str());
        if old_body == new_body.as_bytes() && untouched {
            continue;
        }
        if old_body != new_body.as_bytes() && !untouched {
            merged.edited.push((region.name.clone(), region.line));
        }
        let end = region.end.clone();
        let mut written = marked(&region.name, new_body, line_end).into_bytes();
        // The second marker stays as it is, with or without a line end.
        written.truncate(written.len() - Marker::End(region.name.clone()).line().len() - line_end.len());
        changes.push((region.begin.start..end.start, written));
    }
    let mut anchors: Vec<(&str, usize)> = layout.regions.iter().map(|r| (r.name.as_str(), r.end.end)).collect();
    let to_restore = |name: &str| restore.iter().any(|w| w == name || w == "all");
    for (index, region) in new.layout.regions.iter().enumerate() {
        let new_body = new.body(region);
        let removed = known.contains(&region.name) && !to_restore(&region.name);
        if new_body.is_empty() || removed || layout.region(&region.name).is_some() {
            continue;
        }
        // After the nearest region before it, else before the nearest one after it, else at the end.
        let before = new.layout.regions[..index].iter().rev();
        let below = before.filter_map(|r| anchors.iter().find(|(name, _)| *name == r.name)).next().map(|a| a.1);
        let mut behind = new.layout.regions[index..].iter();
        let above = behind.find_map(|r| layout.region(&r.name)).map(|r| r.begin.start);
        let written = marked(&region.name, new_body, line_end);
        let (at, written) = match (below, above) {
            (Some(at), _) => {
                // The marker may be the last line of a file without a line end.
                let first = if old[..at].ends_with(b"\n") { "" } else { line_end };
                (at, format!("{first}{line_end}{written}"))
            }
            (None, Some(at)) => (at, format!("{written}{line_end}")),
            (None, None) => {
                let first = if old.is_empty() || old.ends_with(b"\n") { "" } else { line_end };
                (old.len(), format!("{first}{line_end}{written}"))
            }
        };
        anchors.push((&region.name, at));
        changes.push((at..at, written.into_bytes()));
    }
    merged.not_restored = not_restored(layout, new, restore);
    if let Some((place, names)) = &layout.note {
        let mut all = names.clone();
        let present = layout.regions.iter().map(|r| r.name.as_str());
        for name in new.nonempty().chain(present) {
            if !all.iter().any(|known| known == name) {
                all.push(name.to_owned());
            }
        }
        if all != *names {
            let ends = old[place.clone()].ends_with(b"\n");
            let line = Marker::Note(all).line() + if ends { line_end } else { "" };
            changes.push((place.clone(), line.into_bytes()));
        }
    }
    // Several insertions at one place keep their order.
    changes.sort_by_key(|(place, _)| (place.start, place.end));
    let mut from = 0;
    for (place, written) in changes {
        merged.text.extend_from_slice(&old[from..place.start]);
        merged.text.extend_from_slice(&written);
        from = place.end;
    }
    merged.text.extend_from_slice(&old[from..]);
    merged
}

/// Names to restore that are there already, or that are no region of the text.
fn not_restored(layout: &RegionLayout, new: &GeneratedText<'_>, restore: &[String]) -> Vec<String> {
    let cannot = |name: &&String| {
        let says = new.layout.region(name).is_some_and(|region| !new.body(region).is_empty());
        name.as_str() != "all" && (layout.region(name).is_some() || !says)
    };
    restore.iter().filter(cannot).cloned().collect()
}

/// A region with its markers and its digest.
fn marked(name: &str, body: &str, line_end: &str) -> String {
    let (begin, end) = (Marker::Begin(name.to_owned(), Some(digest(body.as_bytes()))), Marker::End(name.to_owned()));
    let text = if body.is_empty() {
        format!("{}\n{}\n", begin.line(), end.line())
    } else {
        format!("{}\n\n{body}\n\n{}\n", begin.line(), end.line())
    };
    if line_end == "\n" { text } else { text.replace('\n', line_end) }
}

/// The text of a region of a note, without blank lines around it and with line feeds only, because editors may change both.
fn body(text: &[u8], region: &Region) -> Vec<u8> {
    let mut body: Vec<u8> = Vec::new();
    for line in text[region.body.clone()].split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\r\n") {
            Some(line) => body.extend_from_slice(&[line, b"\n"].concat()),
            None => body.extend_from_slice(line),
        }
    }
    let is_end = |byte: &u8| *byte == b'\n';
    let first = body.iter().position(|byte| !is_end(byte)).unwrap_or(body.len());
    let last = body.iter().rposition(|byte| !is_end(byte)).map_or(first, |at| at + 1);
    body[first..last].to_owned()
}

/// 16 hex digits of BLAKE3.
fn digest(body: &[u8]) -> String {
    blake3::hash(body).to_hex()[..16].to_owned()
}

/// Whether the lines of a note end in CR LF, as the line of its first marker does.
fn crlf(text: &[u8], layout: &RegionLayout) -> bool {
    let place = layout.note.iter().map(|(place, _)| place).chain(layout.regions.iter().map(|r| &r.begin)).next();
    place.is_some_and(|place| text[place.clone()].ends_with(b"\r\n"))
}

/// The text with at most one blank line at a time outside of fences, no blanks at line ends, and one final line feed.
pub fn tidy(text: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut fenced = false;
    for line in text.lines().map(str::trim_end) {
        fenced ^= line.trim_start().starts_with("```");
        if fenced || !line.is_empty() || lines.last().is_some_and(|last| !last.is_empty()) {
            lines.push(line);
        }
    }
    format!("{}\n", lines.join("\n").trim_end())
}
