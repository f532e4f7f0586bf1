//! Trials side by side: which of them can run at the same time.

use expctl_settings::{Launch, Measure, Slurm};

use super::Judge;
use crate::config::Values;
use crate::problem::Problem;

impl Judge<'_> {
    /// Trials that run side by side are on one node, share its page cache, and do not take turns.
    pub fn pack(&self, values: &Values, problems: &mut Vec<Problem>) {
        let key = Slurm::PACK;
        let Some(pack) = values.get(key).filter(|pack| *pack > 1) else { return };
        if values.get(Measure::INTERLEAVE) == Some(true) {
            let other = Measure::INTERLEAVE;
            let message =
                format!("`{key}` = {pack} runs trials at the same time, and `{other}` runs them one after another");
            let problem = self.conflict(values, &key, &other, message, "only one of them can be");
            problems.push(problem.help("set slurm.pack to 1, or leave measure.interleave out"));
        }
        if values.get(Measure::COLD_CACHE) == Some(true) {
            let other = Measure::COLD_CACHE;
            let message = format!(
                "`{key}` = {pack} runs trials on one node, and `{other}` drops files that the others have just read"
            );
            let problem = self.conflict(values, &key, &other, message, "no trial would have a cold page cache");
            problems.push(problem.help("set slurm.pack to 1, or leave measure.cold_cache out"));
        }
        if let Some(nodes) = values.get(Launch::NODES).filter(|nodes| *nodes > 1) {
            let other = Launch::NODES;
            let message =
                format!("`{key}` = {pack} runs trials side by side on one node, and a trial has {nodes} nodes");
            let problem = self.conflict(values, &key, &other, message, "not possible");
            problems.push(problem.help("set slurm.pack to 1, or launch.nodes to 1"));
        }
    }
}
