use expctl_record::{Draw, Sampler, ShuffleQuality};

use crate::ledger::MeasuredJob;
use crate::report::Table;
use crate::report::format::{self, MISSING};

/// How well each variant that draws rows of an array shuffles them: speed alone says nothing. None without such a variant.
pub fn shuffle(job: &MeasuredJob) -> Option<Table> {
    let mut table = Table::new([
        "Variant",
        "Draw",
        "Label entropy of a batch (bits)",
        "Of the ideal",
        "Neighbours' correlation",
        "Distance (ideal 0.333)",
        "Repeated rows",
        "Rows looked at",
    ])
    .right(2..8);
    let mut any = false;
    for (label, runs) in job.by_label() {
        let Some(sampler) = runs.first().map(|run| &run.trial.settings).filter(|s| s.reads_array()).map(|s| &s.sampler)
        else {
            continue;
        };
        any = true;
        let found = runs.iter().find_map(|run| run.shuffle.as_ref());
        let mut cells = vec![label, words(sampler)];
        cells.extend(found.map_or_else(|| std::array::from_fn(|_| MISSING.to_owned()), figures));
        table.row(cells);
    }
    any.then_some(table)
}

/// `weighted by weight`, `chunked 512 × 32`.
fn words(sampler: &Sampler) -> String {
    let draw = sampler.draw.name();
    match sampler.draw {
        Draw::Weighted | Draw::Balanced => format!("{draw} by {}", sampler.by),
        Draw::Chunked => {
            format!("{draw} {} × {}", format::thousands(sampler.chunk_rows), format::thousands(sampler.chunks))
        }
        Draw::Sequential | Draw::Uniform => draw.to_owned(),
    }
}

fn figures(quality: &ShuffleQuality) -> [String; 6] {
    let missing = || MISSING.to_owned();
    let labels = quality.labels.as_ref();
    let share = |part: f64, whole: f64| if whole > 0.0 { format::percent(part / whole) } else { missing() };
    [
        labels.map_or_else(missing, |l| format!("{:.3} ({})", l.entropy, l.column)),
        labels.map_or_else(missing, |l| share(l.entropy, l.ideal_entropy)),
        quality.neighbour_correlation.map_or_else(missing, |r| format!("{r:.3}")),
        format!("{:.3}", quality.mean_distance),
        share(quality.duplicates as f64, quality.rows as f64),
        format::thousands(quality.rows),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_record::LabelMixing;

    #[test]
    fn what_is_not_known_is_a_dash() {
        let labels = LabelMixing { column: "cell_type".to_owned(), classes: 3, entropy: 1.2, ideal_entropy: 1.5 };
        let quality = ShuffleQuality {
            rows: 12_800,
            batches: 100,
            duplicates: 128,
            neighbour_correlation: Some(0.0123),
            mean_distance: 0.25,
            labels: Some(labels),
        };
        let expected = ["1.200 (cell_type)", "80.0 %", "0.012", "0.250", "1.0 %", "12,800"];
        assert_eq!(figures(&quality), expected);
        let blank = ShuffleQuality { rows: 0, duplicates: 0, neighbour_correlation: None, labels: None, ..quality };
        assert_eq!(figures(&blank)[..5], [MISSING, MISSING, MISSING, "0.250", MISSING]);
        let chunked = Sampler { draw: Draw::Chunked, chunks: 1024, ..Sampler::default() };
        assert_eq!(words(&chunked), "chunked 512 × 1,024");
    }
}
