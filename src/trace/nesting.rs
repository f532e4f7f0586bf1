use super::Slice;

/// The slices of one thread, and which of them lies in which.
#[derive(Clone, Debug, Default)]
pub struct Forest {
    /// The slices, by start, the longer first.
    pub slices: Vec<Slice>,
    /// The slice that encloses each most closely.
    pub parent: Vec<Option<usize>>,
    /// Time of each that no slice in it takes, ns.
    pub own: Vec<i64>,
    /// Slices that begin in one and end behind it: they run beside their thread, and are nobody's part.
    pub beside: Vec<Slice>,
}

/// Nest the slices of one thread by their times.
pub fn nest(mut slices: Vec<Slice>) -> Forest {
    slices.sort_by_key(|slice| (slice.start, -slice.end));
    let mut forest = Forest::default();
    let mut open: Vec<usize> = Vec::new();
    for slice in slices {
        while open.last().is_some_and(|last| forest.slices[*last].end <= slice.start) {
            open.pop();
        }
        let parent = open.last().copied();
        if parent.is_some_and(|parent| slice.end > forest.slices[parent].end) {
            forest.beside.push(slice);
            continue;
        }
        if let Some(parent) = parent {
            forest.own[parent] -= slice.duration();
        }
        open.push(forest.slices.len());
        forest.own.push(slice.duration());
        forest.parent.push(parent);
        forest.slices.push(slice);
    }
    forest
}

impl Forest {
    /// The slices directly in one, in order of time.
    pub fn children(&self, of: usize) -> impl Iterator<Item = (usize, &Slice)> {
        // They follow it, before anything that begins behind it.
        let end = self.slices[of].end;
        let behind = self.slices.iter().enumerate().skip(of + 1).take_while(move |(_, slice)| slice.start < end);
        behind.filter(move |(i, _)| self.parent[*i] == Some(of))
    }

    /// The slices around one, the closest first.
    pub fn ancestors(&self, of: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.parent[of], |at| self.parent[*at])
    }

    /// The closest slice around a moment.
    pub fn at(&self, moment: i64) -> Option<usize> {
        let mut best = None;
        let behind = self.slices.partition_point(|slice| slice.start <= moment);
        let mut at = behind.checked_sub(1);
        while let Some(i) = at {
            if self.slices[i].end > moment {
                best = Some(i);
                break;
            }
            // Whatever else is open then encloses this one, or ended before it.
            at = match self.parent[i] {
                Some(parent) => Some(parent),
                None => break,
            };
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, start: i64, end: i64) -> Slice {
        Slice {
            name: name.to_owned(),
            category: "cpu_op".to_owned(),
            pid: 1,
            tid: 1,
            start,
            end,
            step: None,
            bytes: None,
        }
    }

    #[test]
    fn own_time_is_what_no_child_takes() {
        let forest = nest(vec![
            slice("inner", 12, 15),
            slice("outer", 0, 100),
            slice("second", 50, 60),
            slice("first", 10, 20),
            // At the same time as its parent, and as long.
            slice("same", 50, 60),
            slice("apart", 100, 110),
        ]);
        let names: Vec<&str> = forest.slices.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["outer", "first", "inner", "second", "same", "apart"]);
        assert_eq!(forest.parent, [None, Some(0), Some(1), Some(0), Some(3), None]);
        assert_eq!(forest.own, [80, 7, 3, 0, 10, 10]);
        assert_eq!(forest.own.iter().sum::<i64>(), 110);
        assert_eq!(forest.children(0).map(|(i, _)| i).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(forest.ancestors(2).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(
            [13, 17, 30, 55, 105, 200].map(|t| forest.at(t)),
            [Some(2), Some(1), Some(0), Some(4), Some(5), None]
        );
    }

    #[test]
    fn what_ends_behind_its_enclosing_slice_is_no_part_of_it() {
        let forest = nest(vec![slice("op", 0, 10), slice("asynchronous", 5, 30), slice("next", 10, 20)]);
        assert_eq!(forest.beside.len(), 1);
        assert_eq!(forest.own, [10, 10]);
    }
}
