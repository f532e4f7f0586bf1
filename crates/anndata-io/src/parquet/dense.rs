use super::layout::Leaf;
use super::levels::{self, Ragged};
use super::page::Pages;
use super::values::Values;
use super::work::{GroupWork, Work};

/// Values that are decoded at once, 64 KiB: memory that is cleared for them is still in the cache when they are
/// written.
const AT_ONCE: usize = 1 << 14;

/// Decode rows of a list column of equal lengths: float32 `[rows, genes]` to `out`, by the pieces' places, the first of
/// which is at `base`. `out` grows as far as it must.
///
/// Rows are `genes` values long, so the place of a value is known without its levels: they are checked run by run, and
/// values go straight from their page to their row.
pub(super) fn decode(
    group: &GroupWork<'_>,
    leaf: &Leaf,
    work: &mut Work,
    out: &mut Vec<f32>,
    base: usize,
) -> Result<(), String> {
    let genes = group.genes as u64;
    let total = group.rows * genes;
    let Work { unpacker, values: table, .. } = work;
    let mut has_dictionary = false;
    let mut missing: u64 = group.pieces.iter().map(|piece| piece.rows * genes).sum();
    for (segment, bytes) in group.segments(0) {
        let mut first = segment.first_value;
        let mut pages = Pages::new(bytes);
        while let Some((header, body)) = pages.next_data(|header, body| {
            has_dictionary = true;
            unpacker.dictionary(header, body, leaf.numeric, segment.compression, table)
        })? {
            let count = header.kind.data_values();
            let end = first + count as u64;
            if end > total {
                return Err(format!("there are more values than {} rows of {genes} have", group.rows));
            }
            // Pieces ascend: those of this page are neighbours.
            let from = group.pieces.partition_point(|piece| (piece.row + piece.rows) * genes <= first);
            let mut at = first;
            let mut pieces = group.pieces[from..].iter().take_while(|piece| piece.row * genes < end).peekable();
            if pieces.peek().is_none() {
                first = end;
                continue;
            }
            let page = unpacker.data(&header, body, leaf, segment.compression)?;
            levels::check_rows(page.repetition, first, count, genes).map_err(|e| match e {
                Ragged::Damaged(reason) => reason.to_owned(),
                Ragged::Row(row) => {
                    format!("row {row} of its row group has not {genes} values: rows are of different lengths")
                }
            })?;
            if !levels::all_defined(page.definition, leaf.max_definition, count)? {
                return Err("values are missing (null)".to_owned());
            }
            let dictionary = has_dictionary.then_some(table.as_slice());
            let mut values = Values::new(page.encoding, leaf.numeric, page.values, count, dictionary)?;
            for piece in pieces {
                let start = (piece.row * genes).max(first);
                let stop = ((piece.row + piece.rows) * genes).min(end);
                let to = base + (piece.slot * genes + (start - piece.row * genes)) as usize;
                let len = (stop - start) as usize;
                values.skip((start - at) as usize)?;
                for to in (to..to + len).step_by(AT_ONCE).map(|first| first..(first + AT_ONCE).min(to + len)) {
                    if out.len() < to.end {
                        out.resize(to.end, 0.0);
                    }
                    values.read(&mut out[to])?;
                }
                at = stop;
                missing -= len as u64;
            }
            first = end;
        }
        if segment.end_value.is_some_and(|end| end != first) {
            return Err("a page has other rows than the page index says".to_owned());
        }
    }
    if missing > 0 { Err(format!("{missing} values are missing at the end of a row group")) } else { Ok(()) }
}
