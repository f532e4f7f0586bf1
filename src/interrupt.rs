//! Ctrl-C and its kin. Invariant: a verb that has something to finish asks for the flag and looks at it; for all others the
//! signals keep their effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Failure;

/// Set once the user asked the program to stop: by Ctrl-C, a TERM signal, or by closing the terminal.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Take the signals over. The first sets the flag, a second ends the program at once, as if it had not been taken.
    ///
    /// # Errors
    /// The system refuses to register a handler.
    pub fn listen() -> Result<Self, Failure> {
        let set = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the shutdown sees the flag as the first signal left it.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&set))
                .and_then(|_| flag::register(signal, Arc::clone(&set)))
                .map_err(|e| Failure::internal(format!("cannot listen for signals: {e}")))?;
        }
        Ok(Self(set))
    }

    /// Whether the user asked to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
