//! How often the controller is asked.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(15);

/// Time between two questions: short while something happens, growing while nothing does.
#[derive(Debug)]
pub(super) struct Interval(Duration);

impl Interval {
    pub(super) const fn new() -> Self {
        Self(FIRST)
    }

    /// The time to the next question, after one that showed a change or none.
    pub(super) fn next(&mut self, changed: bool) -> Duration {
        self.0 = if changed { FIRST } else { (self.0 * 3 / 2).min(LONGEST) };
        self.0
    }
}
