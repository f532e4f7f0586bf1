use serde::Serialize;

use super::breakdowns::{self, BreakdownBeside};
use super::repeated::{self, Repeated};
use super::{Class, Row};
use crate::report::Table;
use expctl_record::{PublishedBreakdown, PublishedSource};

/// Published figures beside the measured ones that repeat them.
#[derive(Clone, Debug, Serialize)]
pub struct Published {
    /// Rates: each published row with the measured rows of the same variant and kind of step.
    pub rates: Vec<Repeated>,
    /// Breakdowns, each with what the same components took in the steps of a measured row.
    pub breakdowns: Vec<BreakdownBeside>,
    /// What was published by whom: job, and source.
    #[serde(skip)]
    sources: Vec<(String, PublishedSource)>,
}

impl Published {
    /// Of rows, measured and imported, and of the breakdowns that the sources of imported ones give.
    pub fn of(rows: &[&Row], breakdowns: &[PublishedBreakdown]) -> Self {
        let mut sources: Vec<(String, PublishedSource)> = Vec::new();
        let imported = rows.iter().filter(|row| row.class == Class::Imported);
        let of_rows = imported.filter_map(|row| Some((row.job.clone(), row.source.clone()?)));
        let of_breakdowns = breakdowns.iter().map(|one| (one.job_name(), one.source.clone()));
        for source in of_rows.chain(of_breakdowns) {
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        Self { rates: repeated::repeated(rows), breakdowns: breakdowns::beside(breakdowns, rows), sources }
    }

    /// True if a measured row stands beside a breakdown.
    pub(super) fn has_measured_breakdown(&self) -> bool {
        self.breakdowns.iter().any(|one| one.measured.is_some())
    }

    /// Its tables, each under a title.
    pub(super) fn tables(&self) -> Vec<(String, Table)> {
        let rates = (!self.rates.is_empty()).then(|| repeated::table(&self.rates));
        let mut all: Vec<(String, Table)> =
            rates.into_iter().map(|table| ("Published beside measured:".to_owned(), table)).collect();
        all.extend(breakdowns::tables(&self.breakdowns));
        all.extend(breakdowns::summaries(&self.breakdowns));
        all
    }

    /// What must be known of them, a sentence each.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut all = repeated::remarks(&self.rates);
        all.extend(breakdowns::remarks(&self.breakdowns));
        all
    }

    /// Tables, sentences and sources for a note. `None` if no measured row repeats anything.
    pub fn markdown(&self) -> Option<String> {
        let tables = self.tables();
        if self.rates.is_empty() && !self.has_measured_breakdown() {
            return None;
        }
        let mut parts: Vec<String> = Vec::new();
        for (title, table) in tables {
            parts.extend([title, table.markdown()]);
        }
        let source = |(job, source): &(String, PublishedSource)| {
            format!("{job} (imported): {} ({}), {}", source.title, source.date, source.from)
        };
        let lines = self.remarks().into_iter().chain(self.sources.iter().map(source));
        parts.push(lines.map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n"));
        Some(parts.join("\n\n"))
    }
}
