use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// `Epoch 0:  10%|█  | 29/286 [00:25<03:41, 1.16it/s, v_num=3]`, as tqdm writes it
/// (<https://github.com/tqdm/tqdm/blob/master/tqdm/std.py>, `format_meter`); a bar without a known end has no percentage and
/// a `?`, and one without a bar at all no `<`.
static PRINT: LazyLock<Regex> = LazyLock::new(|| {
    let number = r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?";
    let time = r"(?:[0-9]+:)?[0-9]+:[0-9]{2}";
    let with_bar =
        format!(r"(?:[0-9]{{1,3}}%)?\|[^|]*\|\s*(?P<n>{number})(?P<si>[kMGTPEZY]?)/(?:\?|{number}[kMGTPEZY]?)[^\[\]]*");
    let without = format!(r"(?P<m>{number})(?P<sj>[kMGTPEZY]?)[^\s\[\]|0-9]+\s");
    let rate = format!(r"(?:,\s*(?:\?|(?P<rate>{number}))(?P<unit>[^\s,\]]*))?");
    let whole = format!(r"(?P<name>.*?)(?::\s*|\s+|^)(?:{with_bar}|{without})\[(?P<time>{time})(?:<[^,\]]*)?{rate}");
    #[expect(clippy::expect_used, reason = "the pattern is fixed, and a test uses it")]
    Regex::new(&whole).expect("a pattern")
});

/// One state of a bar, as it was printed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Print {
    /// What stands in front of the bar.
    pub name: String,
    /// Steps so far.
    pub n: f64,
    /// Time so far in whole seconds, cut off.
    pub elapsed_s: u64,
    /// The rate, steps per second; none of `?` and of a line that was cut off.
    pub it_per_s: Option<f64>,
    /// True if the rate stood there as seconds per step.
    pub inverse: bool,
    /// Where it stands in its piece of text.
    pub place: Range<usize>,
}

/// All states that a piece of text holds: usually one.
pub(super) fn prints(text: &str) -> Vec<Print> {
    let mut found: Vec<Print> = Vec::new();
    for captures in PRINT.captures_iter(text) {
        if let Some(print) = print(&captures, found.is_empty()) {
            found.push(print);
        }
    }
    found
}

fn print(captures: &Captures<'_>, first: bool) -> Option<Print> {
    let text = |name: &str| captures.name(name).map(|m| m.as_str());
    let (n, scale) = match (text("n"), text("m")) {
        (Some(n), _) => (n, text("si")),
        (None, m) => (m?, text("sj")),
    };
    let unit = text("unit").unwrap_or_default();
    let (per_second, inverse) = (unit.ends_with("/s"), unit.starts_with("s/"));
    // `1.20kit/s` of a bar with scaled units; of other units the letter may be their own.
    let scaled = if unit.ends_with("it/s") { unit.strip_suffix("it/s") } else { None };
    let it_per_s = text("rate").and_then(|rate| rate.parse::<f64>().ok()).filter(|rate| *rate > 0.0);
    let it_per_s = it_per_s.and_then(|rate| match () {
        () if inverse => Some(1.0 / rate),
        () if per_second => Some(rate * factor(scaled)),
        // Cut off in the middle: the number may be, too.
        () => None,
    });
    let name = text("name").unwrap_or_default();
    // Behind another bar on the same line stands the end of that one.
    let name = if first { name } else { name.split_once(']').map_or(name, |(_, name)| name) };
    Some(Print {
        name: name.trim().trim_end_matches(':').to_owned(),
        n: n.parse::<f64>().ok()? * factor(scale),
        elapsed_s: seconds(text("time")?)?,
        it_per_s,
        inverse,
        place: captures.get(0)?.range(),
    })
}

fn factor(letter: Option<&str>) -> f64 {
    match letter {
        Some("k") => 1e3,
        Some("M") => 1e6,
        Some("G") => 1e9,
        Some("T") => 1e12,
        _ => 1.0,
    }
}

/// `04:05` or `1:04:05`.
fn seconds(time: &str) -> Option<u64> {
    time.split(':').try_fold(0u64, |sum, part| sum.checked_mul(60)?.checked_add(part.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> (String, f64, u64, Option<f64>, bool) {
        let all = prints(text);
        assert_eq!(all.len(), 1, "{text}: {all:?}");
        let p = all[0].clone();
        (p.name, p.n, p.elapsed_s, p.it_per_s, p.inverse)
    }

    #[test]
    fn all_forms_of_a_bar_are_read() {
        let named = |name: &str, n, s, rate, inverse| (name.to_owned(), n, s, rate, inverse);
        for (text, expected) in [
            (
                "Epoch 0:  10%|█         | 29/286 [00:25<03:41,  1.16it/s, v_num=3, train_loss=0.5]",
                named("Epoch 0", 29.0, 25, Some(1.16), false),
            ),
            ("Epoch 0:   0%|          | 0/286 [00:00<?, ?it/s]", named("Epoch 0", 0.0, 0, None, false)),
            (
                "Validation DataLoader 0: 100%|##########| 20/20 [1:00:02<00:00, 180.50s/it]",
                named("Validation DataLoader 0", 20.0, 3602, Some(1.0 / 180.5), true),
            ),
            ("Training: |          | 5/? [00:02<?, 2.10it/s]", named("Training", 5.0, 2, Some(2.1), false)),
            ("load: 7it [00:03,  2.33it/s]", named("load", 7.0, 3, Some(2.33), false)),
            ("12batch [00:03, 4.00batch/s]", named("", 12.0, 3, Some(4.0), false)),
            (" 50%|█████     | 1.20k/2.40k [00:01<00:01, 1.20kit/s]", named("", 1200.0, 1, Some(1200.0), false)),
            (
                "Epoch [1/5]:  50%|█████     | 2/4 [00:05<00:05, 2.50s/batch]",
                named("Epoch [1/5]", 2.0, 5, Some(0.4), true),
            ),
            // Not tqdm's way to write more than an hour, but others'.
            ("Epoch 3:  10%|#| 9/20 [100:01<?, 2.00it/s]", named("Epoch 3", 9.0, 6001, Some(2.0), false)),
            // Cut off.
            ("Epoch 3:  10%|█         | 29/286 [00:25<03:41,  1.1", named("Epoch 3", 29.0, 25, None, false)),
            ("Epoch 3:  10%|█         | 29/286 [00:25<03", named("Epoch 3", 29.0, 25, None, false)),
        ] {
            assert_eq!(one(text), expected, "{text}");
        }
        for text in ["", "[2025-11-07 00:20:10] start", "see notes [3] 100%", "loss 0.5it/s"] {
            assert_eq!(prints(text), [], "{text}");
        }
    }

    #[test]
    fn two_bars_on_a_line_are_two() {
        let text = "Epoch 0:  10%|█| 2/20 [00:02<00:20, 1.00it/s, v_num=1]Validation DataLoader 0:  50%|█| 1/2 [00:00<00:00, 9.00it/s]";
        let names: Vec<String> = prints(text).into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["Epoch 0", "Validation DataLoader 0"]);
    }
}
