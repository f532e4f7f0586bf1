use std::collections::{BTreeMap, VecDeque};
use std::io::BufRead;
use std::sync::LazyLock;

use regex::Regex;

use super::print::{Print, prints};
use super::segments::each_segment;

/// How many values the published script took the mean of.
pub const LAST: usize = 20;

/// What the published script looked for: `grep -oP '[\d.]+(?=it/s)' | tail -20`. It misses every rate below 1, which tqdm prints as `s/it`.
static NAIVE: LazyLock<Regex> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the pattern is fixed, and a test uses it")]
    Regex::new(r"([0-9]+(?:\.[0-9]+)?)it/s").expect("a pattern")
});

/// What a bar counts, by its name.
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

/// A number for each kind of bar that has one.
pub type Kinds = BTreeMap<BarKind, u64>;

/// The mean that the published script would have taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Naive {
    /// The mean, it/s.
    pub it_per_s: f64,
    /// Values of each kind of bar in it.
    pub of: Kinds,
}

/// What the text of the bars says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogReading {
    /// States printed, by kind of bar.
    pub prints: Kinds,
    /// Rates printed in a form that the published pattern does not match: seconds per step.
    pub inverse: u64,
    /// The same for other units (`batch/s`, `kit/s`).
    pub other_units: u64,
    /// States without a rate: `?`, or cut off.
    pub without_rate: u64,
    /// Bars of training.
    pub training_bars: u64,
    /// Steps of these that count: up to the last state printed in front of a validation.
    pub steps: f64,
    /// The whole seconds printed with them, summed.
    pub elapsed_s: u64,
    /// The bars that these are of; each may have taken up to a second more.
    pub counted_bars: u64,
    /// The last rate of a training bar, it/s.
    pub last_it_per_s: Option<f64>,
    /// The published mean; none where the pattern matches nothing.
    pub naive: Option<Naive>,
    /// Names of bars of no known kind, without numbers in them.
    pub unknown: Vec<String>,
}

impl LogReading {
    /// Lowest, middle and highest rate of training, steps over time: the seconds are cut off when printed, so each bar took up
    /// to one more. None without a bar that ran for a second.
    pub fn training_rate(&self) -> Option<(f64, f64, f64)> {
        let (seconds, bars) = (self.elapsed_s as f64, self.counted_bars as f64);
        let over = |seconds: f64| self.steps / seconds;
        (self.steps > 0.0 && seconds > 0.0).then(|| (over(seconds + bars), over(seconds + bars / 2.0), over(seconds)))
    }
}

/// A bar of training, from its first state on.
struct Bar {
    name: String,
    began_at: f64,
    n: f64,
    elapsed_s: u64,
    /// Steps and seconds in front of the first validation.
    counted: Option<(f64, u64)>,
    interrupted: bool,
}

/// Read the progress text of a log; `training` is what the name of the training bar begins with, where it is not `Epoch` or `Train`.
///
/// # Errors
/// A log that cannot be read.
pub fn read_log(log: impl BufRead, training: Option<&str>) -> std::io::Result<LogReading> {
    let mut reading = LogReading::default();
    let mut bar: Option<Bar> = None;
    let mut last: VecDeque<(f64, BarKind)> = VecDeque::new();
    each_segment(log, |text| {
        let found = prints(text);
        for captures in NAIVE.captures_iter(text) {
            let (Some(whole), Some(Ok(value))) = (captures.get(0), captures.get(1).map(|m| m.as_str().parse::<f64>()))
            else {
                continue;
            };
            let print = found.iter().find(|print| print.place.contains(&whole.start()));
            let kind = print.map_or(BarKind::Other, |print| BarKind::of(&print.name, training));
            last.push_back((value, kind));
            if last.len() > LAST {
                last.pop_front();
            }
        }
        for print in found {
            let kind = BarKind::of(&print.name, training);
            *reading.prints.entry(kind).or_default() += 1;
            let rate = NAIVE.is_match(&text[print.place.clone()]);
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
        let mut of = Kinds::new();
        last.iter().for_each(|(_, kind)| *of.entry(*kind).or_default() += 1);
        let it_per_s = last.iter().map(|(value, _)| value).sum::<f64>() / last.len() as f64;
        reading.naive = Some(Naive { it_per_s, of });
    }
    Ok(reading)
}

fn on_training(bar: &mut Option<Bar>, reading: &mut LogReading, print: &Print) {
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
        assert_eq!(naive.of, Kinds::from([(BarKind::Training, 3), (BarKind::Validation, 17)]));
        assert_eq!((reading.last_it_per_s, reading.without_rate, reading.training_bars), (Some(0.33), 1, 1));
    }

    #[test]
    fn the_published_pattern_sees_rates_outside_of_bars() {
        let reading = read("Epoch 0:  1%|█| 4/9 [00:04<00:05, 1.00it/s]\nthroughput 7.5it/s\n7.5 it/s [3]\n");
        let naive = reading.naive.unwrap();
        assert_eq!(naive.of, Kinds::from([(BarKind::Training, 1), (BarKind::Other, 1)]));
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
}
