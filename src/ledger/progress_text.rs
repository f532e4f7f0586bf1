//! Rates from the text of progress bars that tqdm and Lightning printed into a log.
//!
//! Invariant: the ways to read a log stay apart. The mean of the published script, the last printed rate, and steps over time are rows of
//! their own, all of class imported.

use std::collections::{BTreeMap, VecDeque};
use std::io::BufRead;
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Number of values in the mean of the published script.
const PUBLISHED_VALUES: usize = 20;

/// Pattern of the published script: `grep -oP '[\d.]+(?=it/s)' | tail -20`. It misses every rate below 1, which tqdm prints as `s/it`.
static NAIVE: LazyLock<Regex> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the pattern is fixed, and a test uses it")]
    Regex::new(r"([0-9]+(?:\.[0-9]+)?)it/s").expect("a pattern")
});

/// Kind of a bar, from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BarKind {
    /// Steps of training.
    Training,
    /// Lightning's check in front of training.
    Sanity,
    /// Validation.
    Validation,
    /// Test or prediction.
    Test,
    /// Something else, or text that is no bar.
    Other,
}

impl BarKind {
    /// The word used in files and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Sanity => "sanity",
            Self::Validation => "validation",
            Self::Test => "test",
            Self::Other => "other",
        }
    }

    fn of(name: &str, training: Option<&str>) -> Self {
        let lower = name.to_lowercase();
        match training {
            Some(prefix) if name.starts_with(prefix) => Self::Training,
            _ if lower.starts_with("sanity") => Self::Sanity,
            _ if lower.starts_with("val") => Self::Validation,
            _ if lower.starts_with("test") || lower.starts_with("predict") => Self::Test,
            None if lower.starts_with("epoch") || lower.starts_with("train") => Self::Training,
            _ => Self::Other,
        }
    }
}

/// Counts by kind of bar.
pub type BarCounts = BTreeMap<BarKind, u64>;

/// The mean that the published script computes.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedMean {
    /// The mean, it/s.
    pub it_per_s: f64,
    /// Number of its values by kind of bar.
    pub of: BarCounts,
}

/// Figures of the progress text of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogReading {
    /// Printed states, by kind of bar.
    pub prints: BarCounts,
    /// Printed rates that the published pattern does not match because they are seconds per step.
    pub inverse: u64,
    /// Printed rates that it does not match because of other units (`batch/s`, `kit/s`).
    pub other_units: u64,
    /// Printed states without a rate: `?`, or cut off.
    pub without_rate: u64,
    /// Bars of training.
    pub training_bars: u64,
    /// Steps of these bars that count: up to the last state before a validation.
    pub steps: f64,
    /// Sum of the whole seconds printed with them.
    pub elapsed_s: u64,
    /// Number of bars in these sums; each may have taken up to a second more.
    pub counted_bars: u64,
    /// The last rate of a training bar, it/s.
    pub last_it_per_s: Option<f64>,
    /// The published mean. `None`: the pattern matches nothing.
    pub naive: Option<PublishedMean>,
    /// Names of bars of no known kind, without numbers in them.
    pub unknown: Vec<String>,
}

impl LogReading {
    /// Lowest, middle and highest rate of training, steps over time: printed seconds are rounded down, so each bar took up to one more.
    /// `None`: no bar ran for a second.
    pub fn training_rate(&self) -> Option<(f64, f64, f64)> {
        let (seconds, bars) = (self.elapsed_s as f64, self.counted_bars as f64);
        let over = |seconds: f64| self.steps / seconds;
        (self.steps > 0.0 && seconds > 0.0).then(|| (over(seconds + bars), over(seconds + bars / 2.0), over(seconds)))
    }
}

/// A bar of training that is being read.
struct Bar {
    name: String,
    began_at: f64,
    n: f64,
    elapsed_s: u64,
    /// Steps and seconds before the first validation.
    counted: Option<(f64, u64)>,
    interrupted: bool,
}

