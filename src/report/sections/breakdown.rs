use expctl_record::{MeasuredJob, Stage};

use super::Titled;
use super::tree::tree;
use crate::report::figures::{Breakdown, Closure, completed_steps};
use crate::report::format::{self, MISSING};
use crate::report::{RunTotals, Table};

/// What the columns mean where a GPU works beside the host.
const ON_DEVICE: &str = "Device (measured): time between two events of the GPU around a stage's work, by the GPU's clock and in the order \
    of its stream. The host hands work over and goes on: busy of a stage of the step is the host's time for that, exposed the GPU's.";

/// Where the mean step goes, for each variant with a completed run.
pub fn breakdowns(job: &MeasuredJob) -> Vec<Titled> {
    job.by_label()
        .into_iter()
        .filter_map(|(label, runs)| {
            let breakdown = Breakdown::of(completed_steps(&runs))?;
            let n = runs.iter().filter(|run| run.completed()).count();
            let tree = tree(&format!("{label}, n = {n}"), &breakdown);
            let table = format!("```\n{tree}\n```\n\n{}", table(&breakdown).markdown());
            let mut said = sentences(&breakdown);
            said.extend(RunTotals::of(&runs).map(|totals| totals.sentence()));
            Some(Titled { label, table, sentence: said.join(" ") })
        })
        .collect()
}

fn table(breakdown: &Breakdown) -> Table {
    let mut names = vec!["Stage", "Exposed (ms/step)", "Exposed (%)", "Busy (ms/step)"];
    names.extend(breakdown.device.as_ref().map(|_| "Device (ms/step)"));
    names.push("Busy (ms/sample)");
    let mut table = Table::new(names);
    let share = |ns: f64| format::share(ns, breakdown.wall);
    let time = |ns: Option<f64>| ns.map_or_else(|| MISSING.to_owned(), format::milliseconds_in_column);
    let per_sample = |ns: Option<f64>| time(ns.and_then(|ns| breakdown.per_sample(ns)));
    let mut device = breakdown.device.iter().flatten().map(|(_, ns)| time(*ns));
    for ((stage, exposed), (_, busy)) in breakdown.exposed.iter().zip(&breakdown.busy) {
        let of_step = exposed.map_or_else(|| MISSING.to_owned(), share);
        let cells = [stage.name().to_owned(), time(*exposed), of_step, time(*busy)];
        table.row(cells.into_iter().chain(device.next()).chain([per_sample(*busy)]));
    }
    let open = breakdown.unattributed;
    let cells = ["unattributed".to_owned(), format::milliseconds_in_column(open), share(open), MISSING.to_owned()];
    let device = breakdown.device.as_ref().map(|_| MISSING.to_owned());
    table.row(cells.into_iter().chain(device).chain([MISSING.to_owned()]));
    let sum = |times: &[(Stage, Option<f64>)]| -> f64 { times.iter().filter_map(|(_, ns)| *ns).sum() };
    let cells = [
        "step".to_owned(),
        format::milliseconds_in_column(breakdown.wall),
        "100.0 %".to_owned(),
        format::milliseconds_in_column(sum(&breakdown.busy)),
    ];
    let device = breakdown.device.as_deref().map(|times| format::milliseconds_in_column(sum(times)));
    table.bold_row(cells.into_iter().chain(device).chain([per_sample(Some(sum(&breakdown.busy)))]));
    table
}

fn sentences(breakdown: &Breakdown) -> Vec<String> {
    let mut said = vec![format!("Mean of {}.", format::count(breakdown.steps, "step"))];
    said.extend(breakdown.device.is_some().then(|| ON_DEVICE.to_owned()));
    said.extend(loader(breakdown));
    said.extend(loading_share(breakdown));
    said.extend(closure(breakdown));
    said
}

/// What loader threads worked, and what of it the step waited for.
fn loader(breakdown: &Breakdown) -> Option<String> {
    let of = |times: &[(Stage, Option<f64>)]| -> f64 {
        times.iter().filter(|(stage, _)| Stage::LOADER.contains(stage)).filter_map(|(_, ns)| *ns).sum()
    };
    let (busy, waited) = (of(&breakdown.busy), of(&breakdown.exposed));
    (busy > 0.0).then(|| {
        format!(
            "The loader's stages: {} ms of work a step, summed over threads; the step waited {} ms for them.",
            format::milliseconds(busy),
            format::milliseconds(waited)
        )
    })
}

/// What loading is of a step that does more than that, as one figure.
fn loading_share(breakdown: &Breakdown) -> Option<String> {
    let exposed = |stage: Stage| breakdown.exposed.iter().find(|(of, _)| *of == stage).and_then(|(_, ns)| *ns);
    if breakdown.wall <= 0.0 || [Stage::Forward, Stage::Backward].into_iter().all(|stage| exposed(stage).is_none()) {
        return None;
    }
    let waited: f64 = Stage::LOADER.into_iter().filter_map(exposed).sum();
    let last = if exposed(Stage::Pin).is_some() { Stage::Pin } else { Stage::Collate };
    Some(format!("Loading (sample to {last}) is {} of a step.", format::percent(waited / breakdown.wall)))
}

/// Whether the stages make up the step, and what to do if they do not.
fn closure(breakdown: &Breakdown) -> Option<String> {
    match breakdown.closure() {
        Closure::Closed => None,
        Closure::Open(share) => Some(format!(
            "The stages do not close: {} of the step is in no stage. Shares of stages hold all the same; what is missing is work \
             between the timers, or a process that was not scheduled: look at the load of the node, and at more ranks or threads than CPUs.",
            format::percent(share)
        )),
        Closure::Overlap(sum) => Some(format!(
            "Stages overlap or were counted twice: they add up to {} of the step, so unattributed is below zero and no share holds.",
            format::percent(sum)
        )),
    }
}

#[cfg(test)]
mod tests {
    use expctl_record::StepRecord;

    use super::*;

    fn said(exposed: &[(Stage, u64)]) -> Option<String> {
        let mut step = StepRecord { wall_ns: 1000, measured: true, ..StepRecord::default() };
        exposed.iter().for_each(|(stage, ns)| step.exposed[*stage] = *ns);
        loading_share(&Breakdown::of([&step].into_iter()).unwrap())
    }

    #[test]
    fn loading_is_a_share_of_steps_with_a_model() {
        let data =
            [(Stage::Sample, 10), (Stage::Read, 90), (Stage::Decode, 40), (Stage::Collate, 60), (Stage::Other, 5)];
        assert_eq!(said(&data), None);
        let with = |more: &[(Stage, u64)]| said(&[&data[..], more].concat());
        assert_eq!(with(&[(Stage::Forward, 300)]).unwrap(), "Loading (sample to collate) is 20.0 % of a step.");
        let pinned = with(&[(Stage::Backward, 300), (Stage::Pin, 50)]).unwrap();
        assert_eq!(pinned, "Loading (sample to pin) is 25.0 % of a step.");
    }
}
