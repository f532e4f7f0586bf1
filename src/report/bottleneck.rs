//! What bounds the steps of a variant: the stage they wait for, the stage the loader works on, too few processors.

use std::collections::BTreeMap;

use expctl_ledger::{Hardware, Run, Stage};
use expctl_settings::{DeviceMasks, Pipeline, Processor};
use expctl_text::format;
use serde::Serialize;

use super::breakdown::Breakdown;

/// Explanation of the stage *other*.
pub const OTHER: &str = "thread wake-up and scheduling, often more threads than CPUs";

/// A stage with its share of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageShare {
    /// The stage.
    pub stage: Stage,
    /// Its share of the whole, in [0, 1].
    pub share: f64,
}

impl StageShare {
    /// `collate 99.7 %`.
    pub fn words(&self) -> String {
        format!("{} {}", self.stage, format::percent(self.share))
    }
}

/// Maker of the masks of a variant. The step tables have one stage for all masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MasksBy {
    /// The loader; or nothing.
    Loader,
    /// The step, on the device.
    Step,
    /// Both, as in published runs: how the stage is split between them is not known.
    Both,
}

impl MasksBy {
    /// By the settings.
    pub fn from_pipeline(pipeline: &Pipeline) -> Self {
        match (pipeline.device_masks, pipeline.processor) {
            (DeviceMasks::None, _) => Self::Loader,
            (DeviceMasks::Looped | DeviceMasks::Vectorised, Processor::Ids) => Self::Step,
            (DeviceMasks::Looped | DeviceMasks::Vectorised, _) => Self::Both,
        }
    }
}

/// The bottleneck of the steps of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The stage with the most exposed time, as a share of the wall time; `None` if no stage has any.
    pub waits_for: Option<StageShare>,
    /// The stage with the most busy time of the loader, as a share of its busy time; `None` if it did nothing, or if masks of the step are
    /// in its times.
    pub works_on: Option<StageShare>,
    /// Maker of the masks.
    pub masks_by: MasksBy,
    /// Share of the step that no stage claims.
    #[serde(skip)]
    pub open_share: f64,
    /// More threads than processors, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oversubscribed: Option<Oversubscription>,
}

impl Bottleneck {
    /// Bottleneck of the mean step.
    pub fn from_breakdown(breakdown: &Breakdown, masks_by: MasksBy) -> Self {
        let share = |(stage, ns): (Stage, f64), whole: f64| StageShare { stage, share: ns / whole };
        let largest = |times: &[(Stage, f64)]| times.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let positive = |times: &[(Stage, Option<f64>)]| -> Vec<(Stage, f64)> {
            times.iter().filter_map(|(stage, ns)| ns.filter(|ns| *ns > 0.0).map(|ns| (*stage, ns))).collect()
        };
        let mut busy = positive(&breakdown.busy);
        busy.retain(|(stage, _)| match (masks_by, stage) {
            (MasksBy::Both, _) | (MasksBy::Step, Stage::Mask) => false,
            _ => Stage::LOADER.contains(stage),
        });
        let worked = busy.iter().map(|(_, ns)| ns).sum();
        Self {
            waits_for: breakdown.most_exposed().map(|most| share(most, breakdown.wall)),
            works_on: largest(&busy).map(|most| share(most, worked)),
            masks_by,
            open_share: breakdown.open_share(),
            oversubscribed: None,
        }
    }

    /// Set [`Self::oversubscribed`].
    pub fn with_threads(self, oversubscribed: Option<Oversubscription>) -> Self {
        Self { oversubscribed, ..self }
    }

    /// The oversubscription, if the step waits most for *other*, whose cause it then is.
    pub fn crowded_other(&self) -> Option<Oversubscription> {
        self.oversubscribed.filter(|_| self.waits_for.is_some_and(|most| most.stage == Stage::Other))
    }

    /// Whether no stage claims more than half of the step, so that its bottleneck is not known.
    pub fn is_unknown(&self) -> bool {
        self.open_share > 0.5
    }

    /// The stage that a step waits for most, for a table: `collate 75.0 %`, `mask (in the step) 75.0 %`.
    pub fn waits_in_words(&self) -> Option<String> {
        self.waits_for.map(|most| match most.stage {
            Stage::Mask if self.masks_by != MasksBy::Loader => {
                format!("{} (in the step) {}", most.stage, format::percent(most.share))
            }
            _ => most.words(),
        })
    }

    /// Verb and preposition for the share of a stage: a step does not wait for its own work.
    fn verb(&self, stage: Stage) -> (&'static str, &'static str) {
        let is_compute = match stage {
            Stage::Forward | Stage::Backward | Stage::Clip | Stage::Optimizer => true,
            Stage::Mask => self.masks_by != MasksBy::Loader,
            _ => false,
        };
        if is_compute { ("spends", "on") } else { ("waits", "for") }
    }

