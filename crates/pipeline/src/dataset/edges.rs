use super::rng::Stream;

/// Edges between `n` genes as an adjacency bit matrix: a set without duplicates that lists itself in order.
pub(crate) struct EdgeSet {
    n: u64,
    directed: bool,
    bits: Vec<u64>,
    len: u64,
}

/// How many slots the table of hub weights has: a power of two.
const SLOT_BITS: u32 = 20;

impl EdgeSet {
    pub(crate) fn new(n: u64, directed: bool) -> Self {
        Self { n, directed, bits: vec![0; (n * n).div_ceil(64) as usize], len: 0 }
    }

    pub(crate) fn is_directed(&self) -> bool {
        self.directed
    }

    /// Number of edges; an undirected edge counts once.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The most edges that fit, self-loops apart.
    pub(crate) fn capacity(&self) -> u64 {
        let pairs = self.n * self.n.saturating_sub(1);
        if self.directed { pairs } else { pairs / 2 }
    }

    /// Add an edge; false if it was there, or is a self-loop.
    pub(crate) fn insert(&mut self, source: u64, target: u64) -> bool {
        if source == target {
            return false;
        }
        let (source, target) = if self.directed || source < target { (source, target) } else { (target, source) };
        let position = source * self.n + target;
        let (word, bit) = ((position / 64) as usize, 1 << (position % 64));
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.len += u64::from(new);
        new
    }

    /// Add `count` random edges, as many of them as fit.
    ///
    /// Chung–Lu: both ends are drawn in proportion to a weight that falls as rank^(-3/4), which makes degrees
    /// heavy-tailed (exponent 7/3). The largest expected degree is held at a third of the genes by shifting the rank.
    pub(crate) fn add_random(&mut self, count: u64, stream: &mut Stream) {
        let count = count.min(self.capacity() - self.len);
        let ends = if self.directed { count } else { 2 * count };
        let sources = Hubs::new(self.n, ends, stream);
        let targets = if self.directed { Some(Hubs::new(self.n, ends, stream)) } else { None };
        let targets = targets.as_ref().unwrap_or(&sources);
        let goal = self.len + count;
        // Weighted draws find free pairs quickly in sparse graphs; what they do not find is filled up uniformly.
        let mut tries = 20 * count;
        while self.len < goal && tries > 0 {
            self.insert(sources.draw(stream), targets.draw(stream));
            tries -= 1;
        }
        while self.len < goal {
            self.insert(stream.below(self.n), stream.below(self.n));
        }
    }

    /// int64 `[2, E]`, row major: edges in ascending order of (source, target), then one self-loop per gene.
    pub(crate) fn edge_index(&self) -> Vec<i64> {
        let edges = (self.len + self.n) as usize;
        let mut index = vec![0i64; 2 * edges];
        let (sources, targets) = index.split_at_mut(edges);
        let mut at = 0;
        for (word, &bits) in self.bits.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let position = word as u64 * 64 + u64::from(bits.trailing_zeros());
                (sources[at], targets[at]) = ((position / self.n) as i64, (position % self.n) as i64);
                bits &= bits - 1;
                at += 1;
            }
        }
        for gene in 0..self.n as i64 {
            (sources[at], targets[at]) = (gene, gene);
            at += 1;
        }
        index
    }
}

/// A table from which genes are drawn in proportion to their weight.
pub(crate) struct Hubs(Vec<u32>);

impl Hubs {
    /// Weights for a network in which `ends` edge ends are drawn over `n` genes.
    pub(crate) fn new(n: u64, ends: u64, stream: &mut Stream) -> Self {
        let mut shift = 1;
        let weights = loop {
            let weights: Vec<f64> = (0..n).map(|rank| inverse_power((rank + shift) as f64)).collect();
            let share = weights.first().map_or(0.0, |first| first / weights.iter().sum::<f64>());
            if share * ends as f64 <= n as f64 / 3.0 || shift > n {
                break weights;
            }
            shift = shift + shift / 2 + 1;
        };
        let total: f64 = weights.iter().sum();
        let slots = 1usize << SLOT_BITS;
        let mut table = Vec::with_capacity(slots);
        let mut reached = 0.0;
        for (&gene, weight) in stream.permutation(n).iter().zip(&weights) {
            reached += weight;
            let end = (reached / total * slots as f64).round() as usize;
            table.resize(end.clamp(table.len(), slots), gene as u32);
        }
        let last = table.last().copied().unwrap_or(0);
        table.resize(slots, last);
        Self(table)
    }

    pub(crate) fn draw(&self, stream: &mut Stream) -> u64 {
        u64::from(self.0[(stream.next() >> (64 - SLOT_BITS)) as usize])
    }
}

/// x^(-3/4) from square roots alone, which IEEE 754 rounds exactly.
fn inverse_power(x: f64) -> f64 {
    1.0 / (x.sqrt() * x.sqrt().sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degrees(set: &EdgeSet) -> Vec<u64> {
        let index = set.edge_index();
        let edges = index.len() / 2 - set.n as usize;
        let mut degrees = vec![0; set.n as usize];
        for row in index.chunks(index.len() / 2) {
            for &gene in &row[..edges] {
                degrees[gene as usize] += 1;
            }
        }
        degrees.sort_unstable();
        degrees
    }

    #[test]
    fn counts_are_exact_and_degrees_heavy_tailed() {
        for (directed, count) in [(false, 144_211 - 6607), (true, 44_310 - 6607), (false, 1_002_806 - 6607)] {
            let mut set = EdgeSet::new(6607, directed);
            set.add_random(count, &mut Stream::new(0, 1.0, "tail"));
            assert_eq!(set.len(), count);
            let degrees = degrees(&set);
            let (sum, n) = (degrees.iter().sum::<u64>(), degrees.len());
            assert_eq!(sum, 2 * count);
            let mean = sum as f64 / n as f64;
            let top: u64 = degrees[n - n / 100..].iter().sum();
            // Uniformly random edges would give the top hundredth of the genes little more than a hundredth.
            assert!(top as f64 > 0.03 * sum as f64, "top 1 % has {top} of {sum}");
            assert!(degrees[n / 2] as f64 <= 0.85 * mean, "median {} mean {mean}", degrees[n / 2]);
            assert!(degrees[n - 1] as f64 > 4.0 * mean);
        }
    }

    #[test]
    fn undirected_edges_are_listed_once_in_order_before_the_self_loops() {
        let mut set = EdgeSet::new(50, false);
        set.add_random(200, &mut Stream::new(0, 1.0, "order"));
        let index = set.edge_index();
        let (sources, targets) = index.split_at(index.len() / 2);
        let edges: Vec<_> = sources.iter().zip(targets).collect();
        assert!(edges[..200].windows(2).all(|pair| pair[0] < pair[1]));
        assert!(edges[..200].iter().all(|(source, target)| source < target));
        assert!(edges[200..].iter().enumerate().all(|(k, edge)| *edge == (&(k as i64), &(k as i64))));
        assert_eq!(edges.len(), 250);
    }

    #[test]
    fn a_full_graph_is_filled_and_no_more() {
        let mut set = EdgeSet::new(9, false);
        set.add_random(1000, &mut Stream::new(0, 1.0, "full"));
        assert_eq!(set.len(), 36);
    }
}
