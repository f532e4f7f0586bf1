use std::collections::HashMap;
use std::sync::Arc;

use expctl_record::{MeasuredJob, Operation, Run, Stage, StepRecord};

use super::Titled;
use crate::report::figures::completed_steps;
use crate::report::format::{self, MISSING};
use crate::report::{MasksBy, Table};

/// The stages that have operations.
const STAGES: [Stage; 2] = [Stage::Mask, Stage::Collate];
/// Share of a stage that may be in none of its operations before it is said.
const OPEN_LIMIT: f64 = 0.05;

/// What a variant's loader did inside *mask* and *collate*, means over the steps that say it.
struct Inside {
    steps: u64,
    /// Samples of a step, mean.
    samples: f64,
    stages: Vec<StageInside>,
}

/// The operations of one stage, ns a step.
struct StageInside {
    stage: Stage,
    /// Time worked on the stage.
    busy: f64,
    /// By operand, in the order in which steps name them; of each operation, in the order of [`Operation::ALL`], what it took.
    operands: Vec<(Arc<str>, [f64; 5])>,
}

impl Inside {
    /// Mean over the given steps; `None` if no step has operations.
    fn of<'a>(steps: impl Iterator<Item = &'a StepRecord>) -> Option<Self> {
        let (mut n, mut samples, mut busy) = (0u64, 0u64, [0u64; 2]);
        let mut sums: [Vec<(Arc<str>, [u64; 5])>; 2] = Default::default();
        let mut indices: [HashMap<Arc<str>, usize>; 2] = Default::default();
        for step in steps.filter(|step| !step.operations.is_empty()) {
            n += 1;
            samples += step.samples;
            for (busy, stage) in busy.iter_mut().zip(STAGES) {
                *busy += step.busy[stage];
            }
            for time in &step.operations {
                let Some(stage) = STAGES.iter().position(|stage| *stage == time.stage) else { continue };
                let (sums, indices) = (&mut sums[stage], &mut indices[stage]);
                let index = *indices.entry(Arc::clone(&time.operand)).or_insert_with(|| {
                    sums.push((Arc::clone(&time.operand), [0; 5]));
                    sums.len() - 1
                });
                sums[index].1[time.operation as usize] += time.ns;
            }
        }
        if n == 0 {
            return None;
        }
        let mean = |sum: u64| sum as f64 / n as f64;
        let stages = STAGES.into_iter().zip(busy).zip(sums).map(|((stage, busy), sums)| {
            let operands = sums.into_iter().map(|(operand, of)| (operand, of.map(mean))).collect();
            StageInside { stage, busy: mean(busy), operands }
        });
        let stages = stages.filter(|of| !of.operands.is_empty()).collect();
        Some(Self { steps: n, samples: mean(samples), stages })
    }

    /// Operations that any stage has a time of.
    fn happened(&self) -> Vec<Operation> {
        let of_all = |operation: &Operation| self.stages.iter().any(|stage| stage.operation(*operation) > 0.0);
        Operation::ALL.into_iter().filter(of_all).collect()
    }

    fn table(&self) -> Table {
        let operations = self.happened();
        let mut header = vec!["Stage".to_owned(), "Of".to_owned()];
        header.extend(operations.iter().map(|operation| format!("{operation} (ms/step)")));
        header.extend(["Busy (ms/step)", "Busy (ms/sample)", "Share of the stage"].map(str::to_owned));
        let numbers = 2..header.len();
        let mut table = Table::new(header).right(numbers);
        let ms = format::milliseconds_in_column;
        let busy = |ns: f64, stage: &StageInside| {
            let per_sample = if self.samples > 0.0 { ms(ns / self.samples) } else { MISSING.to_owned() };
            [ms(ns), per_sample, format::share(ns, stage.busy)]
        };
        for stage in &self.stages {
            let name = || stage.stage.name().to_owned();
            for (operand, times) in &stage.operands {
                let cell = |operation: &Operation| {
                    let ns = times[*operation as usize];
                    if ns > 0.0 { ms(ns) } else { MISSING.to_owned() }
                };
                let cells = [name(), operand.to_string()].into_iter().chain(operations.iter().map(cell));
                table.row(cells.chain(busy(times.iter().sum(), stage)));
            }
            let none = operations.iter().map(|_| MISSING.to_owned());
            let open = [name(), "unattributed".to_owned()].into_iter().chain(none);
            table.row(open.chain(busy(stage.open(), stage)));
            let sums = operations.iter().map(|operation| ms(stage.operation(*operation)));
            let whole = [name(), "all".to_owned()].into_iter().chain(sums);
            table.bold_row(whole.chain(busy(stage.busy, stage)));
        }
        table
    }

    /// The longest operation of each stage, and whether its operations add up to it.
    fn sentences(&self, masks_by: MasksBy) -> Vec<String> {
        let samples = format::figure(self.samples);
        let mut said = vec![format!("Mean of {} of {samples} samples.", format::count(self.steps, "step"))];
        said.extend(self.stages.iter().filter_map(StageInside::dominant));
        let step_masks = masks_by != MasksBy::Loader;
        if step_masks {
            said.push(
                "*mask* has the step's own masks as well, which are in no operation: they are unattributed.".to_owned(),
            );
        }
        let open = self.stages.iter().filter(|of| !(step_masks && of.stage == Stage::Mask));
        said.extend(open.filter_map(StageInside::closure));
        said
    }
}

impl StageInside {
    /// What an operation took, over all operands.
    fn operation(&self, operation: Operation) -> f64 {
        self.operands.iter().map(|(_, times)| times[operation as usize]).sum()
    }

