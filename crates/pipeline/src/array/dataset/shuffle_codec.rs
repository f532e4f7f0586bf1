use std::collections::HashMap;

use crate::array::write::{Cells, Column, ColumnKind, Frame};

/// Rows of the obs of one file as bytes, in the classes of all files.
pub(super) struct Codec<'a> {
    frame: &'a Frame,
    columns: &'a [Column],
    /// Of each categorical column: its own classes as those of all files.
    classes: Vec<Vec<i32>>,
}

impl<'a> Codec<'a> {
    /// For rows of `frame`, whose columns are `own`, as `columns`.
    pub(super) fn new(columns: &'a [Column], own: &[Column], frame: &'a Frame) -> Self {
        let classes = columns.iter().zip(own).map(|(all, own)| match (&all.kind, &own.kind) {
            (ColumnKind::Categorical { categories: all, .. }, ColumnKind::Categorical { categories: own, .. }) => {
                let places: HashMap<&String, i32> = all.iter().zip(0..).collect();
                own.iter().map(|name| places.get(name).copied().unwrap_or(-1)).collect()
            }
            _ => Vec::new(),
        });
        Self { frame, columns, classes: classes.collect() }
    }

    /// Append a row.
    pub(super) fn encode(&self, row: usize, out: &mut Vec<u8>) {
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend((text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        text(out, &self.frame.index[row]);
        for ((cells, column), classes) in self.frame.columns.iter().zip(self.columns).zip(&self.classes) {
            match cells {
                Cells::Codes(values) => {
                    let code = usize::try_from(values[row]).map_or(-1, |code| classes[code]);
                    out.extend(code.to_le_bytes());
                }
                Cells::Strings(values) => text(out, &values[row]),
                Cells::Float64(values) => out.extend(values[row].to_le_bytes()),
                Cells::Float32(values) => out.extend(values[row].to_le_bytes()),
                Cells::Int64(values) => {
                    if column.kind == ColumnKind::NullableInt64 {
                        out.push(1);
                    }
                    out.extend(values[row].to_le_bytes());
                }
                Cells::NullableInt64(values) => {
                    out.push(u8::from(values[row].is_some()));
                    out.extend(values[row].unwrap_or_default().to_le_bytes());
                }
                Cells::Bool(values) => out.push(u8::from(values[row])),
            }
        }
    }
}

/// Append the row that [`Codec::encode`] made of it; `None` if it is none.
pub(super) fn decode(mut bytes: &[u8], frame: &mut Frame) -> Option<()> {
    fn take<'b, const N: usize>(bytes: &mut &'b [u8]) -> Option<&'b [u8; N]> {
        let (head, rest) = bytes.split_first_chunk::<N>()?;
        *bytes = rest;
        Some(head)
    }
    fn text(bytes: &mut &[u8]) -> Option<String> {
        let length = u32::from_le_bytes(*take(bytes)?) as usize;
        let (head, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        String::from_utf8(head.to_vec()).ok()
    }
    let bytes = &mut bytes;
    frame.index.push(text(bytes)?);
    for cells in &mut frame.columns {
        match cells {
            Cells::Codes(values) => values.push(i32::from_le_bytes(*take(bytes)?)),
            Cells::Strings(values) => values.push(text(bytes)?),
            Cells::Float64(values) => values.push(f64::from_le_bytes(*take(bytes)?)),
            Cells::Float32(values) => values.push(f32::from_le_bytes(*take(bytes)?)),
            Cells::Int64(values) => values.push(i64::from_le_bytes(*take(bytes)?)),
            Cells::NullableInt64(values) => {
                let [known] = *take(bytes)?;
                let value = i64::from_le_bytes(*take(bytes)?);
                values.push((known == 1).then_some(value));
            }
            Cells::Bool(values) => values.push(take::<1>(bytes)?[0] == 1),
        }
    }
    bytes.is_empty().then_some(())
}
