use std::ops::Range;

/// A place in one of the texts that a config was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    source: usize,
    start: usize,
    end: usize,
}

impl Origin {
    pub(super) fn new(source: usize, span: Range<usize>) -> Self {
        Self { source, start: span.start, end: span.end.max(span.start) }
    }

    /// Start of a text, for problems that have no better place.
    pub(super) fn start_of(source: usize) -> Self {
        Self::new(source, 0..0)
    }

    /// The text that it lies in.
    pub fn source(&self) -> usize {
        self.source
    }

    /// Bytes of that text.
    pub fn span(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// The texts that a config was read from: its file, the files that it extends, the `--set` arguments.
///
/// Invariant: texts are only added, so an [`Origin`] stays valid.
#[derive(Clone, Debug, Default)]
pub struct Sources(Vec<(String, String)>);

impl Sources {
    pub(super) fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> usize {
        self.0.push((name.into(), text.into()));
        self.0.len() - 1
    }

    /// What a message calls the text: the path as the user wrote it, or `--set`.
    pub fn name(&self, source: usize) -> &str {
        self.0.get(source).map_or("", |(name, _)| name)
    }

    /// The whole text.
    pub fn text(&self, source: usize) -> &str {
        self.0.get(source).map_or("", |(_, text)| text)
    }

    /// The files among them, each once, under the names that messages use.
    pub fn files(&self) -> Vec<(&str, &str)> {
        let mut files: Vec<(&str, &str)> = Vec::new();
        for (name, text) in &self.0 {
            if name != "--set" && !files.iter().any(|(known, _)| known == name) {
                files.push((name, text));
            }
        }
        files
    }

    /// `file:line` of a place, for messages that mention a second file.
    pub(super) fn line_of(&self, at: Origin) -> String {
        let before = self.text(at.source).get(..at.start).unwrap_or("");
        format!("{}:{}", self.name(at.source), before.matches('\n').count() + 1)
    }
}
