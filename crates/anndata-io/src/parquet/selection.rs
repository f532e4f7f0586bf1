use std::ops::Range;

use crate::Wanted;

/// Rows of a row group that lie together and go to places that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// First row, counted within its row group.
    pub(super) row: u64,
    /// Number of rows.
    pub(super) rows: u64,
    /// Which of the rows that were asked for the first one is.
    pub(super) slot: u64,
}

/// Rows that are wanted, in the order of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// Row groups, ascending, and which of the pieces are of them.
    pub(super) groups: Vec<(usize, Range<usize>)>,
    /// Of each row group ascending; no row comes twice.
    pub(super) pieces: Vec<Piece>,
    /// Places whose row was wanted more than once: the one in a piece, and the other.
    pub(super) copies: Vec<(u64, u64)>,
    /// Number of rows wanted.
    pub(super) rows: u64,
}

impl Selection {
    /// Find the row groups of `wanted`; `starts` are the first rows of all row groups and the end of the last.
    ///
    /// # Errors
    /// A row that is beyond the end.
    pub(super) fn of(wanted: &Wanted<'_>, starts: &[u64]) -> Result<Self, u64> {
        let len = starts.last().copied().unwrap_or(0);
        let mut selection = Self::default();
        match wanted {
            Wanted::Range(range) => {
                if range.end > len {
                    return Err(range.end.saturating_sub(1).max(range.start));
                }
                let mut row = range.start;
                while row < range.end {
                    let group = starts.partition_point(|start| *start <= row) - 1;
                    let rows = starts[group + 1].min(range.end) - row;
                    selection.push(group, Piece { row: row - starts[group], rows, slot: row - range.start });
                    row += rows;
                }
                selection.rows = range.end.saturating_sub(range.start);
            }
            Wanted::Rows(rows) => {
                if let Some(beyond) = rows.iter().find(|row| **row >= len) {
                    return Err(*beyond);
                }
                let mut order: Vec<(u64, u64)> = rows.iter().zip(0..).map(|(row, slot)| (*row, slot)).collect();
                order.sort_unstable();
                let (mut group, mut last) = (0, None);
                for (row, slot) in order {
                    match last {
                        Some((before, from)) if before == row => selection.copies.push((from, slot)),
                        _ => {
                            if starts[group + 1] <= row {
                                group = starts.partition_point(|start| *start <= row) - 1;
                            }
                            selection.push(group, Piece { row: row - starts[group], rows: 1, slot });
                            last = Some((row, slot));
                        }
                    }
                }
                selection.rows = rows.len() as u64;
            }
        }
        Ok(selection)
    }

    /// Append a piece, or make the last one longer by it.
    fn push(&mut self, group: usize, piece: Piece) {
        match self.groups.last_mut() {
            Some((of, pieces)) if *of == group => {
                if let Some(last) = self.pieces.last_mut()
                    && last.row + last.rows == piece.row
                    && last.slot + last.rows == piece.slot
                {
                    last.rows += piece.rows;
                    return;
                }
                pieces.end += 1;
            }
            _ => self.groups.push((group, self.pieces.len()..self.pieces.len() + 1)),
        }
        self.pieces.push(piece);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rows of the collection by place, as the selection says.
    fn placed(selection: &Selection, starts: &[u64]) -> Vec<Option<u64>> {
        let mut places = vec![None; selection.rows as usize];
        let mut put = |slot: u64, row| assert_eq!(places[slot as usize].replace(row), None);
        for (group, pieces) in &selection.groups {
            for piece in &selection.pieces[pieces.clone()] {
                assert!(starts[*group] + piece.row + piece.rows <= starts[group + 1]);
                (0..piece.rows).for_each(|i| put(piece.slot + i, starts[*group] + piece.row + i));
            }
        }
        for (from, to) in &selection.copies {
            assert_eq!(places[*to as usize], None);
            places[*to as usize] = places[*from as usize];
        }
        places
    }

    proptest! {
        #[test]
        fn every_row_gets_to_its_place(
            groups in prop::collection::vec(0..5_u64, 1..8),
            picks in prop::collection::vec(any::<u64>(), 0..40),
        ) {
            let ends = groups.iter().scan(0, |end, n| {
                *end += n;
                Some(*end)
            });
            let starts: Vec<u64> = std::iter::once(0).chain(ends).collect();
            let len = *starts.last().unwrap();
            prop_assume!(len > 0);
            let rows: Vec<u64> = picks.iter().map(|pick| pick % len).collect();
            let selection = Selection::of(&Wanted::Rows(&rows), &starts).unwrap();
            prop_assert_eq!(placed(&selection, &starts), rows.iter().copied().map(Some).collect::<Vec<_>>());
            let range = rows.first().copied().unwrap_or(0)..rows.last().map_or(len, |last| last + 1);
            let selection = Selection::of(&Wanted::Range(range.clone()), &starts).unwrap();
            prop_assert_eq!(placed(&selection, &starts), range.map(Some).collect::<Vec<_>>());
        }
    }

    #[test]
    fn rows_beyond_the_end_are_refused() {
        assert_eq!(Selection::of(&Wanted::Rows(&[1, 7]), &[0, 3, 7]), Err(7));
        assert_eq!(Selection::of(&Wanted::Range(5..8), &[0, 3, 7]), Err(7));
        assert_eq!(Selection::of(&Wanted::Rows(&[0]), &[0]), Err(0));
    }
}
