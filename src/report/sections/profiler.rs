//! What the profiler recorded: operations inside the stages *mask* and *collate*, and summaries of traces.

use std::collections::HashMap;
use std::sync::Arc;

use expctl_ledger::{JobDir, JobRecord, MeasuredJob, Operation, Run, Stage, StepRecord};
use expctl_text::Table;
use expctl_text::format::{self, MISSING, code};
use serde::Serialize;

use super::TitledTable;
use crate::report::bottleneck::MasksBy;
use crate::report::rates::completed_steps;
use crate::trace::{NO_OPERATION, RankTrace, Summary, find, longest_of_all};

/// The stages that have operations.
const OPERATION_STAGES: [Stage; 2] = [Stage::Mask, Stage::Collate];
/// Share of a stage outside of its operations that is tolerated.
const OPEN_LIMIT: f64 = 0.05;

/// Operations of a variant inside *mask* and *collate*, means over the steps that have them.
struct VariantOperations {
    steps: u64,
    /// Samples of a step, mean.
    samples: f64,
    stages: Vec<StageOperations>,
}

/// The operations of one stage, ns a step.
struct StageOperations {
    stage: Stage,
    /// Busy time of the stage.
    busy: f64,
    /// By operand, in the order of the steps: the time of each operation, in the order of [`Operation::ALL`].
    operands: Vec<(Arc<str>, [f64; 5])>,
}

impl VariantOperations {
    /// Mean over the given steps; `None` if no step has operations.
    fn from_steps<'a>(steps: impl Iterator<Item = &'a StepRecord>) -> Option<Self> {
        let (mut n, mut samples, mut busy) = (0u64, 0u64, [0u64; 2]);
        let mut sums: [Vec<(Arc<str>, [u64; 5])>; 2] = Default::default();
        let mut indices: [HashMap<Arc<str>, usize>; 2] = Default::default();
        for step in steps.filter(|step| !step.operations.is_empty()) {
            n += 1;
            samples += step.samples;
            for (busy, stage) in busy.iter_mut().zip(OPERATION_STAGES) {
                *busy += step.busy[stage];
            }
            for time in &step.operations {
                let Some(stage) = OPERATION_STAGES.iter().position(|stage| *stage == time.stage) else { continue };
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
        let stages = OPERATION_STAGES.into_iter().zip(busy).zip(sums).map(|((stage, busy), sums)| {
            let operands = sums.into_iter().map(|(operand, of)| (operand, of.map(mean))).collect();
            StageOperations { stage, busy: mean(busy), operands }
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
        let busy = |ns: f64, stage: &StageOperations| {
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
        said.extend(self.stages.iter().filter_map(StageOperations::dominant));
        let step_masks = masks_by != MasksBy::Loader;
        if step_masks {
            said.push(
                "*mask* has the step's own masks as well, which are in no operation: they are unattributed.".to_owned(),
            );
        }
        let open = self.stages.iter().filter(|of| !(step_masks && of.stage == Stage::Mask));
        said.extend(open.filter_map(StageOperations::closure));
        said
    }
}

impl StageOperations {
    /// Time of an operation, over all operands.
    fn operation(&self, operation: Operation) -> f64 {
        self.operands.iter().map(|(_, times)| times[operation as usize]).sum()
    }

    /// Time of the stage outside of its operations.
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

/// Operations inside *mask* and *collate*, for each variant with a completed run that timed them.
pub fn operations(job: &MeasuredJob) -> Vec<TitledTable> {
    let titled = |(label, runs): (String, Vec<&Run>)| {
        let inside = VariantOperations::from_steps(completed_steps(&runs))?;
        let masks_by = MasksBy::from_pipeline(&runs.first()?.trial.settings.pipeline);
        let sentence = inside.sentences(masks_by).join(" ");
        Some(TitledTable { label, table: inside.table().markdown(), sentence })
    };
    job.by_label().into_iter().filter_map(titled).collect()
}

/// Compressed size of the traces of a trial, bytes, above which a note does not read them: parsed they take many times as much memory, and a
/// note may be written within the memory of a small batch job.
const MAX_BYTES: u64 = 4 << 20;

/// Traces of a job in a note.
#[derive(Clone, Debug, Serialize)]
pub struct TraceSummaries {
    /// A row per variant whose traces were read; `None` without any.
    pub table: Option<String>,
    /// Why those of other variants were not read, one sentence each.
    pub notes: Vec<String>,
}

/// The operation with the most own time and the longest single call of each profiled variant, from the traces of its first profiled trial.
/// `None` if no trial had a profiler.
pub fn trace_summaries(dir: &JobDir, job: &MeasuredJob) -> Option<TraceSummaries> {
    let columns = [
        "Variant",
        "Trial",
        "Steps × ranks",
        "Most own time",
        "ms/step",
        "of a step",
        "Longest single call",
        "ms",
        "where",
    ];
    let mut table = Table::new(columns).right([2, 4, 5, 7]);
    let (mut profiled, mut rows, mut notes) = (false, 0, Vec::new());
    for (label, runs) in job.by_label() {
        let Some(run) = runs.iter().find(|run| run.trial.settings.profiles()) else { continue };
        profiled = true;
        match summary(dir, &job.record, &run.trial.id) {
            Ok(summary) => {
                table.row(row(label, &run.trial.id, &summary));
                rows += 1;
            }
            Err(why) => notes.push(format!("{label}: {why}")),
        }
    }
    profiled.then(|| TraceSummaries { table: (rows > 0).then(|| table.markdown()), notes })
}

fn row(label: String, trial: &str, summary: &Summary) -> [String; 9] {
    let missing = || MISSING.to_owned();
    let operation = summary.operations.iter().find(|operation| operation.name != NO_OPERATION);
    let call = longest_of_all(&summary.longest);
    let per_step = |ns: i64| format::milliseconds(ns as f64 / summary.steps.max(1) as f64);
    [
        label,
        trial.to_owned(),
        summary.steps.to_string(),
        operation.map_or_else(missing, |operation| code(&operation.name)),
        operation.map_or_else(missing, |operation| per_step(operation.own)),
        operation.map_or_else(missing, |operation| format::share(operation.own as f64, summary.wall as f64)),
        call.map_or_else(missing, |call| code(&call.name)),
        call.map_or_else(missing, |call| format::milliseconds(call.ns as f64)),
        call.map_or_else(missing, |call| call.location()),
    ]
}

/// Summary of the traces of a trial, or why they were not read.
fn summary(dir: &JobDir, record: &JobRecord, trial: &str) -> Result<Summary, String> {
    let index = record.trials.iter().position(|planned| planned.id == trial);
    let index = index.ok_or_else(|| format!("trial {trial} is not in the job as submitted"))?;
    let found = find(dir, record, &[index]).map_err(|e| e.to_string())?;
    let found = found.first().ok_or_else(|| format!("trial {trial} left no trace"))?;
    let bytes: u64 = found.files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
    if bytes > MAX_BYTES {
        let size = format::bytes(bytes as f64);
        return Err(format!("the traces of trial {trial} have {size}, which is more than a note reads"));
    }
    let traces: Result<Vec<RankTrace>, _> = found.files.iter().map(|file| RankTrace::read(file)).collect();
    Summary::new(&traces.map_err(|e| e.to_string())?, &found.attempt).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_ledger::OperationTime;

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
        for (stage, us) in OPERATION_STAGES.into_iter().zip(busy) {
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
        let inside = VariantOperations::from_steps(steps.iter()).unwrap();
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
        assert!(VariantOperations::from_steps([StepRecord::default()].iter()).is_none());
    }
}
