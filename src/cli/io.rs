#![expect(clippy::print_stderr, reason = "the one place that prints")]

use std::fmt::Display;
use std::io::Write;

/// Print data on stdout. A reader that went away (`| head`) ends the program quietly.
pub fn out(text: impl Display) {
    let mut stdout = std::io::stdout().lock();
    if writeln!(stdout, "{text}").and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Print anything that is not data on stderr.
pub fn say(text: impl Display) {
    eprintln!("{text}");
}
