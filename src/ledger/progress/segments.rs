use std::io::BufRead;

/// The longest piece of a line that is held, bytes: no bar prints as much.
const LONGEST: usize = 1 << 16;

/// Call `each` for every piece of text between carriage returns and line ends, without escape codes, and with signs that are no
/// UTF-8 replaced. What is longer than a bar can be is given in parts, cut behind a bar where there is one, and never within a
/// rate. Memory is bounded, however long the log.
///
/// # Errors
/// A log that cannot be read.
pub(super) fn each_segment(mut log: impl BufRead, mut each: impl FnMut(&str)) -> std::io::Result<()> {
    let mut piece: Vec<u8> = Vec::new();
    let mut give = |piece: &[u8]| {
        // Every form of a bar has its times in brackets; the published pattern also finds rates outside of bars.
        if piece.contains(&b'[') || piece.windows(4).any(|part| part == b"it/s") {
            each(&console::strip_ansi_codes(&String::from_utf8_lossy(piece)));
        }
    };
    loop {
        let bytes = log.fill_buf()?;
        if bytes.is_empty() {
            give(&piece);
            return Ok(());
        }
        let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let part = &bytes[..end.unwrap_or(bytes.len())];
        let room = LONGEST - piece.len();
        if part.len() > room {
            piece.extend_from_slice(&part[..room]);
            log.consume(room);
            let cut = cut(&piece);
            give(&piece[..cut]);
            piece.drain(..cut);
            continue;
        }
        piece.extend_from_slice(part);
        let used = part.len() + usize::from(end.is_some());
        log.consume(used);
        if end.is_some() {
            give(&piece);
            piece.clear();
        }
    }
}

/// Where to cut a piece that is too long: behind a bar, else behind what is no part of a rate, else at its end.
fn cut(piece: &[u8]) -> usize {
    let bar = piece.iter().rposition(|byte| *byte == b']');
    let other = || piece.iter().rposition(|byte| !b"0123456789.it/s".contains(byte));
    bar.filter(|at| *at > piece.len() / 2).or_else(other).map_or(piece.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_clean_and_bounded() {
        let mut text = b"a [1]\r\x1b[A\x1b[32mb [2]\x1b[0m\nno brackets\n\xff[3]\n7.5it/s\n".to_vec();
        text.extend(vec![b'['; 3 * LONGEST]);
        let mut found = Vec::new();
        each_segment(std::io::BufReader::with_capacity(7, &text[..]), |piece| found.push(piece.to_owned())).unwrap();
        assert_eq!(found[..4], ["a [1]", "b [2]", "\u{fffd}[3]", "7.5it/s"]);
        assert!(found[4..].iter().all(|piece| piece.len() <= LONGEST));
        assert_eq!(found[4..].concat().len(), 3 * LONGEST);
    }

    #[test]
    fn no_rate_is_cut_in_two() {
        for ending in [" ", "]"] {
            let mut text = b"x".to_vec();
            text.extend(format!("1.25it/s{ending}").repeat(LONGEST / 4).bytes());
            let mut rates = 0;
            each_segment(&text[..], |piece| {
                assert!(piece.ends_with(ending) && piece.len() <= LONGEST);
                rates += piece.matches("1.25it/s").count();
            })
            .unwrap();
            assert_eq!(rates, LONGEST / 4);
        }
    }
}
