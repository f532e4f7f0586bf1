//! [`Screen`]: a terminal that is redrawn in place.

use std::io::{IsTerminal, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use console::Term;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

use crate::interrupt::Interrupt;

/// Interval at which signals are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Rows and columns of a terminal that does not report its size.
const DEFAULT_SIZE: (u16, u16) = (24, 80);

/// The alternate screen of the terminal, without a cursor, with unbuffered keys. Dropping it restores the terminal.
pub struct Screen {
    term: Term,
    /// Settings of the keyboard before; `None` if there is no keyboard.
    keys: Option<Termios>,
}

impl Screen {
    /// Take over the terminal; `None` if stdout is none.
    pub fn open() -> Option<Self> {
        if !stdout().is_terminal() {
            return None;
        }
        let keys = tcgetattr(stdin().as_fd()).ok().filter(|before| {
            let mut now = (*before).clone();
            // Ctrl-C stays a signal.
            now.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
            tcsetattr(stdin().as_fd(), SetArg::TCSANOW, &now).is_ok()
        });
        let screen = Self { term: Term::stdout(), keys };
        screen.write("\x1b[?1049h\x1b[?25l");
        Some(screen)
    }

    /// Rows and columns.
    pub fn size(&self) -> (usize, usize) {
        let (rows, columns) = self.term.size_checked().filter(|(r, c)| *r > 2 && *c > 10).unwrap_or(DEFAULT_SIZE);
        (rows.into(), columns.into())
    }

    /// Show these lines and nothing else. A single write, each line over the old one, so that nothing flickers.
    pub fn draw(&self, lines: &[String]) {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\x1b[K")).collect();
        self.write(&format!("\x1b[H{}\x1b[J", lines.join("\r\n")));
    }

    /// Wait for `time`; true as soon as the user wants to leave.
    pub fn wait(&self, time: Duration, interrupt: &Interrupt) -> bool {
        let begun = Instant::now();
        loop {
            let left = time.saturating_sub(begun.elapsed());
            if interrupt.is_set() || self.pressed_q(left.min(POLL_INTERVAL)) {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    fn pressed_q(&self, time: Duration) -> bool {
        let stdin = stdin();
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
        let mut keys = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        let ready = self.keys.is_some() && poll(&mut keys, timeout).is_ok_and(|n| n > 0);
        if !ready {
            if self.keys.is_none() {
                std::thread::sleep(time);
            }
            return false;
        }
        let mut pressed = [0; 16];
        match nix::unistd::read(stdin.as_fd(), &mut pressed) {
            Ok(n) if n > 0 => pressed[..n].iter().any(|key| matches!(key, b'q' | b'Q')),
            // The terminal is gone.
            _ => true,
        }
    }

    fn write(&self, text: &str) {
        let mut stdout = stdout().lock();
        // A terminal that is gone sends a signal, which ends the watching.
        let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.write("\x1b[?25h\x1b[?1049l");
        if let Some(keys) = &self.keys {
            let _ = tcsetattr(stdin().as_fd(), SetArg::TCSANOW, keys);
        }
    }
}
