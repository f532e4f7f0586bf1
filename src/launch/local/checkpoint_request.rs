use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGUSR1;

use crate::exit::Failure;

/// Set when somebody asks the launcher for a checkpoint (USR1), until it was passed on to the ranks.
#[derive(Clone, Debug)]
pub(super) struct CheckpointRequest(Arc<AtomicBool>);

impl CheckpointRequest {
    /// Take the signal over: without that it would end the launcher.
    ///
    /// # Errors
    /// The system refuses to register a handler.
    pub(super) fn listen() -> Result<Self, Failure> {
        let set = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGUSR1, Arc::clone(&set))
            .map_err(|e| Failure::internal(format!("cannot listen for signals: {e}")))?;
        Ok(Self(set))
    }

    /// Whether somebody asked since the last call.
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}
