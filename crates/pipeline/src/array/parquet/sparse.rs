use super::layout::Leaf;
use super::levels;
use super::numeric::Element;
use super::page::{Pages, Unpacker};
use super::page_header::PageKind;
use super::values::Values;
use super::work::{GroupWork, Work};
use crate::array::CsrRows;

/// Decode rows of two list columns: append them to `out` in the order of the pieces.
pub(super) fn decode(
    group: &GroupWork<'_>,
    indices: &Leaf,
    values: &Leaf,
    work: &mut Work,
    out: &mut CsrRows,
) -> Result<(), String> {
    let first_row = out.len();
    let first = out.indices.len();
    let Work { unpacker, values: table, indices: index_table, lists, .. } = work;
    let (mut lens, mut value_lens) = (Vec::new(), Vec::new());
    decode_lists(group, 0, indices, unpacker, lists, index_table, &mut out.indices, &mut lens)?;
    decode_lists(group, 1, values, unpacker, lists, table, &mut out.data, &mut value_lens)?;
    if let Some(row) = (0..lens.len().max(value_lens.len())).find(|row| lens.get(*row) != value_lens.get(*row)) {
        return Err(format!("a row has {:?} numbers of genes and {:?} values", lens.get(row), value_lens.get(row)));
    }
    let mut end = first;
    for len in lens {
        let start = end;
        end += len as usize;
        check_columns(&out.indices[start..end], group.genes)?;
        out.indptr.push(end as u64);
    }
    debug_assert_eq!(out.len() - first_row, group.pieces.iter().map(|piece| piece.rows as usize).sum::<usize>());
    Ok(())
}

/// Numbers of genes ascend and are less than `genes`.
fn check_columns(columns: &[i32], genes: usize) -> Result<(), String> {
    let (Some(first), Some(last)) = (columns.first(), columns.last()) else { return Ok(()) };
    // No early end: this way it takes eight at a time.
    let ascend = columns.iter().zip(&columns[1..]).fold(true, |ascend, (a, b)| ascend & (a < b));
    if ascend && *first >= 0 && (*last as usize) < genes {
        return Ok(());
    }
    let outside = columns.iter().find(|column| usize::try_from(**column).map_or(true, |column| column >= genes));
    Err(match outside {
        Some(column) => format!("a row has a value for gene {column}, there are {genes}"),
        None => "numbers of genes do not ascend within a row".to_owned(),
    })
}

/// Append the values of the rows that are wanted to `out`, and how many each row has to `lens`.
#[expect(clippy::too_many_arguments, reason = "parts of the memory of one decoder, of two types")]
fn decode_lists<T: Element>(
    group: &GroupWork<'_>,
    number: usize,
    leaf: &Leaf,
    unpacker: &mut Unpacker,
    lists: &mut levels::Lists,
    table: &mut Vec<T>,
    out: &mut Vec<T>,
    lens: &mut Vec<u32>,
) -> Result<(), String> {
    let wanted: u64 = group.pieces.iter().map(|piece| piece.rows).sum();
    let mut has_dictionary = false;
    let mut next_row = 0;
    // The row before `next_row` is wanted, and has gone to `out` last.
    let mut is_open = false;
    for (segment, bytes) in group.segments(number) {
        if segment.first_row != next_row {
            next_row = segment.first_row;
            is_open = false;
        }
        let mut pages = Pages::new(bytes);
        while let Some((header, body)) = pages.next()? {
            let count = match header.kind {
                PageKind::Dictionary { .. } => {
                    unpacker.dictionary(&header, body, leaf.numeric, segment.compression, table)?;
                    has_dictionary = true;
                    continue;
                }
                PageKind::Other => continue,
                kind => kind.data_values(),
            };
            let page = unpacker.data(&header, body, leaf, segment.compression)?;
            levels::lists(page.repetition, page.definition, count, leaf.max_definition, leaf.empty, lists)?;
            let dictionary = has_dictionary.then_some(table.as_slice());
            let mut values = Values::new(page.encoding, leaf.numeric, page.values, count, dictionary)?;
            if lists.lead > 0 && is_open {
                append(&mut values, lists.lead, out)?;
                if let Some(len) = lens.last_mut() {
                    *len += lists.lead as u32;
                }
            } else {
                values.skip(lists.lead)?;
            }
            let end = next_row + lists.lens.len() as u64;
            if end > group.rows {
                return Err(format!("there are more lists than {} rows", group.rows));
            }
            let from = group.pieces.partition_point(|piece| piece.row + piece.rows <= next_row);
            let mut at = 0;
            for piece in group.pieces[from..].iter().take_while(|piece| piece.row < end) {
                let start = (piece.row.max(next_row) - next_row) as usize;
                let stop = ((piece.row + piece.rows).min(end) - next_row) as usize;
                let sum = |lens: &[u32]| lens.iter().map(|len| *len as usize).sum::<usize>();
                values.skip(sum(&lists.lens[at..start]))?;
                append(&mut values, sum(&lists.lens[start..stop]), out)?;
                lens.extend(&lists.lens[start..stop]);
                at = stop;
            }
            if !lists.lens.is_empty() {
                is_open = at == lists.lens.len();
            }
            next_row = end;
        }
    }
    let rows = lens.len() as u64;
    if rows != wanted { Err(format!("{} rows are missing at the end of a row group", wanted - rows)) } else { Ok(()) }
}

fn append<T: Element>(values: &mut Values<'_, T>, count: usize, out: &mut Vec<T>) -> Result<(), &'static str> {
    let start = out.len();
    out.resize(start + count, T::default());
    values.read(&mut out[start..])
}
