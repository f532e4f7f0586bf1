//! Figures and comparisons that a document states by itself, instead of taking them from a record.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;

/// Why a phrase may stand in a document without a record. `docs/templates/allowed.tsv` has one of these for each.
pub const REASONS: [(&str, &str); 8] = [
    ("setting", "a value that a config, an option or a command has"),
    ("limit", "a threshold, timeout or size that the code has"),
    ("format", "a size that follows from a file format or from counting bytes"),
    ("published", "a figure of others, named as published or imported"),
    ("example", "output that is shown to explain its form"),
    ("asserted", "a figure that a test asserts"),
    ("system", "a fact of Slurm, Linux, a library or a download"),
    ("words", "a comparison that states no measurement"),
];

/// A phrase that may stand in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Document or template, relative to the repository.
    pub file: String,
    /// One of [`REASONS`].
    pub reason: String,
    /// Words of one line of it. What they cover is not looked at.
    pub phrase: String,
}

/// The lines of `docs/templates/allowed.tsv`.
pub fn allowed(root: &Path) -> Result<Vec<Allowed>, String> {
    let text = std::fs::read_to_string(root.join("docs/templates/allowed.tsv")).map_err(|e| e.to_string())?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split('\t').collect::<Vec<_>>()[..] {
            [file, reason, phrase] if REASONS.iter().any(|(name, _)| *name == reason) && phrase.len() > 3 => {
                Ok(Allowed { file: file.to_owned(), reason: reason.to_owned(), phrase: phrase.to_owned() })
            }
            _ => Err(format!("docs/templates/allowed.tsv: file, reason and phrase are expected in {line:?}")),
        })
        .collect()
}

/// What [`found`] finds.
pub struct Scan {
    figure: Regex,
    comparison: Regex,
    hidden: Vec<Regex>,
}

impl Scan {
    /// The patterns.
    pub fn new() -> Result<Self, regex::Error> {
        let hidden = [
            r"(?s)\{#.*?#\}",
            r"(?s)\{%.*?%\}",
            r"(?s)\{\{.*?\}\}",
            r"(?s)<!--.*?-->",
            r"(?ms)^```.*?^```",
            r"`[^`]*`",
            r"\]\([^)]*\)",
            // The level of an interval is no figure.
            r"\b95 % (?:confidence )?intervals?\b",
        ];
        Ok(Self {
            figure: Regex::new(
                r"(?x) \d[\d.,\u{2009}]* (?: \s? (?: – | to | and | \.\. ) \s? \d[\d.,]* )? \s?
                  (?: (?: rows | samples | it | batches | bytes | epochs | [kKMGT]?i?B ) / s
                    | [kKMGT]i?B | GFLOP/s | % | ns | [µu]s | ms | s | seconds | min | minutes | times | × ) (?: [^\w\d/-] | $ )
                  | \d [\d.]* \s of \s (?:the|its) \s (?:speed|rate|bytes|floor|memory) \b",
            )?,
            comparison: Regex::new(
                r"(?xi) \b (?: faster | slower | fastest | as\ (?:fast|slow|good) \ as | times\ (?:the|as|more|less) | twice\ (?:the|as)
                  | outperforms? | half\ (?:the|as) ) \b",
            )?,
            hidden: hidden.iter().map(|pattern| Regex::new(pattern)).collect::<Result<_, _>>()?,
        })
    }

    /// Lines of a document with a figure or a comparison of its own: number of the line, and what was found. Jinja expressions, code,
    /// comments and addresses are left out, and so are the phrases.
    pub fn found(&self, text: &str, phrases: &BTreeSet<&str>) -> Vec<(usize, String)> {
        // As many bytes as before, so that phrases are where they are in the text.
        let blank = |found: &regex::Captures<'_>| -> String {
            found[0].bytes().map(|byte| if byte == b'\n' { '\n' } else { '~' }).collect()
        };
        let mut shown = text.to_owned();
        for pattern in &self.hidden {
            shown = pattern.replace_all(&shown, blank).into_owned();
        }
        let mut all = Vec::new();
        for (index, (line, raw)) in shown.lines().zip(text.lines()).enumerate() {
            let mut line = line.to_owned();
            for phrase in phrases {
                for (start, _) in raw.match_indices(phrase) {
                    let range = start..start + phrase.len();
                    // Where an expression ends within the phrase, a character may have been cut.
                    if line.is_char_boundary(range.start) && line.is_char_boundary(range.end) {
                        line.replace_range(range, &"~".repeat(phrase.len()));
                    }
                }
            }
            for found in self.figure.find_iter(&line) {
                // `512 × 32` is a shape, `3 × a day` a count.
                let (before, behind) = (found.as_str().trim_end(), &line[found.end()..]);
                let shape =
                    found.as_str().contains('×') && (before.ends_with(" ×") || behind.starts_with(char::is_numeric));
                if !shape {
                    all.push((index + 1, found.as_str().trim().to_owned()));
                }
            }
            all.extend(self.comparison.find_iter(&line).map(|found| (index + 1, found.as_str().to_owned())));
        }
        all
    }
}
