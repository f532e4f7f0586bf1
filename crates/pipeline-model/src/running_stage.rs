//! `RunningStage`: a stage that a thread works on; and `Slowdowns`: how the running stages of a node share its processors.

/// Who works on a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    Loader,
    Step,
    /// The step thread, waking up.
    Waking,
}

/// A stage that runs.
pub struct RunningStage {
    pub rank: usize,
    /// The node of the rank.
    pub node: usize,
    pub thread: Thread,
    pub batch: usize,
    /// Position in the list of stages of the segment.
    pub position: usize,
    pub stage: usize,
    /// Work that is left, seconds on an idle machine.
    pub left_s: f64,
    pub processors: f64,
}

/// How many times as long computing takes on each node as on an idle one, because running stages share its processors equally.
pub struct Slowdowns {
    by_node: Vec<f64>,
}

impl Slowdowns {
    /// Those of so many idle nodes.
    pub fn new(nodes: usize) -> Self {
        Self { by_node: vec![1.0; nodes] }
    }

    /// Set them to those with these running stages, on nodes with these processors.
    pub fn update(&mut self, running: &[RunningStage], processors: &[f64]) {
        self.by_node.iter_mut().for_each(|load| *load = 0.0);
        for stage in running {
            self.by_node[stage.node] += stage.processors;
        }
        for (load, processors) in self.by_node.iter_mut().zip(processors) {
            // From here on: how much slower work is.
            *load = (*load / processors).max(1.0);
        }
    }

    /// How many times as long a stage takes as on an idle node: only the share of its time in which it computes gets longer.
    pub fn of(&self, stage: &RunningStage) -> f64 {
        let share = stage.processors.min(1.0);
        1.0 - share + share * self.by_node[stage.node]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_computing_is_slowed_by_the_stages_of_the_same_node() {
        let stage = |node, processors| RunningStage {
            rank: 0,
            node,
            thread: Thread::Loader,
            batch: 0,
            position: 0,
            stage: 0,
            left_s: 1.0,
            processors,
        };
        // 4.5 processors are asked for on the first node, which has 3; 1 on the second, which has 2.
        let running = [stage(0, 3.0), stage(0, 1.0), stage(0, 0.5), stage(0, 0.0), stage(1, 1.0)];
        let mut slowdowns = Slowdowns::new(2);
        slowdowns.update(&running, &[3.0, 2.0]);
        assert_eq!(running.each_ref().map(|stage| slowdowns.of(stage)), [1.5, 1.5, 1.25, 1.0, 1.0]);
        slowdowns.update(&running[..1], &[3.0, 2.0]);
        assert_eq!(slowdowns.of(&running[1]), 1.0);
    }
}
