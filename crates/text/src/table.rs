//! `Table` has its cells as text and is written as markdown, as a box for a terminal, or as CSV. On a narrow terminal it changes its
//! layout before it cuts words.

use std::fmt::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Width};

use crate::format;

/// Blanks beside the text of a column of a boxed table.
const PADDING: usize = 2;

/// Smallest number of characters of a piece of a cut word: shorter pieces are not read as words.
const MIN_PIECE: usize = 8;

/// Last rows that a table keeps where rows are left out.
const LAST_ROWS: usize = 20;

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

    /// At most about `most` rows, for a text that is read: the first, the last twenty, and the first one in bold. Where rows are left out, a
    /// row says how many. A table of no more than `most` rows stays as it is.
    #[must_use]
    pub fn at_most(mut self, most: usize) -> Self {
        if self.rows.len() <= most {
            return self;
        }
        let last = LAST_ROWS.min(most / 2);
        let end = self.rows.split_off(self.rows.len() - last);
        let between = self.rows.split_off(most - last);
        let is_bold = |row: &Vec<String>| row.first().is_some_and(|cell| bold(cell).is_some());
        match between.iter().position(is_bold).filter(|_| !self.rows.iter().any(is_bold)) {
            Some(at) => {
                self.left_out(at);
                self.rows.push(between[at].clone());
                self.left_out(between.len() - at - 1);
            }
            None => self.left_out(between.len()),
        }
        self.rows.extend(end);
        self
    }

    /// Add a row that stands for `n` others.
    fn left_out(&mut self, n: usize) {
        if n > 0 {
            self.row([format!("… {} more", format::thousands(n as u64))]);
        }
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

    /// Boxed table, at most as wide as the terminal; bold without the asterisks of markdown. Where its words would be cut into short pieces,
    /// columns that are the same in all rows stand above it, or, if that is not enough, each row is a list of its cells.
    pub fn terminal(&self) -> String {
        // A terminal that does not know its width reports 0 or so: then nothing is wrapped.
        self.for_width(comfy_table::Table::new().width().map(usize::from).filter(|width| *width >= 40))
    }

    /// [`Self::terminal`] of a width; without one nothing is wrapped.
    fn for_width(&self, width: Option<usize>) -> String {
        let Some(width) = width else { return self.boxed(None) };
        if let Some(words) = self.longest_words(width) {
            return self.boxed(Some((width, words)));
        }
        let (same, others) = self.without_same_columns();
        match others.longest_words(width) {
            Some(words) if !others.header.is_empty() => format!("{same}{}", others.boxed(Some((width, words)))),
            _ => self.records(),
        }
    }

    /// A line with the columns that are the same in all rows, `In all rows: node n1, attempt 1`, and the table without them. Neither empty
    /// cells nor the columns of a single row are named there.
    fn without_same_columns(&self) -> (String, Self) {
        // A row in bold says the same as another one.
        let is_same = |column: usize| {
            self.rows.len() > 1 && self.rows.iter().all(|row| plain(&row[column]) == plain(&self.rows[0][column]))
        };
        let (same, others): (Vec<usize>, Vec<usize>) = (0..self.header.len()).partition(|column| is_same(*column));
        let said = same.iter().map(|column| (&self.header[*column], plain(&self.rows[0][*column])));
        let said: Vec<String> =
            said.filter(|(_, cell)| !cell.is_empty()).map(|(name, cell)| format!("{name} {cell}")).collect();
        let said = if said.is_empty() { String::new() } else { format!("In all rows: {}\n", said.join(", ")) };
        let of = |row: &Vec<String>| others.iter().map(|column| row[*column].clone()).collect();
        let right = (0..others.len()).filter(|column| self.right.contains(&others[*column])).collect();
        (said, Self { header: of(&self.header), rows: self.rows.iter().map(of).collect(), right })
    }

    /// Each row as lines, `trial: lazy-r1`, without empty cells, and an empty line between two rows.
    fn records(&self) -> String {
        let record = |row: &Vec<String>| {
            let cells = self.header.iter().zip(row).map(|(name, cell)| (name, plain(cell)));
            let lines = cells.filter(|(_, cell)| !cell.is_empty()).map(|(name, cell)| format!("{name}: {cell}"));
            lines.collect::<Vec<_>>().join("\n")
        };
        self.rows.iter().map(record).collect::<Vec<_>>().join("\n\n")
    }

    /// Boxed table, of a given width with the longest words of its columns.
    fn boxed(&self, limits: Option<(usize, Vec<usize>)>) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header(&self.header);
        let wrap = limits.is_some();
        table.set_content_arrangement(if wrap { ContentArrangement::Dynamic } else { ContentArrangement::Disabled });
        for row in &self.rows {
            table.add_row(row.iter().map(|cell| match bold(cell) {
                Some(bold) => Cell::new(bold).add_attribute(Attribute::Bold),
                None => Cell::new(cell),
            }));
        }
        if let Some((width, words)) = limits {
            table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
            for (column, word) in words.into_iter().enumerate() {
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
    /// where there is no other way. `None` if its pieces would be shorter than [`MIN_PIECE`].
    fn longest_words(&self, width: usize) -> Option<Vec<usize>> {
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
        (MIN_PIECE.min(limit)..=limit).rev().map(at_most).find(fits)
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

/// The text of a cell in bold; `None` of other cells.
fn bold(cell: &str) -> Option<&str> {
    cell.strip_prefix("**").and_then(|cell| cell.strip_suffix("**"))
}

/// The text of a cell, without the asterisks of a bold one.
fn plain(cell: &str) -> &str {
    bold(cell).unwrap_or(cell)
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
    fn a_long_table_has_its_ends_and_its_first_bold_row() {
        let rows = |bold: usize, most: usize| {
            let mut table = Table::new(["n", "x"]);
            for n in 0..1050 {
                if n == bold { table.bold_row([n.to_string()]) } else { table.row([n.to_string()]) }
            }
            table.at_most(most).rows.into_iter().map(|row| row[0].clone()).collect::<Vec<_>>()
        };
        assert_eq!(rows(0, 4), ["**0**", "1", "… 1,046 more", "1048", "1049"]);
        assert_eq!(rows(2, 4), ["0", "1", "**2**", "… 1,045 more", "1048", "1049"]);
        assert_eq!(rows(5, 4), ["0", "1", "… 3 more", "**5**", "… 1,042 more", "1048", "1049"]);
        assert_eq!(rows(5, 1050).len(), 1050);
        assert_eq!(rows(0, 100).len(), 101);
    }

    #[test]
    fn words_are_cut_only_where_there_is_no_other_way() {
        let mut table = Table::new(["Trial", "it/s"]);
        table.bold_row(["lazy-r1-56abc695 (loader.workers=4)", "1.5"]);
        assert_eq!(table.longest_words(60), Some(vec![18, 4]));
        assert_eq!(table.longest_words(20), Some(vec![9, 4]));
        assert_eq!(table.longest_words(18), None);
    }

    #[test]
    fn where_words_would_be_cut_into_pieces_there_are_lists() {
        let mut table = Table::new(["trial", "state", "node", "reason", "samples/s"]).right([4]);
        table.bold_row(["lazy-r1-56abc695", "completed", "localhost", "", "1,234.5"]);
        table.row(["lazy-r2-0a1b2c3d", "completed", "localhost", "", "1,198.2"]);
        // Whole words.
        assert_eq!(table.for_width(None), table.for_width(Some(200)));
        assert!(table.for_width(Some(80)).starts_with('┌'), "{}", table.for_width(Some(80)));
        // The same in all rows stands above.
        let narrow = table.for_width(Some(45));
        assert!(narrow.starts_with("In all rows: state completed, node localhost\n┌"), "{narrow}");
        assert!(narrow.contains("lazy-r1-56abc695") && narrow.contains(" 1,198.2 │"), "{narrow}");
        // And where columns differ, each row is a list.
        table.row(["ids-r1-ffffffff", "failed", "n1", "out of memory", ""]);
        let list = "trial: ids-r1-ffffffff\nstate: failed\nnode: n1\nreason: out of memory";
        let lists = table.for_width(Some(45));
        assert!(
            lists.starts_with("trial: lazy-r1-56abc695\nstate: completed\nnode: localhost\nsamples/s: 1,234.5\n\n")
        );
        assert!(lists.ends_with(list), "{lists}");
    }
}
