use expctl_record::{MeasuredJob, Run, Stage, StepRecord};

use super::words::{basis, completed};
use crate::plot::{Axis, Cell, Chart, Layer, Panel};
use crate::report::figures::measured;
use crate::stats::median;

/// Most columns of a map; steps beyond that share one.
const COLUMNS: usize = 100;
/// Most variants shown: those whose ranks differ most.
const MOST: usize = 6;
/// Ranks up to which each has its name beside the map.
const NAMED: usize = 32;

/// Own work of the ranks of a variant.
struct Map {
    label: String,
    runs: usize,
    ranks: usize,
    steps: usize,
    /// First and last step of each column, from 0.
    bins: Vec<[usize; 2]>,
    /// By rank and column: mean of wall time less exposed allreduce, ms.
    work: Vec<Vec<f64>>,
}

/// What each rank worked by itself as the steps went by; none where no variant ran on several ranks.
pub(super) fn ranks(job: &MeasuredJob) -> Option<Chart> {
    let mut maps: Vec<Map> = job.by_label().into_iter().filter_map(|(label, runs)| Map::of(label, &runs)).collect();
    let all = maps.len();
    if all > MOST {
        let mut uneven: Vec<f64> = maps.iter().map(Map::unevenness).collect();
        uneven.sort_by(f64::total_cmp);
        let least = uneven[all - MOST];
        maps.retain(|map| map.unevenness() >= least);
        maps.truncate(MOST);
    }
    let several = maps.len() > 1;
    let counts: Vec<_> = maps.iter().map(|map| (map.runs, map.runs * map.ranks * map.steps)).collect();
    maps.first()?;
    let chosen =
        if all > MOST { format!(" The {MOST} of {all} variants whose ranks differ most.") } else { String::new() };
    let unit = if several { " Against the median of the variant, so that one scale does for all." } else { "" };
    Some(Chart {
        name: "ranks".into(),
        title: "What each rank works by itself".into(),
        alt: "Wall time less exposed allreduce of each rank over the steps, as colours.".into(),
        caption: format!(
            "Derived from measured times, {}, means over runs: wall time of a rank less its exposed allreduce, by step. A bright row is \
             a rank that the others wait for.{unit}{chosen}",
            basis(&counts)
        ),
        panels: maps.into_iter().map(|map| map.panel(several)).collect(),
        columns: 1,
    })
}

impl Map {
    /// Of the completed runs; none where they have but one rank.
    fn of(label: String, runs: &[&Run]) -> Option<Self> {
        let ranks = runs.iter().filter(|run| run.completed()).map(|run| run.ranks.len()).min()?;
        let tables: Vec<Vec<Vec<&StepRecord>>> = runs
            .iter()
            .filter(|run| run.completed())
            .map(|run| run.ranks.iter().map(|steps| measured(steps).collect()).collect())
            .collect();
        // Steps that not all ranks and runs have are left out.
        let steps = tables.iter().flatten().map(Vec::len).min().unwrap_or(0);
        if ranks < 2 || steps == 0 {
            return None;
        }
        let columns = steps.min(COLUMNS);
        let bins: Vec<[usize; 2]> = (0..columns).map(|i| [i * steps / columns, (i + 1) * steps / columns]).collect();
        let own = |step: &StepRecord| step.wall_ns.saturating_sub(step.exposed[Stage::Allreduce]) as f64 / 1e6;
        let mean = |rank: usize, [from, to]: [usize; 2]| {
            let sum: f64 = tables.iter().flat_map(|table| &table[rank][from..to]).map(|step| own(step)).sum();
            sum / (tables.len() * (to - from)) as f64
        };
        let work = (0..ranks).map(|rank| bins.iter().map(|bin| mean(rank, *bin)).collect()).collect();
        Some(Self { label, runs: completed(runs), ranks, steps, bins, work })
    }

    /// How much longer the slowest rank works than the middle one.
    fn unevenness(&self) -> f64 {
        let means: Vec<f64> = self.work.iter().map(|row| row.iter().sum::<f64>() / row.len() as f64).collect();
        let most = means.iter().copied().fold(0.0, f64::max);
        median(&means).filter(|middle| *middle > 0.0).map_or(0.0, |middle| most / middle)
    }

    fn panel(self, relative: bool) -> Panel {
        let middle = median(&self.work.concat()).filter(|middle| *middle > 0.0).unwrap_or(1.0);
        let (name, unit) = if relative { ("own work (× median)", middle) } else { ("own work (ms/step)", 1.0) };
        let rows = self.work.iter().enumerate().flat_map(|(rank, row)| {
            row.iter().zip(&self.bins).map(move |(work, [from, to])| {
                let (x, y) = ([*from as f64, *to as f64], [rank as f64 - 0.5, rank as f64 + 0.5]);
                Cell { x, y, value: work / unit }
            })
        });
        let cells = rows.collect();
        let y = Axis::new("rank");
        Panel {
            title: self.label,
            x: Axis::new("measured step").between(0.0, self.steps as f64),
            y: if self.ranks <= NAMED { y.named((0..self.ranks).map(|rank| rank.to_string())) } else { y },
            layers: vec![Layer::Cells { name: name.into(), cells }],
        }
    }
}
