//! The messages of `srun` about ranks that ended badly. Only srun sees the processes.

use crate::queue::ranges;

/// End of a rank's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessExit {
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Signal, if one ended it.
    pub signal: Option<i32>,
    /// srun ended it, because another rank had ended badly.
    pub by_srun: bool,
}

/// Names that the C library gives to the signals that end processes, as srun prints them.
const SIGNALS: [(&str, i32); 10] = [
    ("Hangup", 1),
    ("Interrupt", 2),
    ("Illegal instruction", 4),
    ("Aborted", 6),
    ("Bus error", 7),
    ("Floating point exception", 8),
    ("Killed", 9),
    ("Out Of Memory", 9),
    ("Segmentation fault", 11),
    ("Terminated", 15),
];

/// The end of each of `ranks` ranks, from srun's messages (`srun: error: n1: tasks 0,2-3: Killed`) and its exit code.
///
/// `None` for a rank that srun does not mention: it may have ended well. With a single rank, `exit_code` is its own.
pub fn process_exits(log: &str, exit_code: i32, ranks: u32) -> Vec<Option<ProcessExit>> {
    let mut ends = vec![None; ranks as usize];
    // After this message srun ends the remaining ranks, because one has ended badly: they are not to blame.
    let mut terminating = false;
    for line in log.lines() {
        terminating |= line.contains("_step_signal: Terminating ");
        let Some((list, what)) = message(line) else { continue };
        let Some(end) = end(what).map(|end| ProcessExit { by_srun: terminating, ..end }) else { continue };
        for range in ranges(list) {
            for rank in range.take_while(|rank| *rank < ranks) {
                // The first message counts: later ones are about the clean-up.
                ends[rank as usize].get_or_insert(end);
            }
        }
    }
    if let [only @ None] = ends.as_mut_slice() {
        *only = Some(if exit_code > 128 { signalled(exit_code - 128) } else { exited(exit_code) });
    }
    ends
}

/// The list of ranks in a message of srun, and what happened to them.
fn message(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once("srun: error: ")?;
    let (_node, rest) = rest.split_once(": ")?;
    let rest = rest.strip_prefix("tasks ").or_else(|| rest.strip_prefix("task "))?;
    rest.split_once(": ")
}

fn end(what: &str) -> Option<ProcessExit> {
    if let Some(code) = what.strip_prefix("Exited with exit code ") {
        return code.trim().parse().ok().map(exited);
    }
    SIGNALS.iter().find(|(name, _)| what.starts_with(name)).map(|(_, signal)| signalled(*signal))
}

const fn exited(code: i32) -> ProcessExit {
    ProcessExit { code: Some(code), signal: None, by_srun: false }
}

const fn signalled(signal: i32) -> ProcessExit {
    ProcessExit { code: None, signal: Some(signal), by_srun: false }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_word_about_a_rank_counts() {
        let log = "srun: error: n1: task 1: Killed\nsrun: launch/slurm: _step_signal: Terminating StepId=16.0\n\
                   srun: error: n1: tasks 0-1,3: Terminated\nsrun: error: n2: task 2: Exited with exit code 7\n";
        let ends = process_exits(log, 137, 5);
        let terminated = |end| Some(ProcessExit { by_srun: true, ..end });
        let expected =
            [terminated(signalled(15)), Some(signalled(9)), terminated(exited(7)), terminated(signalled(15)), None];
        assert_eq!(ends, expected);
    }

    #[test]
    fn the_exit_code_speaks_for_a_rank_that_is_alone() {
        assert_eq!(process_exits("", 139, 1), [Some(signalled(11))]);
        assert_eq!(process_exits("", 0, 1), [Some(exited(0))]);
        assert_eq!(process_exits("", 139, 2), [None, None]);
    }

    proptest! {
        #[test]
        fn any_log_is_read_without_panic(list in "[0-9,-]{0,20}", what in ".{0,20}", text in "(?s).{0,200}") {
            let log = format!("srun: error: n1: tasks {list}: {what}\nsrun: error: n1: task 4000000000-4294967295: Killed\n{text}");
            prop_assert_eq!(process_exits(&log, 1, 3).len(), 3);
        }
    }

    #[test]
    fn other_messages_are_not_about_ranks() {
        let log = "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n\
                   srun: error: Unable to create step for job 4: Job/step already completing or completed\n";
        assert_eq!(process_exits(log, 1, 2), [None, None]);
    }
}
