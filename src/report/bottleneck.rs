use expctl_record::Stage;
use serde::Serialize;

use super::figures::Breakdown;
use super::format;

/// A stage with what it takes of a whole.
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

/// What bounds the steps of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The stage with the most exposed time, as a share of the wall time; none if no stage has any.
    pub waits_for: Option<StageShare>,
    /// The stage that the loader worked longest on, as a share of what it worked on all its stages; none if it did nothing.
    pub works_on: Option<StageShare>,
}

impl Bottleneck {
    /// What bounds the mean step.
    pub fn of(breakdown: &Breakdown) -> Self {
        let share = |(stage, ns): (Stage, f64), whole: f64| StageShare { stage, share: ns / whole };
        let largest = |times: &[(Stage, f64)]| times.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let positive = |times: &[(Stage, Option<f64>)]| -> Vec<(Stage, f64)> {
            times.iter().filter_map(|(stage, ns)| ns.filter(|ns| *ns > 0.0).map(|ns| (*stage, ns))).collect()
        };
        let mut busy = positive(&breakdown.busy);
        busy.retain(|(stage, _)| Stage::LOADER.contains(stage));
        let worked = busy.iter().map(|(_, ns)| ns).sum();
        Self {
            waits_for: largest(&positive(&breakdown.exposed)).map(|most| share(most, breakdown.wall)),
            works_on: largest(&busy).map(|most| share(most, worked)),
        }
    }

    /// Which stage has more than half of a step of `label`, if one has.
    pub fn sentence(&self, label: &str) -> String {
        match self.waits_for.filter(|most| most.share > 0.5) {
            Some(StageShare { stage, share }) => {
                // What the step does itself it does not wait for.
                let own = matches!(stage, Stage::Forward | Stage::Backward | Stage::Clip | Stage::Optimizer);
                let (verb, with) = if own { ("spends", "on") } else { ("waits", "for") };
                format!("a step of `{label}` {verb} {} of its time {with} *{stage}*", format::percent(share))
            }
            None => format!("a step of `{label}`: no stage has more than half of its time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use expctl_record::StepRecord;

    use super::*;

    /// A step of 100 ns with these exposed and busy times.
    fn bottleneck(exposed: &[(Stage, u64)], busy: &[(Stage, u64)]) -> Bottleneck {
        let mut step = StepRecord { wall_ns: 100, measured: true, ..StepRecord::default() };
        exposed.iter().for_each(|(stage, ns)| step.exposed[*stage] = *ns);
        busy.iter().for_each(|(stage, ns)| step.busy[*stage] = *ns);
        Bottleneck::of(&Breakdown::of([&step].into_iter()).unwrap())
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
    fn half_is_not_more_than_half() {
        let text = "a step of `ids`: no stage has more than half of its time";
        assert_eq!(bottleneck(&[(Stage::Read, 50), (Stage::Mask, 49)], &[]).sentence("ids"), text);
        let none = bottleneck(&[], &[]);
        assert_eq!((none.waits_for, none.works_on, none.sentence("ids")), (None, None, text.to_owned()));
    }

    #[test]
    fn a_step_does_not_wait_for_its_own_work() {
        let found = bottleneck(&[(Stage::Backward, 80)], &[(Stage::Backward, 80)]);
        assert_eq!(found.sentence("lazy"), "a step of `lazy` spends 80.0 % of its time on *backward*");
        assert_eq!(found.works_on, None);
    }
}
