//! What makes the rates of a variant doubtful: what its loader did other than its settings say, and signs in its step times.

use expctl_record::StepRecord;

use super::format;
use super::shape::shape;
use crate::ledger::Run;

/// What to say of the completed runs of one variant, a sentence each, without its name.
pub fn cautions(runs: &[&Run]) -> Vec<String> {
    let completed: Vec<&Run> = runs.iter().copied().filter(|run| run.completed()).collect();
    // Where the runs are not alike, the one that had the least room says it.
    let least = completed.iter().filter_map(|run| Some((capacity(run)?, *run))).min_by_key(|(batches, _)| *batches);
    let mut all = Vec::new();
    all.extend(least.and_then(|(batches, run)| less_memory(batches, run)));
    all.extend(completed.iter().find_map(|run| fewer_samples(run)));
    all.extend(completed.iter().find_map(|run| burst(run)));
    all.extend(shape(&completed));
    all
}

/// Variants with what is to be said of them, as sentences: those of which the same is to be said share one.
pub fn grouped(cautions: impl IntoIterator<Item = (String, Vec<String>)>) -> Vec<String> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for (name, sentences) in cautions {
        for sentence in sentences {
            match found.iter_mut().find(|(known, _)| *known == sentence) {
                Some((_, names)) => names.push(name.clone()),
                None => found.push((sentence, vec![name.clone()])),
            }
        }
    }
    found.into_iter().map(|(sentence, names)| format!("{}: {sentence}", names.join(", "))).collect()
}

/// Batches that loader threads may be ahead of the step, whatever the memory.
fn ahead(run: &Run) -> u64 {
    let loader = &run.trial.settings.loader;
    u64::from(loader.workers) * u64::from(loader.prefetch_factor.max(1))
}

/// Bytes of the largest batch; none where no step says.
fn largest(run: &Run) -> Option<u64> {
    let steps = run.ranks.iter().flatten();
    steps.map(|step: &StepRecord| step.bytes_batch).max().filter(|bytes| *bytes > 0)
}

/// Batches that there was memory for: the loader makes room for all of them as if each were as large as the largest, and for
/// one in any case. What its threads work with beside them is in no record, so it may have been fewer. None where nothing
/// limited it.
fn capacity(run: &Run) -> Option<u64> {
    let limits = run.parts.iter().filter_map(|part| part.data.as_ref()).map(|data| data.buffer_bytes);
    // Attempts may have had memory of different sizes.
    let limit = limits.filter(|bytes| *bytes > 0).min()?;
    Some((limit / largest(run)?).max(1))
}

fn less_memory(batches: u64, run: &Run) -> Option<String> {
    let loader = &run.trial.settings.loader;
    // One more is in the step.
    let wanted = ahead(run) + 1;
    // Without threads there is never more than one.
    if loader.workers == 0 || batches >= wanted {
        return None;
    }
    let what =
        if batches <= u64::from(loader.workers) { "fewer threads work at once" } else { "fewer are loaded ahead" };
    Some(format!(
        "memory for {} of {} MiB, where {} × prefetch factor {} would hold {wanted}: {what} than the settings say",
        if batches == 1 { "1 batch".to_owned() } else { format!("{batches} batches") },
        format::mebibytes(largest(run)? as f64),
        format::count(loader.workers.into(), "worker"),
        loader.prefetch_factor.max(1),
    ))
}

fn fewer_samples(run: &Run) -> Option<String> {
    let data = run.data()?;
    let asked = data.asked.filter(|asked| *asked > data.selected)?;
    let [selected, asked] = [data.selected, asked].map(format::thousands);
    Some(format!("{selected} samples, where select asks for {asked}: there are no more"))
}

/// Batches that lie ready cost a step nothing: a measurement that ends before they are used up is of them alone.
fn burst(run: &Run) -> Option<String> {
    let steps = run.trial.settings.measure.steps;
    let ahead = capacity(run).map_or(u64::MAX, |batches| batches - 1).min(ahead(run));
    (steps < ahead).then(|| {
        let (steps, are) = (format::count(steps, "measured step"), if steps == 1 { "is" } else { "are" });
        format!("{steps} {are} fewer than the {ahead} batches that are loaded ahead: rates are those of a burst")
    })
}
