use super::confounds::words;
use super::learning::Learning;
use super::{Comparison, Row, learning};
use crate::report::{StageShare, Table};

impl Comparison {
    /// One line per row, raw values.
    pub(super) fn csv(&self) -> String {
        let learned = self.rows().any(|row| row.learning.is_some());
        let epochs = self.rows().any(Row::has_epochs);
        let header = [
            "job",
            "config",
            "variant",
            "method",
            "mode",
            "profiler",
            "baseline",
            "class",
            "n",
            "it_per_s",
            "it_per_s_low",
            "it_per_s_high",
            "samples_per_s",
            "samples_per_s_low",
            "samples_per_s_high",
            "ratio_it_per_s",
            "ratio_samples_per_s",
            "ratio_samples_low",
            "ratio_samples_high",
            "verdict",
            "storage_bytes",
            "batch_size",
            "ranks",
            "workers",
            "data_dir",
            "incomplete",
            "waits_for",
            "waits_share",
            "works_on",
            "works_share",
            "batch_bytes",
            "data_set",
            "group",
            "samples_per_s_ci_low",
            "samples_per_s_ci_high",
            "ci_scope",
            "percent",
            "paired",
            "p",
            "p_holm",
            "p_permutation",
            "detectable_ratio",
            "crosses",
            "confounds",
            "ms_per_sample",
        ];
        let more = ["pearson", "spearman", "mse"].into_iter().filter(|_| learned);
        let of_epochs = ["s_per_epoch", "s_per_epoch_ci_low", "s_per_epoch_ci_high", "s_per_epoch_class", "epochs"];
        let more = more.chain(of_epochs.into_iter().filter(|_| epochs));
        let mut table = Table::new(header.into_iter().chain(more));
        let number = |v: Option<f64>| v.map(|v| v.to_string()).unwrap_or_default();
        for (group, line) in self.groups.iter().flat_map(|g| g.lines.iter().map(move |l| (g, l))) {
            let row = &line.row;
            let waits = row.bottleneck.and_then(|b| b.waits_for);
            let works = row.bottleneck.and_then(|b| b.works_on);
            let stage = |part: Option<StageShare>| part.map(|p| p.stage.to_string()).unwrap_or_default();
            let rate = row.samples_per_s_rate.and_then(|rate| Some((rate.interval?, rate.scope)));
            let interval = line.ratio_samples_per_s.and_then(|r| r.interval);
            let mut cells = vec![
                row.job.clone(),
                row.config.clone(),
                row.label.clone(),
                row.method.clone(),
                group.mode.clone(),
                row.profiler.to_string(),
                line.baseline.to_string(),
                row.class.name().to_owned(),
                row.n.to_string(),
                number(row.median_it_per_s()),
                number(row.ends_it_per_s().map(|r| r.0)),
                number(row.ends_it_per_s().map(|r| r.1)),
                number(row.median_samples_per_s()),
                number(row.ends_samples_per_s().map(|r| r.0)),
                number(row.ends_samples_per_s().map(|r| r.1)),
                number(line.ratio_it_per_s.map(|r| r.value)),
                number(line.ratio_samples_per_s.map(|r| r.value)),
                number(interval.map(|i| i.low)),
                number(interval.map(|i| i.high)),
                line.verdict.map(|v| v.words().to_owned()).unwrap_or_default(),
                number(row.storage_bytes),
                row.batch_size.to_string(),
                row.ranks.to_string(),
                row.workers.map(|w| w.to_string()).unwrap_or_default(),
                row.data_dir.clone().unwrap_or_default(),
                row.incomplete.to_string(),
                stage(waits),
                number(waits.map(|p| p.share)),
                stage(works),
                number(works.map(|p| p.share)),
                number(row.batch_bytes),
                row.settings.get("data.set").cloned().unwrap_or_default(),
                group.name(),
                number(rate.map(|(i, _)| i.low)),
                number(rate.map(|(i, _)| i.high)),
                rate.map(|(_, scope)| scope.words().to_owned()).unwrap_or_default(),
                number(line.percent),
                line.runs.map(|_| line.paired.to_string()).unwrap_or_default(),
                number(line.ratio_samples_per_s.and_then(|r| r.p)),
                number(line.p_holm),
                number(line.permutation.map(|test| test.p)),
                number(line.detectable),
                words(&line.crosses),
                words(&line.confounds),
                // Of a range the ends of samples/s say it.
                number(row.ms_per_sample().filter(|(low, high)| low == high).map(|(ms, _)| ms)),
            ];
            if learned {
                let columns = row.learning.as_ref().map(Learning::columns);
                cells.extend((0..learning::COLUMNS.len()).map(|i| number(columns.and_then(|all| all[i].1))));
            }
            if epochs {
                let interval = row.epoch_time.and_then(|time| time.time_s.interval);
                cells.push(number(row.epoch_time.map(|time| time.time_s.value)));
                cells.extend([number(interval.map(|i| i.low)), number(interval.map(|i| i.high))]);
                cells.push(row.epoch_time.map(|time| time.class().to_owned()).unwrap_or_default());
                cells.push(row.epoch_time.map(|time| time.epochs.to_string()).unwrap_or_default());
            }
            table.row(cells);
        }
        table.csv()
    }
}