/// Read the progress text of a log. `training` is the beginning of the name of the training bar, if it is not `Epoch` or `Train`.
///
/// # Errors
/// The log cannot be read.
pub fn read_log(log: impl BufRead, training: Option<&str>) -> std::io::Result<LogReading> {
    let mut reading = LogReading::default();
    let mut bar: Option<Bar> = None;
    let mut last: VecDeque<(f64, BarKind)> = VecDeque::new();
    each_segment(log, |text| {
        let found = bar_states(text);
        for captures in NAIVE.captures_iter(text) {
            let (Some(whole), Some(Ok(value))) = (captures.get(0), captures.get(1).map(|m| m.as_str().parse::<f64>()))
            else {
                continue;
            };
            let print = found.iter().find(|print| print.span.contains(&whole.start()));
            let kind = print.map_or(BarKind::Other, |print| BarKind::of(&print.name, training));
            last.push_back((value, kind));
            if last.len() > PUBLISHED_VALUES {
                last.pop_front();
            }
        }
        for print in found {
            let kind = BarKind::of(&print.name, training);
            *reading.prints.entry(kind).or_default() += 1;
            let rate = NAIVE.is_match(&text[print.span.clone()]);
            match print.it_per_s {
                None => reading.without_rate += 1,
                Some(_) if print.inverse => reading.inverse += 1,
                Some(_) if !rate => reading.other_units += 1,
                Some(_) => {}
            }
            match kind {
                BarKind::Training => {
                    reading.last_it_per_s = print.it_per_s.or(reading.last_it_per_s);
                    on_training(&mut bar, &mut reading, &print);
                }
                BarKind::Other => note_unknown(&mut reading, &print.name),
                _ => bar.iter_mut().for_each(|bar| bar.interrupted = true),
            }
        }
    })?;
    close(bar, &mut reading);
    if !last.is_empty() {
        let mut of = BarCounts::new();
        last.iter().for_each(|(_, kind)| *of.entry(*kind).or_default() += 1);
        let it_per_s = last.iter().map(|(value, _)| value).sum::<f64>() / last.len() as f64;
        reading.naive = Some(PublishedMean { it_per_s, of });
    }
    Ok(reading)
}

fn on_training(bar: &mut Option<Bar>, reading: &mut LogReading, print: &BarState) {
    let goes_on = |bar: &&mut Bar| bar.name == print.name && print.n >= bar.n && print.elapsed_s >= bar.elapsed_s;
    let Some(open) = bar.as_mut().filter(goes_on) else {
        close(bar.take(), reading);
        // A bar that goes on from a checkpoint begins above 0, in the same second.
        let began_at = if print.elapsed_s == 0 && print.it_per_s.is_none() { print.n } else { 0.0 };
        let counted = Some((print.n - began_at, print.elapsed_s));
        *bar = Some(Bar {
            name: print.name.clone(),
            began_at,
            n: print.n,
            elapsed_s: print.elapsed_s,
            counted,
            interrupted: false,
        });
        reading.training_bars += 1;
        return;
    };
    (open.n, open.elapsed_s) = (print.n, print.elapsed_s);
    if !open.interrupted {
        open.counted = Some((print.n - open.began_at, print.elapsed_s));
    }
}

fn close(bar: Option<Bar>, reading: &mut LogReading) {
    if let Some((steps, seconds)) = bar.and_then(|bar| bar.counted)
        && seconds > 0
        && steps > 0.0
    {
        reading.steps += steps;
        reading.elapsed_s += seconds;
        reading.counted_bars += 1;
    }
}

/// The name without its numbers: `Loading shard 3` and `Loading shard 4` are one.
fn note_unknown(reading: &mut LogReading, name: &str) {
    const MOST: usize = 20;
    let plain: String = name.chars().filter(|c| !c.is_ascii_digit()).collect();
    if reading.unknown.len() < MOST && !reading.unknown.contains(&plain) {
        reading.unknown.push(plain);
    }
}

