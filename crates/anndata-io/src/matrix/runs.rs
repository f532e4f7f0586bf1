use super::chunk_table::ChunkTable;
use super::stored::{Grid, Run};

/// Chunks of one long row that lie behind each other are one run.
pub(crate) fn runs(table: &ChunkTable, grid: &Grid, size: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut end = 0;
    let mut push = |start: u64, run: Run| match runs.last_mut() {
        Some(last) if last.zero == run.zero && last.end == start => last.end = run.end,
        _ => runs.push(run),
    };
    for (number, chunk) in table.iter() {
        let start = number * grid.chunk_columns;
        if start > end {
            push(end, Run { end: start, zero: None });
        }
        let next = (start + grid.chunk_columns).min(grid.columns);
        // Both are less than 2^63: offsets are inside the file, and the whole array has fewer bytes.
        push(start, Run { end: next, zero: Some(chunk.offset as i64 - (start * size) as i64) });
        end = next;
    }
    if end < grid.columns {
        push(end, Run { end: grid.columns, zero: None });
    }
    runs
}
