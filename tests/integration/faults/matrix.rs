//! The table: a row for each fault. tests/faults/run prints it; docs/guide/faults.md shows one.

use std::path::Path;

/// Every fault, in the order of the table, and the test that makes it.
pub const FAULTS: [(&str, &str); 16] = [
    ("a rank crashes", "ranks"),
    ("a rank hangs", "ranks"),
    ("`scancel`", "tasks"),
    ("the time limit", "tasks"),
    ("requeue, three times", "tasks"),
    ("preemption", "tasks"),
    ("the controller is killed and started again", "nodes"),
    ("a node is set down", "nodes"),
    ("a node is killed", "nodes"),
    ("a node is killed, no checkpoints", "nodes"),
    ("the network of a node is cut, its ranks go on", "networks"),
    ("the network between the ranks is cut", "networks"),
    ("the disk of the ledger is full", "ledger"),
    ("the ledger cannot be written", "ledger"),
    ("out of memory", "memory"),
    ("the accounting is down", "accounting"),
];

/// What befell a job, and what became of it.
#[derive(Default)]
pub struct Row {
    pub fault: &'static str,
    /// Slurm's word.
    pub slurm: String,
    /// What `status` said while the fault lasted, or after it, before anything was done about it.
    pub status: String,
    /// What finished the job.
    pub cure: String,
    /// Steps of rank 0 recorded when the fault came, and after it.
    pub first: usize,
    pub later: usize,
    pub lost: usize,
    pub twice: usize,
}

impl Row {
    /// Add what was seen, and print the row for tests/faults/run.
    pub fn seen(self, slurm: &str, status: impl ToString, cure: impl ToString) {
        let row = Self { slurm: slurm.to_owned(), status: status.to_string(), cure: cure.to_string(), ..self };
        let test = FAULTS.iter().find(|(fault, _)| *fault == row.fault).expect("a fault of the table").1;
        // Where a test had its ledger is of no interest.
        let word = |word: &str| match word.strip_prefix('/').and_then(|path| path.rsplit_once('/')) {
            Some((_, name)) => format!("…/{name}"),
            None => word.replace('|', "\\|"),
        };
        let cell = |text: &str| text.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
        println!(
            "FAULT | {} | {} | {} | {} | {} / {} | {} | {} | `{test}` |",
            row.fault,
            cell(&row.slurm),
            cell(&row.status),
            cell(&row.cure),
            row.first,
            row.later,
            row.lost,
            row.twice
        );
    }
}

/// The rows of docs/guide/faults.md are those of the matrix, in its order.
#[test]
fn the_documented_rows_are_those_of_the_matrix() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/faults.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("<!-- faults -->").expect("a begin");
    let (table, _) = table.split_once("<!-- /faults -->").expect("an end");
    let rows: Vec<(&str, String)> = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            assert_eq!((cells.len(), &cells[5..7]), (8, &["0", "0"][..]), "{line}");
            (cells[0], cells[7].trim_matches(|c: char| "`| ".contains(c)).to_owned())
        })
        .collect();
    let expected: Vec<(&str, String)> = FAULTS.iter().map(|(fault, test)| (*fault, (*test).to_owned())).collect();
    assert_eq!(rows, expected, "UPDATE_DOCS=1 tests/faults/run writes the table");
}
