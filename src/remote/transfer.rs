//! [`Transfer`]: files on their way over a connection, with a line on a terminal that shows how far they are. [`Transferred`] is what went.

use std::time::{Duration, Instant};

use expctl_text::format::{bytes, count, seconds};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shortest time between two changes of the line.
const SHOW_EVERY: Duration = Duration::from_millis(100);

/// Files that went over a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time that they took.
    pub time: Duration,
}

impl Transferred {
    /// `212 files, 3.1 MB in 1.2 s`.
    pub fn words(&self) -> String {
        let (files, size) = (count(self.files, "file"), bytes(self.bytes as f64));
        format!("{files}, {size} in {}", seconds(self.time.as_secs_f64()))
    }
}

/// Files on their way, one after another. The line goes with the value.
#[derive(Debug)]
pub(crate) struct Transfer {
    bar: ProgressBar,
    files: u64,
    bytes: u64,
    total_files: u64,
    total_bytes: u64,
    /// When the first file was expected.
    begun: Option<Instant>,
    shown: Instant,
}

impl Transfer {
    /// None so far. `label` is the start of the line: `sending to delta`.
    pub(crate) fn new(label: String) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()).with_prefix(label);
        if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:24} {msg}") {
            bar.set_style(style);
        }
        Self { bar, files: 0, bytes: 0, total_files: 0, total_bytes: 0, begun: None, shown: Instant::now() }
    }

    /// So many files more are to come, with so many bytes.
    pub(crate) fn expect(&mut self, files: u64, bytes: u64) {
        if files > 0 && self.begun.is_none() {
            self.begun = Some(Instant::now());
        }
        self.total_files += files;
        self.total_bytes = self.total_bytes.saturating_add(bytes);
    }

    /// Bytes of a file went.
    pub(crate) fn add_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.show();
    }

    /// A file went, with all its bytes.
    pub(crate) fn add_file(&mut self) {
        self.files += 1;
        self.show();
    }

    /// Remove the line; what went.
    pub(crate) fn end(self) -> Transferred {
        Transferred { files: self.files, bytes: self.bytes, time: self.time() }
    }

    fn time(&self) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    fn show(&mut self) {
        // Where there is no terminal, nothing is drawn.
        if self.bar.is_hidden() || self.shown.elapsed() < SHOW_EVERY {
            return;
        }
        self.shown = Instant::now();
        self.bar.set_length(self.total_bytes.max(self.bytes));
        self.bar.set_message(self.words(self.time()));
        self.bar.set_position(self.bytes);
    }

    /// `12 of 212 files, 1.2 MB of 3.1 MB, 2.4 MB/s`.
    fn words(&self, time: Duration) -> String {
        // A journal may have grown since it was listed.
        let total = self.total_bytes.max(self.bytes);
        let files = format!("{} of {}", self.files, count(self.total_files, "file"));
        let rate = self.bytes as f64 / time.as_secs_f64();
        let rate = if rate.is_finite() { format!(", {}/s", bytes(rate)) } else { String::new() };
        format!("{files}, {} of {}{rate}", bytes(self.bytes as f64), bytes(total as f64))
    }
}

impl Drop for Transfer {
    /// A connection that is lost leaves no line behind.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_many_files_and_bytes_went_and_how_fast() {
        let mut transfer = Transfer::new("sending to delta".to_owned());
        transfer.expect(211, 3_000_000);
        transfer.expect(1, 100_000);
        assert_eq!(transfer.words(Duration::ZERO), "0 of 212 files, 0 B of 3.1 MB");
        transfer.add_bytes(1_000_000);
        transfer.add_file();
        transfer.add_bytes(200_000);
        assert_eq!(transfer.words(Duration::from_millis(500)), "1 of 212 files, 1.2 MB of 3.1 MB, 2.4 MB/s");
        // More than was listed.
        transfer.add_bytes(2_000_000);
        assert_eq!(transfer.words(Duration::from_secs(2)), "1 of 212 files, 3.2 MB of 3.2 MB, 1.6 MB/s");
    }

    #[test]
    fn what_went_is_counted_from_the_first_file_on() {
        let mut transfer = Transfer::new("fetching from delta".to_owned());
        transfer.expect(0, 0);
        assert_eq!(transfer.begun, None);
        transfer.expect(1, 10);
        transfer.add_bytes(10);
        transfer.add_file();
        let went = transfer.end();
        assert_eq!((went.files, went.bytes), (1, 10));
        assert_eq!(Transfer::new(String::new()).end(), Transferred::default());
    }

    #[test]
    fn the_end_is_one_line() {
        let went = |files, bytes, ms| Transferred { files, bytes, time: Duration::from_millis(ms) }.words();
        assert_eq!(went(212, 3_100_000, 1234), "212 files, 3.1 MB in 1.2 s");
        assert_eq!(went(1, 17, 3), "1 file, 17 B in 3 ms");
    }
}
