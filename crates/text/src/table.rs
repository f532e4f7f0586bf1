use std::fmt::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Width};

/// Blanks beside the text of a column of a boxed table.
const PADDING: usize = 2;

/// A table of text cells, written as markdown, for a terminal, or as CSV.
#[derive(Clone, Debug, Default)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    right: Vec<usize>,
}

impl Table {
    /// An empty table.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Align these columns, counted from 0, to the right.
    #[must_use]
    pub fn right(mut self, columns: impl IntoIterator<Item = usize>) -> Self {
        self.right.extend(columns);
        self
    }

    /// Add a row of as many cells as the header has.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.header.len(), String::new());
        self.rows.push(cells);
    }

    /// Add a row in bold.
    pub fn bold_row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.row(cells.into_iter().map(|c| {
            let c: String = c.into();
            if c.is_empty() { c } else { format!("**{c}**") }
        }));
    }

    /// GitHub pipe table, without a final line feed.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|c| c.replace('|', "\\|").replace('\n', " ")).collect();
            format!("| {} |", cells.join(" | "))
        };
        let mut text = line(&self.header);
        let rule = |column: usize| if self.right.contains(&column) { "---:|" } else { "---|" };
        let _ = write!(text, "\n|{}", (0..self.header.len()).map(rule).collect::<String>());
        for row in &self.rows {
            let _ = write!(text, "\n{}", line(row));
        }
        text
    }

    /// Boxed table, at most as wide as the terminal; bold without the asterisks of markdown.
    pub fn terminal(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header(&self.header);
        // A terminal that does not know its width reports 0 or so: then nothing is wrapped.
        let wrap = table.width().is_some_and(|width| width >= 40);
        table.set_content_arrangement(if wrap { ContentArrangement::Dynamic } else { ContentArrangement::Disabled });
        for row in &self.rows {
            table.add_row(row.iter().map(|cell| match cell.strip_prefix("**").and_then(|c| c.strip_suffix("**")) {
                Some(bold) => Cell::new(bold).add_attribute(Attribute::Bold),
                None => Cell::new(cell),
            }));
        }
        if let (true, Some(width)) = (wrap, table.width()) {
            for (column, word) in self.longest_words(width.into()).into_iter().enumerate() {
                if let (Ok(lower), Some(column)) = (u16::try_from(word + PADDING), table.column_mut(column)) {
                    column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(lower)));
                }
            }
        }
        for column in &self.right {
            if let Some(column) = table.column_mut(*column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string()
    }

    /// The longest word of each column, in characters, shortened alike until a table with these columns fits into the width: a word is only cut
    /// where there is no other way.
    fn longest_words(&self, width: usize) -> Vec<usize> {
        let longest = |column: usize| {
            let cells = std::iter::once(&self.header).chain(&self.rows).filter_map(|row| row.get(column));
            let words = cells.flat_map(|cell| cell.split_whitespace());
            words.map(|word| word.trim_matches('*').chars().count()).max().unwrap_or(0)
        };
        let longest: Vec<usize> = (0..self.header.len()).map(longest).collect();
        let limit = longest.iter().copied().max().unwrap_or(0);
        let at_most = |limit: usize| longest.iter().map(move |word| *word.min(&limit)).collect::<Vec<_>>();
        // A border beside each column, and one at the end.
        let fits = |words: &Vec<usize>| words.iter().map(|word| word + PADDING + 1).sum::<usize>() < width;
        (1..=limit).rev().map(at_most).find(fits).unwrap_or_default()
    }

    /// Comma-separated values as in RFC 4180, but with line feeds, and without a final one.
    pub fn csv(&self) -> String {
        let field = |cell: &String| {
            if cell.contains([',', '"', '\n', '\r']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell.clone()
            }
        };
        let line = |cells: &Vec<String>| cells.iter().map(field).collect::<Vec<_>>().join(",");
        std::iter::once(&self.header).chain(&self.rows).map(line).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cannot_break_a_table() {
        let mut table = Table::new(["a", "b"]);
        table.row(["x|y", "1,\"2\""]);
        table.bold_row(["z", ""]);
        assert_eq!(table.markdown(), "| a | b |\n|---|---|\n| x\\|y | 1,\"2\" |\n| **z** |  |");
        assert_eq!(Table::new(["a", "b"]).right([1]).markdown(), "| a | b |\n|---|---:|");
        assert_eq!(table.csv(), "a,b\nx|y,\"1,\"\"2\"\"\"\n**z**,");
    }

    #[test]
    fn words_are_cut_only_where_there_is_no_other_way() {
        let mut table = Table::new(["Trial", "it/s"]);
        table.bold_row(["lazy-r1-56abc695 (loader.workers=4)", "1.5"]);
        assert_eq!(table.longest_words(60), [18, 4]);
        assert_eq!(table.longest_words(20), [9, 4]);
        assert_eq!(table.longest_words(5), Vec::<usize>::new());
    }
}
