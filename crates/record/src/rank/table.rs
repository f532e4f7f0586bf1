use super::LastWords;
use crate::{AttemptDir, RecordError, StepsFile, Trial, read_journal, write_steps};

/// Replace the journal of `rank` by the table.
///
/// # Errors
/// The one cannot be read, or the other not written; the journal stays then.
pub fn write_table(attempt: &AttemptDir, trial: &Trial, rank: u32, last_words: &LastWords) -> Result<(), RecordError> {
    if attempt.is_closed() {
        // Whoever closed it wrote the tables of all ranks from their journals.
        return Ok(());
    }
    let journal = attempt.journal_path(rank);
    let steps = read_journal(&journal)?;
    if (steps.len() as u64) < last_words.steps() || attempt.steps_path(rank).exists() {
        // Somebody is closing the attempt just now, and has the journal already.
        return Ok(());
    }
    let world_size = trial.settings.launch.ranks;
    let table = StepsFile { trial: trial.id.clone(), rank, world_size, steps };
    write_steps(&attempt.steps_path(rank), &table)?;
    // The table holds it all now; a journal that stays is only clutter.
    let _ = std::fs::remove_file(&journal);
    Ok(())
}
