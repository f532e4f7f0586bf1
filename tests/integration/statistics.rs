//! Statistics against what SciPy, statsmodels and arch say of the same values, and against simulation.

mod within_run;

use std::io::Write;

use expctl_stats::{
    Periods, Verdict, drift, holm, judge, minimum_detectable, minimum_detectable_paired, noncentral_t, paired_ratio,
    permutation_test, quantile, rate_over_runs, ratio, run_rate, slow_outliers, verdict, warm_up,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::Value;

/// Past the capture of the test harness, so that the table is in the output of `make test`.
fn show(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn vectors() -> Value {
    serde_json::from_str(include_str!("../samples/statistics/vectors.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

/// Largest distance of what was found from what is expected, as a share of it.
#[derive(Default)]
struct Distance(f64, usize);

impl Distance {
    fn add(&mut self, got: f64, want: f64) {
        // Shares of probabilities that are nearly 0 mean nothing.
        self.0 = self.0.max((got - want).abs() / want.abs().max(1e-4));
        self.1 += 1;
    }

    fn within(self, what: &str, limit: f64) {
        show(&format!("  {what:<44} {:>4} figures, at most {:.1e} apart", self.1, self.0));
        assert!(self.1 > 0 && self.0 < limit, "{what}: {} is above {limit}", self.0);
    }
}

#[test]
fn figures_are_those_of_scipy() {
    let all = vectors();
    let cases = |key: &str| all[key].as_array().unwrap().clone();
    let sides = |case: &Value| (numbers(&case["side"]), numbers(&case["base"]));
    show(&format!("\nStatistics against {}:", all["by"].as_str().unwrap()));

    let mut found = Distance::default();
    for case in cases("welch") {
        let (side, base) = sides(&case);
        let got = ratio(&side, &base).unwrap();
        let interval = got.interval.unwrap();
        for (got, key) in [(got.value, "ratio"), (interval.low, "low"), (interval.high, "high"), (got.p.unwrap(), "p")]
        {
            found.add(got, case[key].as_f64().unwrap());
        }
    }
    found.within("ratio, interval, p (Welch)", 1e-7);

    let (mut found, mut detectable) = (Distance::default(), Distance::default());
    for case in cases("paired") {
        let (side, base) = sides(&case);
        let pairs: Vec<(f64, f64)> = side.into_iter().zip(base).collect();
        detectable.add(minimum_detectable_paired(&pairs).unwrap(), case["detectable"].as_f64().unwrap());
        let got = paired_ratio(&pairs).unwrap();
        let interval = got.interval.unwrap();
        for (got, key) in [(got.value, "ratio"), (interval.low, "low"), (interval.high, "high"), (got.p.unwrap(), "p")]
        {
            found.add(got, case[key].as_f64().unwrap());
        }
    }
    found.within("paired ratio, interval, p", 1e-7);
    detectable.within("minimum detectable ratio of pairs", 1e-5);

    let (mut exact, mut drawn) = (Distance::default(), Vec::new());
    for case in cases("permutation") {
        let (side, base) = sides(&case);
        let got = permutation_test(&side, &base).unwrap();
        let want = case["p"].as_f64().unwrap();
        assert_eq!(got.exact, case["exact"].as_bool().unwrap());
        if got.exact { exact.add(got.p, want) } else { drawn.push((got.p, want)) }
    }
    exact.within("permutation test, all arrangements: p", 1e-9);
    for (got, want) in &drawn {
        // Four standard errors of what was drawn here.
        assert!((got - want).abs() < 4.0 * (want * (1.0 - want) / 9999.0).sqrt() + 2e-4, "{got} is not {want}");
    }
    assert!(!drawn.is_empty());

    let mut found = Distance::default();
    for case in cases("holm") {
        let got = holm(&numbers(&case["p"]));
        let want = numbers(&case["corrected"]);
        assert_eq!(got.len(), want.len());
        got.iter().zip(want).for_each(|(got, want)| found.add(*got, want));
    }
    found.within("Holm", 1e-12);

    let mut found = Distance::default();
    let values = numbers(&all["quantiles"]["values"]);
    for at in all["quantiles"]["at"].as_array().unwrap() {
        let at = numbers(at);
        found.add(quantile(&values, at[0]).unwrap(), at[1]);
    }
    found.within("quantiles", 1e-12);

    let mut found = Distance::default();
    for case in cases("noncentral_t") {
        let number = |key: &str| case[key].as_f64().unwrap();
        found.add(noncentral_t(number("t"), number("freedom"), number("delta")), number("p"));
    }
    found.within("noncentral t", 1e-5);

    let mut found = Distance::default();
    for case in cases("detectable") {
        let (side, base) = sides(&case);
        found.add(minimum_detectable(&side, &base).unwrap(), case["ratio"].as_f64().unwrap());
    }
    found.within("minimum detectable ratio", 1e-5);

    for case in cases("blocks") {
        let got = run_rate(&numbers(&case["times"]), 1, None).unwrap();
        let want = 2.0 * case["circular"].as_f64().unwrap();
        show(&format!("  block length: {} steps, twice arch's is {want:.1}", got.block));
        // arch estimates each autocorrelation from the stretch that has it, and so has slightly others.
        assert!((got.block as f64 - want).abs() <= 1.0 + 0.1 * want, "{} is not {want}", got.block);
    }
}

/// Reproducible draws.
struct Draws(Pcg64);

impl Draws {
    fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    fn uniform(&mut self) -> f64 {
        self.0.random::<f64>()
    }

    /// Standard normal (Box & Muller).
    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Rates of runs about `mean`, with a relative spread.
    fn rates(&mut self, n: usize, mean: f64, spread: f64) -> Vec<f64> {
        (0..n).map(|_| mean * (spread * self.normal()).exp()).collect()
    }

    /// Of variance 1, each with correlation `phi` to the one before.
    fn autoregressive(&mut self, n: usize, phi: f64) -> Vec<f64> {
        let mut value = self.normal();
        let fresh = (1.0 - phi * phi).sqrt();
        let next = |_| {
            value = phi * value + fresh * self.normal();
            value
        };
        (0..n).map(next).collect()
    }

    /// Step times in seconds whose logarithm is autoregressive; their mean is exp(spread²/2), their median 1.
    fn steps(&mut self, n: usize, phi: f64, spread: f64) -> Vec<f64> {
        self.autoregressive(n, phi).into_iter().map(|x| (spread * x).exp()).collect()
    }

    /// Every `period`-th step is `slow` times as long, from a phase on that is drawn.
    fn periodic(&mut self, n: usize, period: usize, slow: f64, spread: f64) -> Vec<f64> {
        let phase = self.0.random_range(0..period);
        let mut times = self.steps(n, 0.0, spread);
        times.iter_mut().enumerate().filter(|(i, _)| (i + phase) % period == 0).for_each(|(_, time)| *time *= slow);
        times
    }

    /// Steps of a loader that reads a block of rows at once, with noise that hangs together: a slow step a block, which takes about as long
    /// as half of the others and may come a step earlier or later, and steps that are the slower the nearer they are behind it. The series
    /// begins with a block, or anywhere in one.
    fn blocks(&mut self, n: usize, period: f64) -> Vec<f64> {
        let mut times: Vec<f64> = self.autoregressive(n, 0.5).into_iter().map(|noise| 1.0 + 0.05 * noise).collect();
        let mut start = if self.uniform() < 0.5 { 0.0 } else { -self.uniform() * period };
        while start < n as f64 {
            let first = start.ceil();
            for behind in 0..period.ceil() as usize {
                let at = first + behind as f64;
                if at >= 0.0 && at < (start + period).min(n as f64) {
                    times[at as usize] += decay(at - start, period);
                }
            }
            let slow = first + f64::from(self.0.random_range(-1..=1));
            let takes = 0.5 * period * (JITTER * self.normal()).exp();
            if slow >= 0.0 && slow < n as f64 {
                times[slow as usize] += takes;
            }
            start += period;
        }
        times
    }

    /// A share of the steps, drawn, is `slow` times as long.
    fn stalling(&mut self, n: usize, share: f64, slow: f64) -> Vec<f64> {
        let mut times = self.steps(n, 0.0, 0.1);
        for time in &mut times {
            *time *= if self.uniform() < share { slow } else { 1.0 };
        }
        times
    }
}

/// Spread of what the slow step of a block takes.
const JITTER: f64 = 0.2;

/// What a step takes more for being so far behind the start of its block.
fn decay(behind: f64, period: f64) -> f64 {
    0.5 * (-4.0 * behind / period).exp()
}

/// Mean time of the steps of [`Draws::blocks`].
fn mean_of_blocks(period: f64) -> f64 {
    let decays = 0.125 * (1.0 - (-4.0_f64).exp());
    // Sums over whole steps exceed the integral by half a step's fall.
    1.0 + decays + decay(0.0, period) * 0.5 * (1.0 - (-4.0_f64).exp()) / period + 0.5 * (0.5 * JITTER * JITTER).exp()
}

/// Share of replicates in which something holds.
fn share(replicates: usize, mut holds: impl FnMut() -> bool) -> f64 {
    (0..replicates).filter(|_| holds()).count() as f64 / replicates as f64
}

/// Simulated shares, all of which are shown before one that does not hold fails the test.
struct Claims(Vec<String>);

impl Claims {
    fn new(title: &str) -> Self {
        show(&format!("\n{title}"));
        Self(Vec::new())
    }

    /// A share with its binomial error, and what it is claimed to lie between.
    fn claim(&mut self, what: &str, found: f64, replicates: usize, bounds: (f64, f64)) {
        self.within(0.005, what, found, replicates, bounds);
    }

    /// The same of a coverage or a power, of which a percent is enough to know.
    fn covers(&mut self, what: &str, found: f64, replicates: usize, bounds: (f64, f64)) {
        self.within(0.015, what, found, replicates, bounds);
    }

    fn within(&mut self, most: f64, what: &str, found: f64, replicates: usize, (low, high): (f64, f64)) {
        let error = (found * (1.0 - found) / replicates as f64).sqrt();
        show(&format!("  {what:<62} {found:.4} ± {error:.4}   claimed {low:.3} to {high:.3}"));
        assert!(error < most, "{what}: too few replicates");
        if !(low..=high).contains(&found) {
            self.0.push(format!("{what}: {found} is not within {low} to {high}"));
        }
    }

    fn hold(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

/// Of α = 0.05.
const EXACT: (f64, f64) = (0.04, 0.06);

/// Of 95 %.
const COVERS: (f64, f64) = (0.93, 0.97);

#[test]
fn verdicts_are_wrong_as_often_as_they_say() {
    const N: usize = 20_000;
    let mut claims =
        Claims::new("False verdicts where there is no difference, α = 0.05, and coverage of the ratio's interval:");
    let mut draws = Draws::new(1);
    let cells = [
        (3, 3, 0.02, 0.02, (0.030, 0.05)),
        (3, 3, 0.02, 0.06, EXACT),
        (3, 3, 0.01, 0.10, (0.04, 0.065)),
        (5, 5, 0.02, 0.02, EXACT),
        (5, 5, 0.02, 0.06, EXACT),
        (10, 10, 0.02, 0.02, EXACT),
        (10, 10, 0.02, 0.06, EXACT),
        (3, 10, 0.02, 0.02, (0.04, 0.065)),
        // Three runs tell badly that theirs is the larger spread: 0.07, the worst that was found.
        (3, 10, 0.06, 0.02, (0.05, 0.075)),
        (3, 10, 0.02, 0.06, EXACT),
    ];
    for (n, m, a, b, bounds) in cells {
        let mut covered = 0;
        let false_ones = share(N, || {
            let (side, base) = (draws.rates(n, 1.2, a), draws.rates(m, 1.2, b));
            let found = ratio(&side, &base).unwrap();
            let interval = found.interval.unwrap();
            covered += usize::from((interval.low..=interval.high).contains(&1.0));
            verdict(&found, (n, m)) != Verdict::NoDifferenceShown
        });
        let what = format!("n = {n} and {m}, spread {:.0} % and {:.0} %", 100.0 * a, 100.0 * b);
        claims.claim(&format!("verdict, {what}"), false_ones, N, bounds);
        claims.claim(&format!("interval of the ratio, {what}"), covered as f64 / N as f64, N, (1.0 - bounds.1, 0.97));
    }
    for n in [3, 5, 10] {
        let mut covered = 0;
        let false_ones = share(N, || {
            // What hits both of a repeat is larger than what is to be told apart.
            let pairs: Vec<(f64, f64)> = (0..n)
                .map(|_| {
                    let repeat = (0.3 * draws.normal()).exp();
                    (repeat * (0.02 * draws.normal()).exp(), repeat * (0.05 * draws.normal()).exp())
                })
                .collect();
            let found = paired_ratio(&pairs).unwrap();
            let interval = found.interval.unwrap();
            covered += usize::from((interval.low..=interval.high).contains(&1.0));
            verdict(&found, (n, n)) != Verdict::NoDifferenceShown
        });
        claims.claim(&format!("paired verdict, n = {n}"), false_ones, N, EXACT);
        claims.claim(&format!("interval of the paired ratio, n = {n}"), covered as f64 / N as f64, N, COVERS);
    }
    claims.hold();
}

#[test]
fn a_table_is_wrong_no_more_often_than_one_row() {
    const N: usize = 5_000;
    let mut claims = Claims::new("Tables without any difference in which a verdict is wrong, α = 0.05:");
    let mut draws = Draws::new(2);
    for (rows, n) in [(3, 5), (10, 5), (10, 10)] {
        let (mut plain, mut corrected) = (0, 0);
        for _ in 0..N {
            // All against one baseline, as in a note: the tests are not independent.
            let base = draws.rates(n, 1.0, 0.03);
            let table: Vec<_> =
                (0..rows).map(|_| (ratio(&draws.rates(n, 1.0, 0.03), &base).unwrap(), (n, n))).collect();
            let found = judge(&table);
            corrected += usize::from(found.iter().any(|j| j.verdict != Verdict::NoDifferenceShown));
            plain += usize::from(table.iter().any(|(ratio, runs)| verdict(ratio, *runs) != Verdict::NoDifferenceShown));
        }
        let [plain, corrected] = [plain, corrected].map(|count| count as f64 / N as f64);
        claims.claim(&format!("{rows} rows, n = {n}, corrected by Holm"), corrected, N, (0.01, 0.06));
        show(&format!("  {:<62} {plain:.4}", format!("{rows} rows, n = {n}, without correction")));
        assert!(plain > 0.08);
    }
    claims.hold();
}

#[test]
fn permutation_tests_are_wrong_as_often_as_they_say() {
    const N: usize = 4_000;
    let mut claims = Claims::new("Permutation test where there is no difference, p below 0.05:");
    let mut draws = Draws::new(3);
    // With 4 and 4 the p values are multiples of 2/70, of which one is below 0.05.
    for (n, m, a, b, bounds) in [
        (4, 4, 0.02, 0.02, (0.02, 0.04)),
        (5, 5, 0.02, 0.02, EXACT),
        // Unequal spread does no harm to many runs; to few it does some, which is why no verdict rests on this test.
        (5, 5, 0.02, 0.06, (0.04, 0.085)),
        (7, 7, 0.02, 0.06, (0.04, 0.075)),
        (10, 10, 0.02, 0.06, EXACT),
    ] {
        let found = share(N, || permutation_test(&draws.rates(n, 1.0, a), &draws.rates(m, 1.0, b)).unwrap().p < 0.05);
        claims.claim(&format!("n = {n} and {m}, spread {:.0} % and {:.0} %", 100.0 * a, 100.0 * b), found, N, bounds);
    }
    claims.hold();
}

#[test]
fn what_is_called_detectable_is_shown() {
    const N: usize = 20_000;
    let mut claims = Claims::new("Share of the verdicts that show the minimum detectable ratio, claimed power 0.8:");
    let mut draws = Draws::new(4);
    for n in [3, 5, 10] {
        // Sides whose variance is exactly that of the population.
        let spread: f64 = 0.03;
        let logs: Vec<f64> = (0..n).map(|i| i as f64).collect();
        let (middle, squares) = ((n - 1) as f64 / 2.0, (n * (n * n - 1)) as f64 / 12.0);
        let scale = spread / (squares / (n - 1) as f64).sqrt();
        let side: Vec<f64> = logs.iter().map(|x| ((x - middle) * scale).exp()).collect();
        let detectable = minimum_detectable(&side, &side).unwrap();
        let shown = share(N, || {
            let found = ratio(&draws.rates(n, detectable, spread), &draws.rates(n, 1.0, spread)).unwrap();
            verdict(&found, (n, n)) == Verdict::Faster
        });
        // With three runs the degrees of freedom that Welch estimates cost some of it.
        let low = if n == 3 { 0.67 } else { 0.77 };
        claims.claim(&format!("n = {n}, spread 3 %: a ratio of {detectable:.4}"), shown, N, (low, 0.82));
    }
    claims.hold();
}

#[test]
fn intervals_over_runs_cover() {
    const N: usize = 2_500;
    let mut claims = Claims::new("Coverage of the 95 % interval over runs, 200 steps each:");
    let mut draws = Draws::new(6);
    for (n, between, phi) in
        [(3, 0.05, 0.5), (5, 0.05, 0.5), (10, 0.05, 0.5), (3, 0.0, 0.5), (5, 0.0, 0.8), (5, 0.01, 0.0)]
    {
        let truth = (-0.3_f64.powi(2) / 2.0).exp();
        let found = share(N, || {
            let runs: Vec<_> = (0..n)
                .map(|_| {
                    let pace = (between * draws.normal()).exp();
                    let times: Vec<f64> = draws.steps(200, phi, 0.3).into_iter().map(|time| time * pace).collect();
                    run_rate(&times, 1, None).unwrap().it_per_s
                })
                .collect();
            let interval = rate_over_runs(&runs).unwrap().interval.unwrap();
            (interval.low..=interval.high).contains(&truth)
        });
        claims.claim(&format!("n = {n}, {:.0} % between runs, AR(1) {phi} within", 100.0 * between), found, N, COVERS);
    }
    claims.hold();
}
