//! What the programs print: data on stdout, everything else on stderr.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};

use expctl_text::Table;
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// Print data on stdout. A reader that went away (`| head`) ends the program quietly; a full disk ends it with an error.
pub fn out(text: impl Display) {
    match try_out(text) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(Exit::Ok as i32),
        Err(e) => {
            say(Failure::internal(format_args!("cannot write to stdout: {e}")));
            std::process::exit(Exit::Internal as i32);
        }
    }
}

/// Print data on stdout as indented JSON.
///
/// # Errors
/// A key of a map is no text.
pub fn out_json(value: &(impl Serialize + ?Sized)) -> Result<(), Failure> {
    out(serde_json::to_string_pretty(value).map_err(Failure::internal)?);
    Ok(())
}

/// Print a table on stdout: drawn with lines on a terminal, as markdown into a file or pipe.
pub fn out_table(table: &Table) {
    out(if std::io::stdout().is_terminal() { table.terminal() } else { table.markdown() });
}

/// Print data on stdout, where work must go on even if nobody can read it.
///
/// # Errors
/// What the system says.
pub fn try_out(text: impl Display) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Print anything that is not data on stderr. What cannot be printed is dropped: a job goes on when nobody reads its messages any more
/// (`2>&1 | head`), or when the disk of a log is full.
pub fn say(text: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
