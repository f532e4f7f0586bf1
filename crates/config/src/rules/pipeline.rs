use expctl_pipeline::sampler::split_sizes;
use expctl_record::is_url;
use serde_json::Value as Json;

use super::problem::Problem;
use super::semantics::Judge;
use super::suggest::closest;
use super::values::Values;
use super::worker_rules::NO_DATA_SET;

/// Processors whose samples have edges of their own, which the published collater copies.
pub(super) const WITH_EDGES: [&str; 4] = ["lazy", "subgraph", "incidence_subgraph", "neighborhood"];

/// Fields that a batch can name the sample of.
const FOLLOWED: [&str; 3] = ["x", "x_pert", "perturbation_indices"];

/// Processor time is counted in hundredths of a second: over less than this, a sample says nothing.
const SHORTEST_S: f64 = 0.1;

impl Judge<'_> {
    /// Hardware samples at an interval that they can say something about.
    pub(super) fn sampling(&self, values: &Values, problems: &mut Vec<Problem>) {
        let key = "measure.sample_every_s";
        let too_short = |s: &f64| *s > 0.0 && *s < SHORTEST_S;
        let Some(every) = values.get(key).and_then(Json::as_f64).filter(too_short) else { return };
        let message = format!("`{key}` is {every}: processor time is counted in hundredths of a second");
        let problem = Problem::new(self.at(values, key), message, "too short to measure");
        problems.push(problem.help(format!("take {SHORTEST_S} or more, or 0 for no samples")));
    }

    /// Files that can be dropped from the page cache, and that steps read.
    pub(super) fn cold_cache(&self, values: &Values, problems: &mut Vec<Problem>) {
        let key = "measure.cold_cache";
        if values.get(key) != Some(&Json::Bool(true)) {
            return;
        }
        let files = values.texts("array.files").unwrap_or_default();
        let (message, with, help) = if values.text("data.set") == Some(NO_DATA_SET) && files.is_empty() {
            let message = format!("`{key}` is set, but which files the program reads is not known");
            (message, "worker.command", "set data.set or array.files, or have the program drop its files itself")
        } else if values.get("array.memory") == Some(&Json::Bool(true)) {
            let message = format!("`{key}` is set, but all rows are read into memory before the first step");
            (message, "array.memory", "leave one of the two out")
        } else if files.iter().any(|file| is_url(file)) {
            let message = format!("`{key}` is set, but objects of servers are in no page cache");
            (message, "array.files", "leave it out; array.cache_mib = 0 reads every byte from the server")
        } else {
            return;
        };
        let problem = Problem::new(self.at(values, key), message, "would have no effect");
        problems.push(match values.at(with) {
            Some(at) => problem.also(at, format!("`{with}`")).help(help),
            None => problem.help(help),
        });
    }

    /// Settings of the pipeline that contradict each other, or of which one would have no effect.
    pub(super) fn pipeline(&self, values: &Values, problems: &mut Vec<Problem>) {
        let Some(processor) = values.text("pipeline.processor") else { return };
        let mut report = |key: &str, message: String, label: &str, with: &str, help: String| {
            let mut problem = Problem::new(self.at(values, key), message, label);
            if let Some(at) = values.at(with) {
                problem = problem.also(at, format!("`{with}`"));
            }
            problems.push(problem.help(help));
        };
        for key in ["pipeline.hops", "pipeline.walk"] {
            if values.at(key).is_some() && processor != "neighborhood" {
                let message = format!("`{key}` is set, but processor `{processor}` walks nowhere");
                let help = "set it where the processor is \"neighborhood\", for example in a variant";
                report(key, message, "would have no effect", "pipeline.processor", help.to_owned());
            }
        }
        if let Some(collation) = values.text("pipeline.collation") {
            let fitting: &[&str] = match collation {
                "lazy_collater" => &WITH_EDGES,
                "shared_index" => &WITH_EDGES[..1],
                _ => &[],
            };
            if !fitting.is_empty() && !fitting.contains(&processor) {
                let message = format!("collation `{collation}` cannot be had of processor `{processor}`");
                let help = format!("it takes the processor {}; any other has \"pyg\"", choices(fitting));
                report("pipeline.collation", message, "does not fit", "pipeline.processor", help);
            }
            if values.at("pipeline.follow_batch").is_some() && collation != "pyg" {
                let message = format!("`pipeline.follow_batch` is set, but collation `{collation}` follows no field");
                let help = "set it where the collation is \"pyg\", or leave it out".to_owned();
                report("pipeline.follow_batch", message, "would have no effect", "pipeline.collation", help);
            }
        }
        if let Some(masks) = values.text("pipeline.device_masks").filter(|masks| *masks != "none")
            && !matches!(processor, "lazy" | "ids")
        {
            let message = format!("`pipeline.device_masks` = \"{masks}\" cannot be had of processor `{processor}`");
            let help = "as they ran, they take \"lazy\", which makes the masks once more and ships the edge index; as they \
                        were meant, \"ids\"";
            report("pipeline.device_masks", message, "does not fit", "pipeline.processor", help.to_owned());
        }
    }

    /// Only fields that a batch has can be followed.
    pub(super) fn followed(&self, values: &Values, problems: &mut Vec<Problem>) {
        const KEY: &str = "pipeline.follow_batch";
        for (i, field) in values.texts(KEY).unwrap_or_default().into_iter().enumerate() {
            if !FOLLOWED.contains(&field) {
                let at = values.item_at(KEY, i).unwrap_or_else(|| self.at(values, KEY));
                let help = match closest(field, FOLLOWED) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => format!("fields are {}", choices(&FOLLOWED)),
                };
                let message = format!("batches have no field `{field}` that could be followed");
                problems.push(Problem::new(at, message, "no such field").help(help));
            }
        }
    }

    /// A selection must leave a full step. How many samples are metabolic is not known before the data set is built.
    pub(super) fn selection(&self, values: &Values, problems: &mut Vec<Problem>) {
        let numbers =
            (values.number("loader.batch_size"), values.number("launch.ranks"), values.number("data.samples"));
        let (Some(batch), Some(ranks), Some(samples)) = numbers else { return };
        let (Some(subset), Some(split)) = (values.number("select.subset"), values.text("select.split")) else { return };
        let of = |samples| {
            let [train, val, test] = split_sizes(samples);
            match split {
                "train" => train,
                "val" => val,
                "test" => test,
                _ => samples,
            }
        };
        let left = if subset == 0 { of(samples) } else { of(subset).min(of(samples)) };
        let together = batch.saturating_mul(ranks);
        // Where there are too few samples before any selection, that is what is reported.
        if together <= left || together > samples {
            return;
        }
        let key = ["select.split", "select.subset"].into_iter().find(|key| values.at(key).is_some());
        let message = format!(
            "one step takes {batch} samples on each of {ranks} ranks, {together} in all, but the selection leaves {left} \
             of {samples}"
        );
        let label = match values.get("loader.drop_last") {
            Some(Json::Bool(true)) => "with `drop_last` there would be no batch at all",
            _ => "no step could be full",
        };
        let mut problem = Problem::new(self.at(values, key.unwrap_or("select.subset")), message, label);
        if let Some(at) = values.at("loader.batch_size") {
            problem = problem.also(at, "`loader.batch_size`");
        }
        problems.push(problem.help("take a smaller batch, fewer ranks, a larger subset or another split"));
    }
}

/// `"a", "b" or "c"`.
fn choices(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}
