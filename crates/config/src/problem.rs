//! Problems of a config, and how they are shown.

use std::fmt::{self, Display};
use std::io::IsTerminal;

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};

use crate::node::{Sources, ValueOrigin};

/// One thing that is wrong with a config: what, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The message, one line.
    pub message: String,
    /// Where.
    pub at: ValueOrigin,
    /// A remark at the place.
    pub label: String,
    /// A second place that matters.
    pub also: Option<(ValueOrigin, String)>,
    /// A hint at the solution.
    pub help: Option<String>,
}

impl Problem {
    /// A problem with a message, and a label at its place.
    pub fn new(at: ValueOrigin, message: impl Display, label: impl Display) -> Self {
        Self { message: message.to_string(), at, label: label.to_string(), also: None, help: None }
    }

    /// Adds a hint at the solution.
    #[must_use]
    pub fn help(mut self, help: impl Display) -> Self {
        self.help = Some(help.to_string());
        self
    }

    /// Adds a second place.
    #[must_use]
    pub fn also(mut self, at: ValueOrigin, label: impl Display) -> Self {
        self.also = Some((at, label.to_string()));
        self
    }
}

/// Everything that is wrong with a config, in the order of the texts. Never empty.
#[derive(Clone, Debug)]
pub struct ConfErrors {
    config: String,
    problems: Vec<Problem>,
    sources: Sources,
}

impl ConfErrors {
    pub(crate) fn new(config: impl Into<String>, mut problems: Vec<Problem>, sources: Sources) -> Self {
        problems.sort_by_key(|p| (p.at, p.message.clone()));
        problems.dedup();
        Self { config: config.into(), problems, sources }
    }

    /// The problems.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Laid out for a reader: with colours and lines, or as plain ASCII.
    pub fn render(&self, theme: GraphicalTheme) -> String {
        let handler = GraphicalReportHandler::new_themed(theme).with_links(false).with_wrap_lines(false);
        let mut text = String::new();
        for problem in &self.problems {
            let snippet = Snippet { problem, source: self.source_of(problem), labels: self.labels_of(problem) };
            // Writing to a string does not fail.
            let _ = handler.render_report(&mut text, &snippet);
            text.push('\n');
        }
        let n = self.problems.len();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let text = lines.join("\n");
        format!("{}\n\n{}: {n} problem{}", text.trim_matches('\n'), self.config, if n == 1 { "" } else { "s" })
    }

    fn source_of(&self, problem: &Problem) -> NamedSource<String> {
        let source = problem.at.source();
        NamedSource::new(self.sources.name(source), self.sources.text(source).to_owned())
    }

    fn labels_of(&self, problem: &Problem) -> Vec<LabeledSpan> {
        let mut labels = vec![LabeledSpan::new_primary_with_span(Some(problem.label.clone()), problem.at.span())];
        if let Some((at, label)) = &problem.also {
            // A snippet shows one text; a place in another one is named instead.
            if at.source() == problem.at.source() {
                labels.push(LabeledSpan::new_with_span(Some(label.clone()), at.span()));
            } else {
                let label = format!("{}; {label} at {}", problem.label, self.sources.line_of(*at));
                labels[0] = LabeledSpan::new_primary_with_span(Some(label), problem.at.span());
            }
        }
        labels
    }
}

impl Display for ConfErrors {
    /// Coloured on a terminal that wants it (`NO_COLOR`), plain ASCII in a file or pipe.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let theme = match (std::io::stderr().is_terminal(), console::colors_enabled_stderr()) {
            (true, true) => GraphicalTheme::unicode(),
            (true, false) => GraphicalTheme::unicode_nocolor(),
            (false, _) => GraphicalTheme::none(),
        };
        f.write_str(&self.render(theme))
    }
}

impl std::error::Error for ConfErrors {}

/// One problem as miette wants it.
#[derive(Debug)]
struct Snippet<'a> {
    problem: &'a Problem,
    source: NamedSource<String>,
    labels: Vec<LabeledSpan>,
}

impl Display for Snippet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.message)
    }
}

impl std::error::Error for Snippet<'_> {}

impl Diagnostic for Snippet<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        self.problem.help.as_ref().map(|help| Box::new(help) as Box<dyn Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}
