use super::layout::Leaf;
use super::levels::{self, Most};
use super::numeric::Element;
use super::page::{Pages, Unpacker};
use super::values::Values;
use super::work::{GroupWork, Work};
use crate::CsrRows;

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
        while let Some((header, body)) = pages.next_data(|header, body| {
            has_dictionary = true;
            unpacker.dictionary(header, body, leaf.numeric, segment.compression, table)
        })? {
            let count = header.kind.data_values();
            let most = Most { rows: group.rows, begun: next_row, genes: group.genes, values: segment.values };
            most.check(count)?;
            let page = unpacker.data(&header, body, leaf, segment.compression)?;
            levels::lists(page.repetition, page.definition, count, leaf, most, lists)?;
            let dictionary = has_dictionary.then_some(table.as_slice());
            let mut values = Values::new(page.encoding, leaf.numeric, page.values, count, dictionary)?;
            if lists.lead > 0 && is_open {
                if let Some(len) = lens.last_mut() {
                    if *len as usize + lists.lead > group.genes {
                        return Err(levels::TOO_LONG.to_owned());
                    }
                    *len += lists.lead as u32;
                }
                values.append(lists.lead, out)?;
            } else {
                values.skip(lists.lead)?;
            }
            let end = next_row + lists.lens.len() as u64;
            let from = group.pieces.partition_point(|piece| piece.row + piece.rows <= next_row);
            let mut at = 0;
            for piece in group.pieces[from..].iter().take_while(|piece| piece.row < end) {
                let start = (piece.row.max(next_row) - next_row) as usize;
                let stop = ((piece.row + piece.rows).min(end) - next_row) as usize;
                let sum = |lens: &[u32]| lens.iter().map(|len| *len as usize).sum::<usize>();
                values.skip(sum(&lists.lens[at..start]))?;
                values.append(sum(&lists.lens[start..stop]), out)?;
                lens.extend(&lists.lens[start..stop]);
                at = stop;
            }
            if !lists.lens.is_empty() {
                is_open = at == lists.lens.len();
            }
            next_row = end;
        }
        if segment.end_row.is_some_and(|end| end != next_row) {
            return Err("a page has other rows than the page index, or its row group, says".to_owned());
        }
    }
    let rows = lens.len() as u64;
    if rows != wanted { Err(format!("{} rows are missing at the end of a row group", wanted - rows)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use parquet::basic::Compression;

    use super::*;
    use crate::parquet::numeric::Numeric;
    use crate::parquet::selection::Piece;
    use crate::parquet::work::Segment;

    /// An unsigned number as runs and headers have it.
    fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value > 0x7f {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    /// The next field of a header.
    fn field(value: u64) -> Vec<u8> {
        [vec![0x15], varint(value * 2)].concat()
    }

    /// A run of equal values of one byte, or of none.
    fn run(value: &[u8], count: u64) -> Vec<u8> {
        [varint(count << 1), value.to_vec()].concat()
    }

    /// A dictionary of the value 0, and a page that says that it has `count` of it.
    fn pages(repetition: &[u8], count: u64) -> Vec<u8> {
        let dictionary = [field(2), field(4), field(4), vec![0x4c], field(1), field(0), vec![0, 0], vec![0; 4]];
        let (definition, values) = (run(&[1], count), [vec![0], run(&[], count)].concat());
        let body = [repetition, &definition, &values].concat();
        let len = body.len() as u64;
        let counts = [field(count), field(0), field(1), field(8)].concat();
        let lens = [field(definition.len() as u64), field(repetition.len() as u64)].concat();
        let page = [field(3), field(len), field(len), vec![0x5c], counts, lens, vec![0x12, 0, 0], body];
        [dictionary.concat(), page.concat()].concat()
    }

    /// Decode a row group of `rows` rows that has such pages in both columns, and `claimed` values as the footer says.
    fn decoded(repetition: &[u8], count: u64, rows: u64, claimed: u64) -> (Result<(), String>, CsrRows, u64) {
        let bytes = pages(repetition, count);
        let segment = |leaf| Segment {
            offset: 0,
            len: bytes.len(),
            at: 0,
            first_row: 0,
            first_value: 0,
            end_row: Some(rows),
            end_value: None,
            leaf,
            group: 0,
            values: claimed,
            compression: Compression::UNCOMPRESSED,
        };
        let pieces = [Piece { row: 0, rows, slot: 0 }];
        let segments = [segment(0), segment(1)];
        let group = GroupWork { rows, genes: 1 << 20, pieces: &pieces, segments: &segments, bytes: &bytes };
        let leaf = |numeric| Leaf { column: 0, numeric, max_definition: 1, max_repetition: 1, empty: 0 };
        let (mut work, mut out) = (Work::new(), CsrRows::default());
        let result = decode(&group, &leaf(Numeric::I32), &leaf(Numeric::F32), &mut work, &mut out);
        (result, out, work.bytes())
    }

    #[test]
    fn no_room_is_made_for_more_values_than_there_can_be() {
        // Three rows of the gene 0.
        let (result, rows, _) = decoded(&run(&[0], 3), 3, 3, 3);
        assert_eq!((result, rows.indptr, rows.data), (Ok(()), vec![0, 1, 2, 3], vec![0.0; 3]));

        let huge = (1 << 30) - 1;
        let one_row = [run(&[0], 1), run(&[1], huge - 1)].concat();
        for (repetition, rows, claimed, reason) in [
            (run(&[0], huge), 3, u64::MAX, "there can be 3145728"),
            (run(&[0], huge), 1 << 20, 17, "there can be 17"),
            (run(&[0], huge), 1 << 20, u64::MAX, "more lists than rows"),
            (one_row, 1 << 20, u64::MAX, "more values than there are genes"),
        ] {
            let (result, out, room) = decoded(&repetition, huge, rows, claimed);
            let found = result.unwrap_err();
            assert!(found.contains(reason), "{found}");
            assert!(room < 1 << 20 && out.capacity_bytes() < 1 << 20, "{reason}: {room} {}", out.capacity_bytes());
        }
    }
}