    /// The stage with the most exposed time, however small its share, or that it is not known: `waits 40.1 % of a step for *other* (8 loader
    /// threads on 2 processors)`, to follow the name of the variant.
    pub fn clause(&self) -> String {
        if self.is_unknown() {
            return format!(
                "is not known: {} of the step time is not covered by any stage",
                format::percent(self.open_share)
            );
        }
        let Some(StageShare { stage, share }) = self.waits_for else { return "waits for no stage".to_owned() };
        let (verb, with) = self.verb(stage);
        let why = match self.crowded_other() {
            Some(crowded) => format!(" ({})", crowded.words()),
            None if stage == Stage::Other => format!(" ({OTHER})"),
            None => String::new(),
        };
        format!("{verb} {} of a step {with} *{stage}*{why}", format::percent(share))
    }

    /// A sentence: the stage with more than half of a step of `label`, if there is one, or that it is not known.
    pub fn sentence(&self, label: &str) -> String {
        let crowded = self.crowded_other().map(|found| found.words());
        match self.waits_for.filter(|most| most.share > 0.5) {
            Some(StageShare { stage, share }) => {
                let (verb, with) = self.verb(stage);
                let why = crowded.map(|crowded| format!("; {crowded}")).unwrap_or_default();
                let meaning = if stage == Stage::Other { format!(" ({OTHER}{why})") } else { String::new() };
                format!("a step of `{label}` {verb} {} of its time {with} *{stage}*{meaning}", format::percent(share))
            }
            None if self.is_unknown() => {
                let share = format::percent(self.open_share);
                format!("a step of `{label}`: not known, {share} of the step time is not covered by any stage")
            }
            None => {
                let most = self.waits_for.zip(crowded).map(|(most, crowded)| {
                    format!("; it waits most for *{}*, {}: {crowded}", most.stage, format::percent(most.share))
                });
                format!("a step of `{label}`: no stage has more than half of its time{}", most.unwrap_or_default())
            }
        }
    }
}

/// Settings to try where a step waits for a stage of the loader more than for all else together; `None` for stages of the step, and where no
/// setting is known to help. `batch_bytes`: mean size of a batch.
pub fn advice(bottleneck: &Bottleneck, reads_array: bool, batch_bytes: Option<f64>) -> Option<String> {
    let stage = bottleneck.waits_for.filter(|most| most.share > 0.5)?.stage;
    // More threads are no help where there are too many.
    let workers =
        bottleneck.oversubscribed.is_none().then(|| "more `loader.workers`, if processors are free".to_owned());
    match stage {
        Stage::Sample | Stage::Decode => workers,
        Stage::Read if reads_array => Some("`array.memory`, or another `array.format`".to_owned()),
        Stage::Read => Some("another `pipeline.store`".to_owned()),
        Stage::Mask if bottleneck.masks_by == MasksBy::Loader => Some("another `pipeline.mask_source`".to_owned()),
        Stage::Collate if reads_array => workers,
        Stage::Collate => {
            let size = batch_bytes.map(|size| format!(", a batch has {}", format::bytes(size)));
            Some(format!("another `pipeline.processor`{}", size.unwrap_or_default()))
        }
        _ => None,
    }
}

/// More threads than the processors that they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Oversubscription {
    /// Threads, those of loaders included.
    pub threads: u32,
    /// Threads of loaders among these.
    pub loader_threads: u32,
    /// Processors that they share.
    pub processors: u32,
}

impl Oversubscription {
    /// Oversubscription of a run, on the worst of its machines. `None` if every thread has a processor, if no machine is recorded, and for programs of the
    /// user, whose threads are not known.
    pub fn from_run(run: &Run, on_slurm: bool) -> Option<Self> {
        let settings = &run.trial.settings;
        let threads = (settings.threads_per_rank(), settings.loader.workers);
        let found =
            run.environments().filter_map(|environment| Self::from_ranks(&environment.ranks, threads, on_slurm));
        found.max_by(|a, b| a.ratio().total_cmp(&b.ratio())).filter(|_| !settings.runs_command())
    }

    /// Oversubscription by ranks with `threads` each, of which `loader_threads` are of the loader: of all ranks of a node together, or on Slurm, which gives
    /// each rank its own processors, of a single rank. The worst of all nodes.
    fn from_ranks(ranks: &[Hardware], (threads, loader_threads): (u32, u32), on_slurm: bool) -> Option<Self> {
        let mut shared: BTreeMap<(&str, usize), (u32, u32)> = BTreeMap::new();
        for (rank, node) in ranks.iter().enumerate() {
            // Ranks that share processors share a key.
            let key = (node.host.as_str(), if on_slurm { rank } else { 0 });
            let (ranks, processors) = shared.entry(key).or_default();
            (*ranks, *processors) = (*ranks + 1, usable_processors(node).max(*processors));
        }
        let found = shared.into_values().filter_map(|(ranks, processors)| {
            let (threads, loader_threads) = (ranks * threads, ranks * loader_threads);
            (processors > 0 && threads > processors).then_some(Self { threads, loader_threads, processors })
        });
        found.max_by(|a, b| a.ratio().total_cmp(&b.ratio()))
    }