/// `Epoch 0:  10%|█  | 29/286 [00:25<03:41, 1.16it/s, v_num=3]`, as tqdm writes it
/// (<https://github.com/tqdm/tqdm/blob/master/tqdm/std.py>, `format_meter`); a bar without a known end has no percentage and
/// a `?`, and one without a bar at all no `<`.
static BAR: LazyLock<Regex> = LazyLock::new(|| {
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

/// A printed state of a bar.
#[derive(Clone, Debug, PartialEq)]
struct BarState {
    /// Text before the bar.
    name: String,
    /// Steps so far.
    n: f64,
    /// Time so far, seconds, rounded down.
    elapsed_s: u64,
    /// The rate, steps per second. `None`: `?`, or the line was cut off.
    it_per_s: Option<f64>,
    /// Whether the rate was printed as seconds per step.
    inverse: bool,
    /// Its bytes in the piece of text.
    span: Range<usize>,
}

/// All states in a piece of text, usually one.
fn bar_states(text: &str) -> Vec<BarState> {
    let mut found: Vec<BarState> = Vec::new();
    for captures in BAR.captures_iter(text) {
        if let Some(state) = bar_state(&captures, found.is_empty()) {
            found.push(state);
        }
    }
    found
}

fn bar_state(captures: &Captures<'_>, first: bool) -> Option<BarState> {
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
    Some(BarState {
        name: name.trim().trim_end_matches(':').to_owned(),
        n: n.parse::<f64>().ok()? * factor(scale),
        elapsed_s: seconds(text("time")?)?,
        it_per_s,
        inverse,
        span: captures.get(0)?.range(),
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

/// The longest piece of a line in memory, bytes: no bar prints as much.
const MAX_PIECE: usize = 1 << 16;

/// Call `each` for every piece of text between carriage returns and line ends, without escape codes, and with bytes that are not UTF-8
/// replaced. A piece that is longer than a bar can be is split, behind a bar if there is one, and never within a rate. Memory is bounded for
/// any log.
///
/// # Errors
/// The log cannot be read.
fn each_segment(mut log: impl BufRead, mut each: impl FnMut(&str)) -> std::io::Result<()> {
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
        let room = MAX_PIECE - piece.len();
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

/// Position at which a long piece is split: behind a bar, else behind a byte that is no part of a rate, else at its end.
fn cut(piece: &[u8]) -> usize {
    let bar = piece.iter().rposition(|byte| *byte == b']');
    let other = || piece.iter().rposition(|byte| !b"0123456789.it/s".contains(byte));
    bar.filter(|at| *at > piece.len() / 2).or_else(other).map_or(piece.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> LogReading {
        read_log(text.as_bytes(), None).unwrap()
    }

    #[test]
    fn validation_ends_what_counts_and_fills_the_published_mean() {
        let mut log = String::from("Sanity Checking DataLoader 0: 100%|█| 2/2 [00:00<00:00, 50.00it/s]\r");
        log += "Epoch 0:   0%| | 0/100 [00:00<?, ?it/s]\r";
        for n in 1..=100u64 {
            log += &format!("Epoch 0:  1%|█| {n}/100 [{:02}:{:02}<00:00, 0.50it/s]\r", 2 * n / 60, 2 * n % 60);
        }
        for n in 1..=17 {
            log += &format!("Validation DataLoader 0:  1%|█| {n}/17 [00:01<00:00, 4.00it/s]\r");
        }
        for _ in 0..3 {
            log += "Epoch 0: 100%|█| 100/100 [05:00<00:00, 0.33it/s, val_loss=1]\r";
        }
        let reading = read(&log);
        let (low, middle, high) = reading.training_rate().unwrap();
        assert_eq!((reading.steps, reading.elapsed_s, high), (100.0, 200, 0.5));
        assert_eq!((low, middle), (100.0 / 201.0, 100.0 / 200.5));
        let naive = reading.naive.unwrap();
        assert!((naive.it_per_s - (17.0 * 4.0 + 3.0 * 0.33) / 20.0).abs() < 1e-12);
        assert_eq!(naive.of, BarCounts::from([(BarKind::Training, 3), (BarKind::Validation, 17)]));
        assert_eq!((reading.last_it_per_s, reading.without_rate, reading.training_bars), (Some(0.33), 1, 1));
    }

    #[test]
    fn the_published_pattern_sees_rates_outside_of_bars() {
        let reading = read("Epoch 0:  1%|█| 4/9 [00:04<00:05, 1.00it/s]\nthroughput 7.5it/s\n7.5 it/s [3]\n");
        let naive = reading.naive.unwrap();
        assert_eq!(naive.of, BarCounts::from([(BarKind::Training, 1), (BarKind::Other, 1)]));
        assert!((naive.it_per_s - 4.25).abs() < 1e-12 && reading.unknown.is_empty());
    }

    #[test]
    fn rates_below_one_are_seen_and_counted_as_missed() {
        let log = "Epoch 0:  1%|█| 1/9 [00:04<00:32, 4.10s/it]\nEpoch 0:  2%|█| 2/9 [00:08<00:28, 4.05s/it]\n";
        let reading = read(log);
        assert_eq!((reading.inverse, reading.naive.clone(), reading.last_it_per_s), (2, None, Some(1.0 / 4.05)));
        assert_eq!(reading.training_rate().unwrap().2, 0.25);
    }

    #[test]
    fn bars_that_begin_again_are_added_up() {
        let log = "Epoch 0: 1%|█| 10/10 [00:10<00:00, 1.00it/s]\nEpoch 1: 1%|█| 10/10 [00:05<00:00, 2.00it/s]\n\
                   Epoch 1: 1%|█| 4/10 [00:00<?, ?it/s]\nEpoch 1: 1%|█| 10/10 [00:03<00:00, 2.00it/s]\n";
        let reading = read(log);
        assert_eq!((reading.training_bars, reading.steps, reading.elapsed_s), (3, 26.0, 18));
    }

    #[test]
    fn a_bar_of_another_name_can_be_named() {
        let log = "shard 1: 1%|█| 10/10 [00:10<00:00, 1.00it/s]\nshard 2: 1%|█| 10/10 [00:10<00:00, 1.00it/s]\n";
        assert_eq!((read(log).unknown, read(log).steps), (vec!["shard ".to_owned()], 0.0));
        assert_eq!(read_log(log.as_bytes(), Some("shard")).unwrap().steps, 20.0);
    }

    fn one(text: &str) -> (String, f64, u64, Option<f64>, bool) {
        let all = bar_states(text);
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
            assert_eq!(bar_states(text), [], "{text}");
        }
    }

    #[test]
    fn two_bars_on_a_line_are_two() {
        let text = "Epoch 0:  10%|█| 2/20 [00:02<00:20, 1.00it/s, v_num=1]Validation DataLoader 0:  50%|█| 1/2 [00:00<00:00, 9.00it/s]";
        let names: Vec<String> = bar_states(text).into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["Epoch 0", "Validation DataLoader 0"]);
    }

    #[test]
    fn pieces_are_clean_and_bounded() {
        let mut text = b"a [1]\r\x1b[A\x1b[32mb [2]\x1b[0m\nno brackets\n\xff[3]\n7.5it/s\n".to_vec();
        text.extend(vec![b'['; 3 * MAX_PIECE]);
        let mut found = Vec::new();
        each_segment(std::io::BufReader::with_capacity(7, &text[..]), |piece| found.push(piece.to_owned())).unwrap();
        assert_eq!(found[..4], ["a [1]", "b [2]", "\u{fffd}[3]", "7.5it/s"]);
        assert!(found[4..].iter().all(|piece| piece.len() <= MAX_PIECE));
        assert_eq!(found[4..].concat().len(), 3 * MAX_PIECE);
    }

    #[test]
    fn no_rate_is_cut_in_two() {
        for ending in [" ", "]"] {
            let mut text = b"x".to_vec();
            text.extend(format!("1.25it/s{ending}").repeat(MAX_PIECE / 4).bytes());
            let mut rates = 0;
            each_segment(&text[..], |piece| {
                assert!(piece.ends_with(ending) && piece.len() <= MAX_PIECE);
                rates += piece.matches("1.25it/s").count();
            })
            .unwrap();
            assert_eq!(rates, MAX_PIECE / 4);
        }
    }
}
