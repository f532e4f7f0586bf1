use std::fmt::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement};

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
        for column in &self.right {
            if let Some(column) = table.column_mut(*column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string()
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
}
