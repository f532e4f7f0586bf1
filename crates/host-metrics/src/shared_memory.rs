use std::time::{Duration, Instant};

use crate::process::{Proportion, folder, proportional};

/// So many times as long as a look took, the next one waits. The memory of a single process is known without a look, from its status,
/// so looks at it may take a thousandth of the time; of several processes a look alone says what they share, and it may take 0.5 %.
const REST_OF_ONE: u32 = 1000;
const REST_OF_SEVERAL: u32 = 200;

/// Looks at proportional memory, as rarely as they are slow: the kernel walks all pages of a process for one.
#[derive(Debug, Default)]
pub(crate) struct Proportional {
    /// When the next look may be; none at first.
    due: Option<Instant>,
}

impl Proportional {
    /// The sum over these processes; none where it is not time yet, or where no process says it.
    pub fn look(&mut self, pids: &[i32]) -> Option<Proportion> {
        if pids.is_empty() || self.due.is_some_and(|due| Instant::now() < due) {
            return None;
        }
        let begin = Instant::now();
        let each = pids.iter().filter_map(|pid| proportional(&folder(*pid)));
        let sum = each.reduce(|a, b| Proportion {
            all: a.all + b.all,
            anon: a.anon.zip(b.anon).map(|(a, b)| a + b),
            shmem: a.shmem.zip(b.shmem).map(|(a, b)| a + b),
        });
        self.rest(begin.elapsed() * if pids.len() > 1 { REST_OF_SEVERAL } else { REST_OF_ONE });
        sum
    }

    fn rest(&mut self, pause: Duration) {
        self.due = Some(Instant::now() + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_look_is_not_soon_repeated() {
        let own = [std::process::id() as i32];
        let mut looks = Proportional::default();
        assert_eq!(looks.look(&[]), None);
        assert!(looks.look(&own).is_some_and(|memory| memory.all > 1 << 20));
        looks.rest(Duration::from_secs(60));
        assert_eq!(looks.look(&own), None);
        looks.rest(Duration::ZERO);
        let memory = looks.look(&own).unwrap();
        assert!(
            memory.anon.unwrap() > 1 << 16 && memory.anon.unwrap() + memory.shmem.unwrap() <= memory.all,
            "{memory:?}"
        );
    }

    #[test]
    fn memory_of_several_processes_is_summed() {
        let own = std::process::id() as i32;
        let one = Proportional::default().look(&[own]).unwrap();
        let two = Proportional::default().look(&[own, own]).unwrap();
        // Other tests take and free memory meanwhile.
        assert!(two.anon.unwrap() as f64 > 1.5 * one.anon.unwrap() as f64, "{one:?} {two:?}");
    }
}
