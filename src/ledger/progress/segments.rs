use std::io::BufRead;

/// The longest piece of a line that is kept, bytes: no bar prints as much.
const LONGEST: usize = 1 << 16;

/// Call `each` for every piece of text between carriage returns and line ends, without escape codes, and with signs that are no
/// UTF-8 replaced. What is longer than a bar can be is cut. Memory is bounded, however long the log.
///
/// # Errors
/// A log that cannot be read.
pub(super) fn each_segment(mut log: impl BufRead, mut each: impl FnMut(&str)) -> std::io::Result<()> {
    let mut piece: Vec<u8> = Vec::new();
    let mut give = |piece: &mut Vec<u8>| {
        // Every form of a bar has its times in brackets.
        if piece.contains(&b'[') {
            each(&console::strip_ansi_codes(&String::from_utf8_lossy(piece)));
        }
        piece.clear();
    };
    loop {
        let bytes = log.fill_buf()?;
        if bytes.is_empty() {
            give(&mut piece);
            return Ok(());
        }
        let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let part = &bytes[..end.unwrap_or(bytes.len())];
        let room = LONGEST - piece.len();
        piece.extend_from_slice(&part[..part.len().min(room)]);
        let used = part.len() + usize::from(end.is_some());
        log.consume(used);
        if end.is_some() {
            give(&mut piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_clean_and_bounded() {
        let mut text = b"a [1]\r\x1b[A\x1b[32mb [2]\x1b[0m\nno brackets\n\xff[3]\n".to_vec();
        text.extend(vec![b'['; 3 * LONGEST]);
        let mut found = Vec::new();
        each_segment(std::io::BufReader::with_capacity(7, &text[..]), |piece| found.push(piece.to_owned())).unwrap();
        assert_eq!(found[..3], ["a [1]", "b [2]", "\u{fffd}[3]"]);
        assert_eq!((found.len(), found[3].len()), (4, LONGEST));
    }
}