    /// Time of the stage that is in none of its operations: what lies between two readings of the clock, and before the first.
    fn open(&self) -> f64 {
        self.busy - self.operands.iter().flat_map(|(_, times)| times).sum::<f64>()
    }

    /// `Most of mask is fill (93.1 %), and of that string12_0_experimental (40.2 % of mask).`
    fn dominant(&self) -> Option<String> {
        let all = Operation::ALL.into_iter().map(|operation| (operation, self.operation(operation)));
        let (operation, whole) = all.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let of_operands = self.operands.iter().map(|(operand, times)| (operand, times[operation as usize]));
        let (operand, ns) = of_operands.max_by(|a, b| a.1.total_cmp(&b.1))?;
        (whole > 0.0).then(|| {
            let share = |ns: f64| format::share(ns, self.busy);
            let stage = self.stage;
            format!(
                "Most of *{stage}* is {operation} ({}), and of that {operand} ({} of {stage}).",
                share(whole),
                share(ns)
            )
        })
    }

    /// Whether the operations add up to the stage.
    fn closure(&self) -> Option<String> {
        let share = if self.busy > 0.0 { self.open() / self.busy } else { 0.0 };
        (share.abs() > OPEN_LIMIT).then(|| {
            format!(
                "The operations of *{}* do not close: {} of it is in none of them. Where a stage takes a few microseconds, that is the \
                 clock itself; else a thread that lost its processor between two readings.",
                self.stage,
                format::percent(share)
            )
        })
    }
}

/// What went on inside *mask* and *collate*, for each variant with a completed run that timed it.
pub fn operations(job: &MeasuredJob) -> Vec<Titled> {
    let titled = |(label, runs): (String, Vec<&Run>)| {
        let inside = Inside::of(completed_steps(&runs))?;
        let masks_by = MasksBy::of(&runs.first()?.trial.settings.pipeline);
        let sentence = inside.sentences(masks_by).join(" ");
        Some(Titled { label, table: inside.table().markdown(), sentence })
    };
    job.by_label().into_iter().filter_map(titled).collect()
}

#[cfg(test)]
mod tests {
    use expctl_record::OperationTime;

    use super::*;

    /// A step of 4 samples with these times, µs, and the busy times of *mask* and *collate*.
    fn step(busy: [u64; 2], operations: &[(Stage, Operation, &str, u64)]) -> StepRecord {
        let time = |(stage, operation, operand, us): &(Stage, Operation, &str, u64)| OperationTime {
            stage: *stage,
            operation: *operation,
            operand: Arc::from(*operand),
            ns: us * 1000,
        };
        let operations = operations.iter().map(time).collect();
        let mut step = StepRecord { samples: 4, operations, ..StepRecord::default() };
        for (stage, us) in STAGES.into_iter().zip(busy) {
            step.busy[stage] = us * 1000;
        }
        step
    }

    #[test]
    fn rows_and_what_is_in_none_of_them_add_up_to_the_stage() {
        let (mask, collate) = (Stage::Mask, Stage::Collate);
        let steps = [
            step(
                [1000, 4000],
                &[
                    (mask, Operation::Lookup, "physical", 10),
                    (mask, Operation::Fill, "physical", 590),
                    (mask, Operation::Fill, "tflink", 300),
                    (collate, Operation::Copy, "physical", 3990),
                ],
            ),
            // The batch of this step has no time on one edge type.
            step(
                [1000, 4000],
                &[(mask, Operation::Fill, "physical", 900), (collate, Operation::Copy, "physical", 3990)],
            ),
            StepRecord { samples: 100, ..StepRecord::default() },
        ];
        let inside = Inside::of(steps.iter()).unwrap();
        assert_eq!(inside.happened(), [Operation::Lookup, Operation::Fill, Operation::Copy]);
        let table = inside.table().markdown();
        let rows: Vec<Vec<&str>> =
            table.lines().skip(2).map(|line| line.split('|').map(str::trim).skip(1).take(8).collect()).collect();
        let expected = [
            ["mask", "physical", "0.005", "0.745", "–", "0.750", "0.188", "75.0 %"],
            ["mask", "tflink", "–", "0.150", "–", "0.150", "0.038", "15.0 %"],
            ["mask", "unattributed", "–", "–", "–", "0.100", "0.025", "10.0 %"],
            ["**mask**", "**all**", "**0.005**", "**0.895**", "**0.000**", "**1.000**", "**0.250**", "**100.0 %**"],
            ["collate", "physical", "–", "–", "3.990", "3.990", "0.998", "99.8 %"],
            ["collate", "unattributed", "–", "–", "–", "0.010", "0.003", "0.3 %"],
            ["**collate**", "**all**", "**0.000**", "**0.000**", "**3.990**", "**4.000**", "**1.000**", "**100.0 %**"],
        ];
        assert_eq!(rows, expected);
        let said = inside.sentences(MasksBy::Loader).join(" ");
        assert!(
            said.starts_with("Mean of 2 steps of 4 samples. Most of *mask* is fill (89.5 %), and of that physical"),
            "{said}"
        );
        assert!(said.contains("operations of *mask* do not close: 10.0 % of it"), "{said}");
        assert!(!said.contains("*collate* do not close"), "{said}");
        // With masks of the step in the same stage nobody can tell.
        let both = inside.sentences(MasksBy::Both).join(" ");
        assert!(both.contains("which are in no operation") && !both.contains("do not close"), "{both}");
    }

    #[test]
    fn without_operations_there_is_nothing_to_say() {
        assert!(Inside::of([StepRecord::default()].iter()).is_none());
    }
}
