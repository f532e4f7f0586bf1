use super::layout::Leaf;
use super::levels;
use super::page::Pages;
use super::values::Values;
use super::work::{GroupWork, Segment, Work};

/// Columns that are turned into rows together: a cache line of each row.
const BLOCK: usize = 16;

/// Decode rows of a column for each gene: float32 `[rows, genes]` to `out`, by the pieces' places.
pub(super) fn decode(group: &GroupWork<'_>, leaves: &[Leaf], work: &mut Work, out: &mut [f32]) -> Result<(), String> {
    let (rows, genes) = (group.rows as usize, group.genes);
    for (block, leaves) in leaves.chunks(BLOCK).enumerate() {
        let mut columns = std::mem::take(&mut work.columns);
        columns.clear();
        columns.try_reserve_exact(leaves.len() * rows).map_err(|_| format!("there is no memory for {rows} rows"))?;
        for (i, leaf) in leaves.iter().enumerate() {
            let number = block * BLOCK + i;
            // One segment a column, in the order of the columns.
            let segment =
                group.segments.get(number).filter(|segment| segment.leaf == number).ok_or("a column is missing")?;
            let bytes = &group.bytes[segment.at..segment.at + segment.len];
            decode_column(segment, bytes, leaf, work, &mut columns, (i + 1) * rows)
                .map_err(|reason| format!("the column of gene {number}: {reason}"))?;
        }
        for piece in group.pieces {
            for i in 0..piece.rows {
                let (from, to) = ((piece.row + i) as usize, (piece.slot + i) as usize * genes + block * BLOCK);
                let out = out.get_mut(to..to + leaves.len()).ok_or("there is no room for a row")?;
                for (column, out) in out.iter_mut().enumerate() {
                    *out = columns[column * rows + from];
                }
            }
        }
        work.columns = columns;
    }
    Ok(())
}

/// Append all values of a column to `out`, which has `end` values then. Pages are not believed: `out` grows as far as
/// there are values.
fn decode_column(
    segment: &Segment,
    bytes: &[u8],
    leaf: &Leaf,
    work: &mut Work,
    out: &mut Vec<f32>,
    end: usize,
) -> Result<(), String> {
    let Work { unpacker, values: table, .. } = work;
    let mut has_dictionary = false;
    let mut pages = Pages::new(bytes);
    while let Some((header, body)) = pages.next_data(|header, body| {
        has_dictionary = true;
        unpacker.dictionary(header, body, leaf.numeric, segment.compression, table)
    })? {
        let count = header.kind.data_values();
        if count > end - out.len() {
            return Err("it has more values than its row group has rows".to_owned());
        }
        let page = unpacker.data(&header, body, leaf, segment.compression)?;
        if leaf.max_definition > 0 && !levels::all_defined(page.definition, leaf.max_definition, count)? {
            return Err("values are missing (null)".to_owned());
        }
        let dictionary = has_dictionary.then_some(table.as_slice());
        Values::new(page.encoding, leaf.numeric, page.values, count, dictionary)?.append(count, out)?;
    }
    if out.len() < end {
        Err(format!("it has {} values fewer than its row group has rows", end - out.len()))
    } else {
        Ok(())
    }
}