    /// Threads for each processor.
    pub fn ratio(&self) -> f64 {
        f64::from(self.threads) / f64::from(self.processors)
    }

    /// `8 loader threads on 2 processors`; with the other threads, if only all together are too many.
    pub fn words(&self) -> String {
        let processors = format::count(self.processors.into(), "processor");
        if self.loader_threads > self.processors {
            format!("{} loader threads on {processors}", self.loader_threads)
        } else {
            format!("{} threads ({} of loaders) on {processors}", self.threads, self.loader_threads)
        }
    }
}

/// Processors that a rank can use: those of its affinity, or fewer by the limit of its control group.
fn usable_processors(node: &Hardware) -> u32 {
    let limit = node.cpu_limit_milli.map_or(u64::from(u32::MAX), |milli| milli.div_ceil(1000).max(1));
    u64::from(node.cpus).min(limit) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_ledger::StepRecord;

    /// A step of 100 ns with these exposed and busy times.
    fn bottleneck(exposed: &[(Stage, u64)], busy: &[(Stage, u64)]) -> Bottleneck {
        with_masks_by(MasksBy::Loader, exposed, busy)
    }

    fn with_masks_by(masks_by: MasksBy, exposed: &[(Stage, u64)], busy: &[(Stage, u64)]) -> Bottleneck {
        let mut step = StepRecord { wall_ns: 100, measured: true, ..StepRecord::default() };
        exposed.iter().for_each(|(stage, ns)| step.exposed[*stage] = *ns);
        busy.iter().for_each(|(stage, ns)| step.busy[*stage] = *ns);
        Bottleneck::from_breakdown(&Breakdown::from_steps([&step].into_iter()).unwrap(), masks_by)
    }

    #[test]
    fn what_steps_wait_for_is_not_always_what_threads_work_on() {
        // The forward pass is nobody's work but the step's, however long it is.
        let busy = [(Stage::Decode, 300), (Stage::Collate, 100), (Stage::Forward, 900)];
        let found = bottleneck(&[(Stage::Collate, 60), (Stage::Decode, 10)], &busy);
        assert_eq!(found.waits_for, Some(StageShare { stage: Stage::Collate, share: 0.6 }));
        assert_eq!(found.works_on, Some(StageShare { stage: Stage::Decode, share: 0.75 }));
        assert_eq!(found.sentence("lazy"), "a step of `lazy` waits 60.0 % of its time for *collate*");
    }

    #[test]
    fn a_stage_of_the_loader_comes_with_what_to_try() {
        let tried = |exposed: &[(Stage, u64)], reads_array| advice(&bottleneck(exposed, &[]), reads_array, Some(3e7));
        let collate = Some("another `pipeline.processor`, a batch has 30 MB".to_owned());
        assert_eq!(tried(&[(Stage::Collate, 60)], false), collate);
        assert_eq!(tried(&[(Stage::Collate, 50)], false), None);
        assert_eq!(tried(&[(Stage::Read, 60)], true), Some("`array.memory`, or another `array.format`".to_owned()));
        // A step does not load its own work.
        assert_eq!(tried(&[(Stage::Forward, 90)], false), None);
        let decode = bottleneck(&[(Stage::Decode, 90)], &[]);
        let workers = Some("more `loader.workers`, if processors are free".to_owned());
        assert_eq!(advice(&decode, true, None), workers);
        let crowd = Some(Oversubscription { threads: 9, loader_threads: 8, processors: 2 });
        assert_eq!(advice(&decode.with_threads(crowd), true, None), None);
    }

    #[test]
    fn half_is_not_more_than_half() {
        let text = "a step of `ids`: no stage has more than half of its time";
        assert_eq!(bottleneck(&[(Stage::Read, 50), (Stage::Mask, 49)], &[]).sentence("ids"), text);
        // Without times of stages nothing is known.
        let none = bottleneck(&[], &[]);
        let text = "a step of `ids`: not known, 100.0 % of the step time is not covered by any stage";
        assert_eq!((none.waits_for, none.works_on, none.sentence("ids")), (None, None, text.to_owned()));
    }

    #[test]
    fn a_step_does_not_wait_for_its_own_work() {
        let found = bottleneck(&[(Stage::Backward, 80)], &[(Stage::Backward, 80)]);
        assert_eq!(found.sentence("lazy"), "a step of `lazy` spends 80.0 % of its time on *backward*");
        assert_eq!(found.works_on, None);
    }

    #[test]
    fn masks_that_the_step_makes_are_its_own_work() {
        let (exposed, busy) = ([(Stage::Mask, 60)], [(Stage::Mask, 60), (Stage::Read, 30), (Stage::Collate, 10)]);
        let read = StageShare { stage: Stage::Read, share: 0.75 };
        let mask = StageShare { stage: Stage::Mask, share: 0.6 };
        for (masks_by, column, verb, works_on) in [
            (MasksBy::Loader, "mask 60.0 %", "waits 60.0 % of its time for", Some(mask)),
            (MasksBy::Step, "mask (in the step) 60.0 %", "spends 60.0 % of its time on", Some(read)),
            (MasksBy::Both, "mask (in the step) 60.0 %", "spends 60.0 % of its time on", None),
        ] {
            let found = with_masks_by(masks_by, &exposed, &busy);
            assert_eq!(found.waits_in_words().unwrap(), column);
            assert_eq!(found.sentence("v"), format!("a step of `v` {verb} *mask*"));
            assert_eq!(found.works_on, works_on, "{masks_by:?}");
        }
        // Only masks are meant.
        let found = with_masks_by(MasksBy::Step, &[(Stage::Read, 70)], &busy);
        assert_eq!(found.sentence("v"), "a step of `v` waits 70.0 % of its time for *read*");
    }

    #[test]
    fn who_makes_masks_follows_from_the_settings() {
        let of = |processor, device_masks| {
            MasksBy::from_pipeline(&Pipeline { device_masks, ..Pipeline::new(processor, Vec::new()) })
        };
        assert_eq!(of(Processor::Ids, DeviceMasks::None), MasksBy::Loader);
        assert_eq!(of(Processor::Ids, DeviceMasks::Vectorised), MasksBy::Step);
        assert_eq!(of(Processor::Lazy, DeviceMasks::Looped), MasksBy::Both);
    }

    #[test]
    fn too_few_processors_are_named_where_other_takes_most() {
        let crowd = Some(Oversubscription { threads: 9, loader_threads: 8, processors: 2 });
        let said = |exposed: &[(Stage, u64)]| bottleneck(exposed, &[]).with_threads(crowd).sentence("v");
        let half = said(&[(Stage::Other, 60), (Stage::Decode, 20)]);
        assert!(half.ends_with("more threads than CPUs; 8 loader threads on 2 processors)"), "{half}");
        let less = said(&[(Stage::Other, 40), (Stage::Decode, 20)]);
        let text = "no stage has more than half of its time; it waits most for *other*, 40.0 %: 8 loader threads on 2 processors";
        assert!(less.ends_with(text), "{less}");
        // Another stage has its own reasons.
        assert!(!said(&[(Stage::Other, 20), (Stage::Decode, 60)]).contains("processors"));
    }

    #[test]
    fn other_is_explained() {
        let text = "a step of `v` waits 90.0 % of its time for *other* (thread wake-up and scheduling, often more threads than CPUs)";
        assert_eq!(bottleneck(&[(Stage::Other, 90)], &[]).sentence("v"), text);
    }

    fn node(host: &str, cpus: u32) -> Hardware {
        Hardware { host: host.to_owned(), cpus, ..Hardware::default() }
    }

    #[test]
    fn ranks_of_a_node_share_its_processors_but_not_on_slurm() {
        let ranks = [node("a", 4), node("a", 4)];
        let found = Oversubscription::from_ranks(&ranks, (3, 2), false).unwrap();
        assert_eq!(found, Oversubscription { threads: 6, loader_threads: 4, processors: 4 });
        assert_eq!(found.words(), "6 threads (4 of loaders) on 4 processors");
        assert_eq!(Oversubscription::from_ranks(&ranks, (3, 2), true), None);
        let found = Oversubscription::from_ranks(&ranks, (9, 8), true).unwrap();
        assert_eq!((found.threads, found.words().as_str()), (9, "8 loader threads on 4 processors"));
        // Two nodes, of which the smaller one is too small.
        let found = Oversubscription::from_ranks(&[node("a", 8), node("b", 2)], (5, 4), false).unwrap();
        assert_eq!((found.threads, found.processors), (5, 2));
    }

    #[test]
    fn the_limit_of_a_control_group_counts_as_processors() {
        let limited = Hardware { cpu_limit_milli: Some(1500), ..node("a", 16) };
        assert_eq!(Oversubscription::from_ranks(&[limited], (3, 2), true).unwrap().processors, 2);
        // Without recorded processors nothing is known.
        assert_eq!(Oversubscription::from_ranks(&[node("a", 0)], (3, 2), false), None);
    }
}
