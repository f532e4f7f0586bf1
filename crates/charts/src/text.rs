/// Width of words in points, from the widths of DejaVu Sans: the widest of the typefaces that a picture asks for.
pub(super) fn width(words: &str, size: f64) -> f64 {
    words.chars().map(advance).sum::<f64>() * size
}

/// In units of the type size.
fn advance(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '\'' | '|' => 0.28,
        ' ' | ',' | '.' | ':' | ';' | 'I' => 0.32,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' => 0.39,
        '¹' | '²' | '³' | '⁰'..='⁻' => 0.40,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '=' | '+' | '−' | '×' | '→' | '≥' | '≤' => 0.90,
        'A'..='Z' => 0.71,
        _ if c as u32 >= 0x2e80 => 1.0,
        _ => 0.62,
    }
}

/// Words in lines no wider than `most` points, broken at spaces, `_`, `/` and `,`, and at `=` where that does not do; none
/// where a piece alone is wider.
pub(super) fn wrap(words: &str, size: f64, most: f64) -> Option<Vec<String>> {
    broken(words, &[' ', '_', '/', ','], size, most).or_else(|| broken(words, &[' ', '_', '/', ',', '='], size, most))
}

fn broken(words: &str, at: &[char], size: f64, most: f64) -> Option<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    for piece in words.split_inclusive(at) {
        if width(piece.trim(), size) > most {
            return None;
        }
        match lines.last_mut() {
            Some(line) if width(format!("{line}{piece}").trim(), size) <= most => line.push_str(piece),
            _ => lines.push(piece.to_owned()),
        }
    }
    lines.iter_mut().for_each(|line| *line = line.trim().to_owned());
    Some(lines)
}

/// Words no wider than `most` points, the end left out where they are.
pub(super) fn shorten(words: &str, size: f64, most: f64) -> String {
    if width(words, size) <= most {
        return words.to_owned();
    }
    let mut short = String::new();
    for c in words.chars() {
        if width(&short, size) + advance(c) * size > most - size {
            break;
        }
        short.push(c);
    }
    format!("{}…", short.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_broken_or_shortened() {
        let name = "lazy launch.ranks=2";
        assert_eq!(wrap(name, 12.0, 400.0).unwrap(), [name]);
        assert_eq!(wrap(name, 12.0, 120.0).unwrap(), ["lazy", "launch.ranks=2"]);
        assert_eq!(wrap(name, 12.0, 95.0).unwrap(), ["lazy", "launch.ranks=", "2"]);
        assert_eq!(wrap(name, 12.0, 40.0), None);
        assert_eq!(shorten(name, 12.0, 400.0), name);
        assert_eq!(shorten(name, 12.0, 60.0), "lazy lau…");
    }
}
