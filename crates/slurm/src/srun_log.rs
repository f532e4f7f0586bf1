//! What `srun` says about the end of each rank. It is the only one that sees the processes.

use crate::launch::ProcessEnd;

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

/// Each rank's end, from srun's messages (`srun: error: n1: tasks 0,2-3: Killed`) and its exit code.
///
/// srun does not mention a rank that ended well. The exit code alone speaks for a rank only where there is but one.
pub fn process_ends(log: &str, exit_code: i32, ranks: u32) -> Vec<Option<ProcessEnd>> {
    let mut ends = vec![None; ranks as usize];
    // From here on srun ends the ranks that are left, because one has ended badly: they are not to blame.
    let mut clearing = false;
    for line in log.lines() {
        clearing |= line.contains("_step_signal: Terminating ");
        let Some((list, what)) = message(line) else { continue };
        let Some(end) = end(what).map(|end| ProcessEnd { forced: clearing, ..end }) else { continue };
        for range in super::task_ids::ranges(list) {
            for rank in range.take_while(|rank| *rank < ranks) {
                // The first word counts: later ones are about the clean-up.
                ends[rank as usize].get_or_insert(end);
            }
        }
    }
    if let [only @ None] = ends.as_mut_slice() {
        *only = Some(if exit_code > 128 { signalled(exit_code - 128) } else { exited(exit_code) });
    }
    ends
}

/// The list of tasks, and what befell them.
fn message(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once("srun: error: ")?;
    let (_node, rest) = rest.split_once(": ")?;
    let rest = rest.strip_prefix("tasks ").or_else(|| rest.strip_prefix("task "))?;
    rest.split_once(": ")
}

fn end(what: &str) -> Option<ProcessEnd> {
    if let Some(code) = what.strip_prefix("Exited with exit code ") {
        return code.trim().parse().ok().map(exited);
    }
    SIGNALS.iter().find(|(name, _)| what.starts_with(name)).map(|(_, signal)| signalled(*signal))
}

const fn exited(code: i32) -> ProcessEnd {
    ProcessEnd { code: Some(code), signal: None, forced: false }
}

const fn signalled(signal: i32) -> ProcessEnd {
    ProcessEnd { code: None, signal: Some(signal), forced: false }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_word_about_a_rank_counts() {
        let log = "srun: error: n1: task 1: Killed\nsrun: launch/slurm: _step_signal: Terminating StepId=16.0\n\
                   srun: error: n1: tasks 0-1,3: Terminated\nsrun: error: n2: task 2: Exited with exit code 7\n";
        let ends = process_ends(log, 137, 5);
        let cleared = |end| Some(ProcessEnd { forced: true, ..end });
        let expected = [cleared(signalled(15)), Some(signalled(9)), cleared(exited(7)), cleared(signalled(15)), None];
        assert_eq!(ends, expected);
    }

    #[test]
    fn the_exit_code_speaks_for_a_rank_that_is_alone() {
        assert_eq!(process_ends("", 139, 1), [Some(signalled(11))]);
        assert_eq!(process_ends("", 0, 1), [Some(exited(0))]);
        assert_eq!(process_ends("", 139, 2), [None, None]);
    }

    proptest! {
        #[test]
        fn any_log_is_read_without_panic(list in "[0-9,-]{0,20}", what in ".{0,20}", text in "(?s).{0,200}") {
            let log = format!("srun: error: n1: tasks {list}: {what}\nsrun: error: n1: task 4000000000-4294967295: Killed\n{text}");
            prop_assert_eq!(process_ends(&log, 1, 3).len(), 3);
        }
    }

    #[test]
    fn other_messages_are_not_about_ranks() {
        let log = "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n\
                   srun: error: Unable to create step for job 4: Job/step already completing or completed\n";
        assert_eq!(process_ends(log, 1, 2), [None, None]);
    }
}
