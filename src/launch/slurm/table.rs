//! Tables that Slurm's commands print with `|` between the columns: `squeue --format=%i|%T`, `sacct --parsable2`.

/// The rows below a heading, with their cells in the order that was asked for.
pub(super) struct Rows<'a> {
    lines: std::str::Lines<'a>,
    places: Vec<usize>,
}

/// The rows of `text` under the first line that names all `columns`; none without one, since an answer without its heading
/// says nothing, least of all that there are no rows. Above the heading a cluster may be named (`CLUSTER: east`).
///
/// A name of a user's may hold a `|`. Asked for as the last column, it cannot move the others.
pub(super) fn rows<'a>(text: &'a str, columns: &[&str]) -> Option<Rows<'a>> {
    let mut lines = text.lines();
    let places = lines.find_map(|line| {
        let names: Vec<&str> = line.split('|').map(str::trim).collect();
        columns.iter().map(|column| names.iter().position(|name| name == column)).collect::<Option<Vec<_>>>()
    })?;
    Some(Rows { lines, places })
}

impl<'a> Iterator for Rows<'a> {
    type Item = Vec<&'a str>;

    fn next(&mut self) -> Option<Self::Item> {
        // A line that is cut off, or is not of the table, is left out.
        self.lines.find_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            self.places.iter().map(|place| cells.get(*place).copied()).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let text = "CLUSTER: east\nA|B|C\n1|2|3\ncut|off\n4|5|6|7\n";
        let found: Vec<_> = rows(text, &["C", "A"]).unwrap().collect();
        assert_eq!(found, [["3", "1"], ["6", "4"]]);
        assert!(rows(text, &["D"]).is_none());
        assert!(rows("", &["A"]).is_none());
    }
}
