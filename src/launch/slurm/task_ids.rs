//! Numbers of array tasks in Slurm's notation: `392_4`, `392_[1,3-5%2]`, `0,2-3`.

use std::iter::StepBy;
use std::ops::RangeInclusive;

/// Highest number of an array task: Slurm's MaxArraySize is at most 4000001.
const HIGHEST: u32 = 4_000_000;
/// Most numbers that one list may have. A longer one is not Slurm's.
pub(super) const MOST: usize = HIGHEST as usize + 1;

/// Numbers in a list of Slurm's: `1,3-5,8-16:2`. What is not a number is left out (`0.batch` names a step), and so is what no array
/// can have.
pub(super) fn expand(list: &str) -> Vec<u32> {
    ranges(list).flatten().take(MOST).collect()
}

/// The same as ranges, in the order of the list.
pub(super) fn ranges(list: &str) -> impl Iterator<Item = StepBy<RangeInclusive<u32>>> {
    list.split(',').filter_map(|part| {
        // Tasks that wait together at equal distances are written with a step.
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let step: usize = step.trim().parse().ok().filter(|step| *step > 0)?;
        (last <= HIGHEST).then(|| (first..=last).step_by(step))
    })
}

/// Reads the array indices of a job in the rows of one table. A table in which there are more than a job can have is not
/// Slurm's, however few characters it has.
pub(super) struct Indices {
    job: u64,
    left: usize,
}

impl Indices {
    /// For a table in which each task of `job` stands once.
    pub const fn of(job: u64) -> Self {
        Self { job, left: MOST }
    }

    /// Indices in a job id: `392_4`, or `392_[1,3-5%2]` for tasks that wait together. None if there are too many by now.
    pub fn read(&mut self, id: &str) -> Option<Vec<u32>> {
        let found = indices(id, self.job);
        self.left = self.left.checked_sub(found.len())?;
        Some(found)
    }
}

fn indices(id: &str, job: u64) -> Vec<u32> {
    match id.split_once('_') {
        Some((base, list)) if base.parse() == Ok(job) => {
            let list = list.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or(list);
            expand(list.split_once('%').map_or(list, |(list, _throttle)| list))
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_of_tasks() {
        assert_eq!(indices("392_4", 392), [4]);
        assert_eq!(indices("392_[1,3-5%2]", 392), [1, 3, 4, 5]);
        assert_eq!(indices("392_[0-3]", 392), [0, 1, 2, 3]);
        assert_eq!(indices("392_[1-7:3,9%2]", 392), [1, 4, 7, 9]);
        for other in ["393_4", "392", "392_0.batch", "392_0.0", "392_", "392_[", "x_1", ""] {
            assert_eq!(indices(other, 392), [0; 0], "{other}");
        }
    }

    #[test]
    fn a_list_that_no_array_can_have_is_not_made() {
        assert_eq!(expand("0-4000000000"), [0; 0]);
        assert_eq!(expand("7,0-4000001,4000000"), [7, 4_000_000]);
        assert_eq!(expand("5-3"), [0; 0]);
        let all = "0-4000000,".repeat(50);
        assert_eq!(expand(&all).len(), MOST);
    }

    #[test]
    fn a_table_with_more_tasks_than_a_job_can_have_is_refused() {
        let mut table = Indices::of(392);
        assert_eq!(table.read("392_[0-4000000]").map(|all| all.len()), Some(MOST));
        assert_eq!((table.read("393_7"), table.read("392_7")), (Some(Vec::new()), None));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(list in ".{0,80}", id in "392_.{0,40}") {
            prop_assert!(expand(&list).len() <= MOST);
            prop_assert!(indices(&id, 392).iter().all(|index| *index <= HIGHEST));
        }

        #[test]
        fn what_is_written_is_read_again(ranges in proptest::collection::vec((0u32..4_000_000, 0u32..50), 0..20)) {
            let part = |(first, more): &(u32, u32)| match more {
                0 => first.to_string(),
                more => format!("{first}-{}", (first + more).min(HIGHEST)),
            };
            let list: Vec<String> = ranges.iter().map(part).collect();
            let expected: Vec<u32> = ranges.iter().flat_map(|(first, more)| *first..=(first + more).min(HIGHEST)).collect();
            prop_assert_eq!(expand(&list.join(",")), expected);
        }
    }
}
