//! Whether a program did what it was to do.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use expctl_record::{EXIT_FAILED, EXIT_STUCK};

use super::processes;
use super::program_process::in_words;
use super::protocol::quoted;
use super::supervisor::{AFTERMATH, OwnFailure, Supervisor, TURN, turns};

impl Supervisor<'_> {
    /// A rank that has said nothing for too long. One that is behind the others is stuck before those that wait for it.
    pub(super) fn look_for_hang(&mut self) -> Result<(), OwnFailure> {
        let launch = &self.trial.settings.launch;
        let (meet, hang) = (launch.rendezvous_timeout_s, launch.hang_timeout_s);
        let fewest = self.logs.values().map(|log| log.steps).min().unwrap_or(0);
        let least = if self.peers.any() { self.least.min(fewest) } else { fewest };
        for log in self.logs.values_mut() {
            log.turns += 1;
            let seconds = log.turns * TURN.as_millis() as u64 / 1000;
            let stuck = |message: String| Err(OwnFailure::now(log.rank, message, EXIT_STUCK));
            if log.run.is_none() {
                if log.turns > turns(meet) {
                    return stuck(format!("the program has not sent its run record within {meet} s"));
                }
                continue;
            }
            let limit = if log.steps <= least { hang } else { hang.saturating_mul(2) };
            if hang == 0 || log.turns <= turns(limit) {
                continue;
            }
            return stuck(match log.steps {
                steps if steps == log.total => format!("the program goes on for {seconds} s after its last step"),
                0 => format!("the program has been in front of its first step for {seconds} s"),
                step => format!("the program has been at step {step} for {seconds} s"),
            });
        }
        Ok(())
    }

    /// Whether the program, which ended with `status` at `ended`, did what it was to do.
    pub(super) fn judge(&mut self, status: ExitStatus, ended: Instant) -> Result<(), OwnFailure> {
        let left = processes::wait_for_all(if status.success() { AFTERMATH } else { Duration::ZERO });
        processes::end_all();
        let own = |rank: u32, message: String, at: Instant| {
            let message = format!("rank {rank}: the program {message}");
            Err(OwnFailure { rank, message, at, code: EXIT_FAILED, said: false, killed: status.code().is_none() })
        };
        // The rank whose connection closed first is the one that the others ended because of.
        let open = self.logs.values().filter(|log| !log.complete());
        let first = open.min_by_key(|log| (log.closed.unwrap_or(ended), log.rank));
        if let Some(log) = first {
            let see = if status.success() { String::new() } else { format!("; see rank-{}.log", self.env.rank) };
            let message = format!("{} {}{see}", in_words(status), log.place());
            return own(log.rank, message, log.closed.unwrap_or(ended).min(ended));
        }
        if !status.success() {
            let message = format!("did all its steps and {}; see rank-{}.log", in_words(status), self.env.rank);
            return own(self.env.rank, message, ended);
        }
        if !left.is_empty() {
            let names: Vec<String> =
                left.iter().take(5).map(|(pid, name)| format!("{pid} {}", quoted(name.as_bytes()))).collect();
            let (n, what) = (left.len(), if left.len() == 1 { "process" } else { "processes" });
            return own(
                self.env.rank,
                format!("left {n} {what} behind, which had to be ended: {}", names.join(", ")),
                ended,
            );
        }
        Ok(())
    }
}
