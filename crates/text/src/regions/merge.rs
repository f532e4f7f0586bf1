use super::layout::{Damage, Layout, Region};
use super::marker::Marker;

/// A generated text: the template's, with bare markers.
#[derive(Clone, Debug)]
pub struct Fresh<'a> {
    text: &'a str,
    layout: Layout,
}

/// A note, regenerated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The whole text.
    pub text: Vec<u8>,
    /// Sections that were edited, with the lines where they begin. Unless their loss was asked for, the text is of no use then.
    pub edited: Vec<(String, usize)>,
    /// Sections that the text no longer generates, and that stay as they are.
    pub stale: Vec<String>,
    /// Sections that were to come back and cannot: they are there, or are none.
    pub not_restored: Vec<String>,
}

impl<'a> Fresh<'a> {
    /// Find the sections of a generated text.
    ///
    /// # Errors
    /// A marker that does not fit, which is a mistake of the template.
    pub fn of(text: &'a str) -> Result<Self, Damage> {
        let layout = Layout::of(text.as_bytes())?;
        if layout.note.is_none() {
            let what = "the line `<!-- expctl:note 1 -->` is missing".to_owned();
            let remedy = "put it near the top: it says which sections the note has had".to_owned();
            return Err(Damage { line: 1, what, remedy });
        }
        Ok(Self { text, layout })
    }

    /// What a section says, without blank lines around it.
    fn body(&self, region: &Region) -> &'a str {
        self.text[region.body.clone()].trim_matches(['\n', '\r'])
    }

    /// Names of the sections that say something.
    fn said(&self) -> impl Iterator<Item = &str> {
        self.layout.regions.iter().filter(|r| !self.body(r).is_empty()).map(|r| r.name.as_str())
    }
}

/// The text without markers, for a reader who writes nothing into it.
pub fn plain(new: &Fresh<'_>) -> String {
    let mut text = String::new();
    let mut from = 0;
    let note = new.layout.note.iter().map(|(place, _)| (place.clone(), ""));
    let markers = new.layout.regions.iter().flat_map(|r| [(r.begin.start..r.end.end, new.body(r))]);
    let mut pieces: Vec<_> = note.chain(markers).collect();
    pieces.sort_by_key(|(place, _)| place.start);
    for (place, body) in pieces {
        text.push_str(&new.text[from..place.start]);
        text.push_str(body);
        text.push('\n');
        from = place.end;
    }
    text.push_str(&new.text[from..]);
    tidy(&text)
}

/// The text of a note that is not there yet: digests filled in, without the sections that say nothing.
pub fn fresh(new: &Fresh<'_>) -> String {
    let mut text = String::new();
    let mut from = 0;
    let names: Vec<String> = new.said().map(str::to_owned).collect();
    let note =
        new.layout.note.iter().map(|(place, _)| (place.clone(), format!("{}\n", Marker::Note(names.clone()).line())));
    let regions = new.layout.regions.iter().map(|region| {
        let body = new.body(region);
        let written = if body.is_empty() { String::new() } else { section(&region.name, body, "\n") };
        (region.begin.start..region.end.end, written)
    });
    let mut pieces: Vec<_> = note.chain(regions).collect();
    pieces.sort_by_key(|(place, _)| place.start);
    for (place, written) in pieces {
        text.push_str(&new.text[from..place.start]);
        text.push_str(&written);
        from = place.end;
    }
    text.push_str(&new.text[from..]);
    tidy(&text)
}

/// Regenerate the sections of `old`, which has the markers at `layout`, and put back those removed sections that `restore`
/// names; `all` is every one.
pub fn merge(old: &[u8], layout: &Layout, new: &Fresh<'_>, restore: &[String]) -> Merged {
    let line_end = if crlf(old, layout) { "\r\n" } else { "\n" };
    let known: Vec<String> = layout.note.iter().flat_map(|(_, names)| names.clone()).collect();
    let mut merged = Merged { text: Vec::new(), edited: Vec::new(), stale: Vec::new(), not_restored: Vec::new() };
    // Replacements by place, in the order of the text; a place of no length is an insertion.
    let mut changes: Vec<(std::ops::Range<usize>, Vec<u8>)> = Vec::new();
    for region in &layout.regions {
        let Some(source) = new.layout.region(&region.name) else {
            merged.stale.push(region.name.clone());
            continue;
        };
        let (now, there) = (new.body(source), body(old, region));
        let untouched = region.digest.as_deref() == Some(digest(&there).as_str());
        if there == now.as_bytes() && untouched {
            continue;
        }
        if there != now.as_bytes() && !untouched {
            merged.edited.push((region.name.clone(), region.line));
        }
        let end = region.end.clone();
        let mut written = section(&region.name, now, line_end).into_bytes();
        // The second marker stays as it is, with or without a line end.
        written.truncate(written.len() - Marker::End(region.name.clone()).line().len() - line_end.len());
        changes.push((region.begin.start..end.start, written));
    }
    let mut anchors: Vec<(&str, usize)> = layout.regions.iter().map(|r| (r.name.as_str(), r.end.end)).collect();
    let wanted = |name: &str| restore.iter().any(|w| w == name || w == "all");
    for (index, region) in new.layout.regions.iter().enumerate() {
        let now = new.body(region);
        let removed = known.contains(&region.name) && !wanted(&region.name);
        if now.is_empty() || removed || layout.region(&region.name).is_some() {
            continue;
        }
        // Below the nearest section in front of it, else above the nearest one behind it, else at the end.
        let before = new.layout.regions[..index].iter().rev();
        let below = before.filter_map(|r| anchors.iter().find(|(name, _)| *name == r.name)).next().map(|a| a.1);
        let mut behind = new.layout.regions[index..].iter();
        let above = behind.find_map(|r| layout.region(&r.name)).map(|r| r.begin.start);
        let written = section(&region.name, now, line_end);
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
        for name in new.said().chain(present) {
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

/// What was to come back and is there, or is no section of the text.
fn not_restored(layout: &Layout, new: &Fresh<'_>, restore: &[String]) -> Vec<String> {
    let cannot = |name: &&String| {
        let says = new.layout.region(name).is_some_and(|region| !new.body(region).is_empty());
        name.as_str() != "all" && (layout.region(name).is_some() || !says)
    };
    restore.iter().filter(cannot).cloned().collect()
}

/// A section with its markers.
fn section(name: &str, body: &str, line_end: &str) -> String {
    let (begin, end) = (Marker::Begin(name.to_owned(), Some(digest(body.as_bytes()))), Marker::End(name.to_owned()));
    let text = if body.is_empty() {
        format!("{}\n{}\n", begin.line(), end.line())
    } else {
        format!("{}\n\n{body}\n\n{}\n", begin.line(), end.line())
    };
    if line_end == "\n" { text } else { text.replace('\n', line_end) }
}

/// What a section of a note says, without blank lines around it and with line feeds only: an editor may change both.
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

/// Whether the lines of a note end as on Windows: as its own marker does.
fn crlf(text: &[u8], layout: &Layout) -> bool {
    let place = layout.note.iter().map(|(place, _)| place).chain(layout.regions.iter().map(|r| &r.begin)).next();
    place.is_some_and(|place| text[place.clone()].ends_with(b"\r\n"))
}

/// At most one blank line at a time outside of fences, no blanks at line ends, one line end at the end.
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
