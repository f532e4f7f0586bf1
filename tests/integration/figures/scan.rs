//! Figures and comparisons that a document states by itself, instead of taking them from a record.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;

use super::render::DOCS;
use super::{read, root};

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

#[test]
fn documents_state_no_figure_without_a_record() {
    let scan = Scan::new().unwrap();
    let allowed = allowed(&root()).unwrap();
    let mut found = Vec::new();
    let mut scanned = BTreeSet::new();
    for file in scanned_files() {
        let text = read(&root().join(&file));
        let phrases: BTreeSet<&str> =
            allowed.iter().filter(|entry| entry.file == file).map(|entry| entry.phrase.as_str()).collect();
        for phrase in &phrases {
            assert!(text.lines().any(|line| line.contains(*phrase)), "{file} no longer says {phrase:?}: allowed.tsv");
        }
        found.extend(scan.found(&text, &phrases).into_iter().map(|(line, what)| format!("{file}:{line}: {what}")));
        scanned.insert(file);
    }
    let unknown: Vec<_> = allowed.iter().filter(|entry| !scanned.contains(&entry.file)).collect();
    assert!(unknown.is_empty(), "allowed.tsv names files that are not looked at: {unknown:?}");
    assert!(
        found.is_empty(),
        "figures or comparisons without a record; take them from one, or name them in docs/templates/allowed.tsv with a reason:\n{}",
        found.join("\n")
    );
}

#[test]
fn a_figure_is_told_from_a_shape() {
    let scan = Scan::new().unwrap();
    let found = |text: &str| scan.found(text, &BTreeSet::new()).into_iter().map(|(_, what)| what).collect::<Vec<_>>();
    for text in
        ["it takes 3.4 ms.", "1,234 rows/s", "12 %", "63×", "138× [129–177]", "8 times", "20 to 30 µs", "4 GB", "0.5 s"]
    {
        assert_eq!(found(text).len(), 1, "{text}: {:?}", found(text));
    }
    for text in ["it is faster", "half as large", "nine times as long", "twice the rate"] {
        assert_eq!(found(text).len(), 1, "{text}: {:?}", found(text));
    }
    let fine = "chunks of 512 × 32, 128 rows of 20,000 genes; `3 ms`; {{ ratio('a', '3×', 'c') }} [a](b#5-ms) 20 variants\n```\n3 ms\n```\n";
    assert_eq!(found(fine), Vec::<String>::new());
    let phrases = BTreeSet::from(["after 5 s"]);
    assert!(scan.found("it gives up after 5 s", &phrases).is_empty());
}

/// Templates, and documents that are not made from one.
fn scanned_files() -> Vec<String> {
    let made: BTreeSet<&str> = DOCS.iter().map(|(_, target)| *target).collect();
    let mut files: Vec<String> = DOCS.iter().map(|(name, _)| format!("docs/templates/{name}")).collect();
    for folder in ["docs/guide", "docs/reference", "docs/design"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let file = format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap());
            if file.ends_with(".md") && !made.contains(file.as_str()) {
                files.push(file);
            }
        }
    }
    files.sort();
    let in_folder = std::fs::read_dir(root().join("docs/templates")).unwrap();
    let on_disk =
        in_folder.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "j2")).count();
    assert_eq!(on_disk, DOCS.len(), "DOCS has a line for each template");
    files
}
