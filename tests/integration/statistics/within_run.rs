//! What is said of the steps of one run: intervals, drift, stalls, blocks.

use super::*;

#[test]
fn intervals_within_a_run_cover() {
    const N: usize = 4_000;
    let mut claims = Claims::new("Coverage of the 95 % intervals within a run:");
    let mut draws = Draws::new(5);
    // Steps, dependence, bounds of the mean rate's, of the median rate's.
    let below = |low: f64| (low, 0.97);
    let cells = [
        (100, 0.0, COVERS, COVERS),
        (100, 0.8, below(0.85), below(0.85)),
        (200, 0.0, COVERS, COVERS),
        (200, 0.5, below(0.91), below(0.91)),
        (1000, 0.0, COVERS, COVERS),
        (1000, 0.5, COVERS, COVERS),
        (1000, 0.8, COVERS, COVERS),
        (1000, 0.9, below(0.92), below(0.92)),
    ];
    for (steps, phi, mean_bounds, median_bounds) in cells {
        let truth = (-0.3_f64.powi(2) / 2.0).exp();
        let (mut median, mut squares, mut within) = (0, 0.0, 0.0);
        let mean = share(N, || {
            let found = run_rate(&draws.steps(steps, phi, 0.3), 1, None).unwrap();
            let [mean, middle] = [found.it_per_s, found.median_it_per_s].map(|rate| rate.interval.unwrap());
            median += usize::from((middle.low..=middle.high).contains(&1.0));
            squares += (found.it_per_s.value / truth).ln().powi(2) / N as f64;
            within += found.it_per_s.error.unwrap().powi(2) / N as f64;
            (mean.low..=mean.high).contains(&truth)
        });
        let what = format!("{steps} steps, AR(1) {phi}");
        // Few blocks make the error too small, for which the interval reaches farther; it is not that reach.
        let share = (within / squares).sqrt();
        show(&format!("  {:<62} {share:.4}", format!("standard error over the scatter that there is, {what}")));
        assert!(share > 0.6 && share < 1.1, "{what}: {share}");
        claims.claim(&format!("mean rate, {what}"), mean, N, mean_bounds);
        claims.claim(&format!("median rate, {what}"), median as f64 / N as f64, N, median_bounds);
    }
    for (steps, period, slow, bounds) in
        [(200, 10, 100.0, below(0.92)), (1000, 10, 100.0, COVERS), (1000, 4, 5.0, COVERS), (1000, 7, 30.0, COVERS)]
    {
        let mean_time = 0.005_f64.exp() * (period as f64 - 1.0 + slow) / period as f64;
        let found = share(N, || {
            let found =
                run_rate(&draws.periodic(steps, period, slow, 0.1), 1, None).unwrap().it_per_s.interval.unwrap();
            (found.low..=found.high).contains(&(1.0 / mean_time))
        });
        claims.claim(&format!("mean rate, {steps} steps, every {period}th {slow} × as slow"), found, N, bounds);
    }
    for (steps, bounds) in [(1000, below(0.92)), (5000, COVERS)] {
        let mean_time = 0.005_f64.exp() * (1.0 + 0.02 * 19.0);
        let found = share(N, || {
            let found = run_rate(&draws.stalling(steps, 0.02, 20.0), 1, None).unwrap().it_per_s.interval.unwrap();
            (found.low..=found.high).contains(&(1.0 / mean_time))
        });
        claims.claim(&format!("mean rate, {steps} steps, of which 2 % by chance 20 × as slow"), found, N, bounds);
    }
    claims.hold();
}

#[test]
fn steady_runs_are_left_in_peace() {
    const N: usize = 2_000;
    let mut claims =
        Claims::new("Steady series of which a warm-up, a drift or outliers are reported, and series that have them:");
    let mut draws = Draws::new(7);
    type Series = fn(&mut Draws) -> Vec<f64>;
    let steady: [(&str, Series); 8] = [
        ("independent, 100 steps", |d| d.steps(100, 0.0, 0.1)),
        ("independent, 1,000 steps", |d| d.steps(1000, 0.0, 0.3)),
        ("AR(1) 0.8, 100 steps", |d| d.steps(100, 0.8, 0.1)),
        ("AR(1) 0.8, 100 steps, large", |d| d.steps(100, 0.8, 0.3)),
        ("AR(1) 0.8, 1,000 steps", |d| d.steps(1000, 0.8, 0.1)),
        ("every 10th 100 × as slow, 400 steps", |d| d.periodic(400, 10, 100.0, 0.1)),
        ("every 4th 30 × as slow, 100 steps", |d| d.periodic(100, 4, 30.0, 0.1)),
        ("10 % by chance 20 × as slow, 400 steps", |d| d.stalling(400, 0.1, 20.0)),
    ];
    for (what, series) in steady {
        let mut reported = [0; 3];
        for _ in 0..N {
            let times = series(&mut draws);
            let found =
                [warm_up(&times, None).is_some(), drift(&times, None).is_some(), slow_outliers(&times, None).is_some()];
            reported.iter_mut().zip(found).for_each(|(count, found)| *count += usize::from(found));
        }
        let [warm, drifts, apart] = reported.map(|count| count as f64 / N as f64);
        for (sign, found) in [("warm-up", warm), ("drift", drifts), ("outliers", apart)] {
            // A short run whose steps hang together closely looks like one that drifts, or has outliers.
            let most = if what.starts_with("AR(1) 0.8, 100") { 0.025 } else { 0.01 };
            claims.claim(&format!("{what}: {sign}"), found, N, (0.0, most));
        }
    }
    let warming = share(N, || {
        let mut times = draws.steps(400, 0.3, 0.2);
        times[..40].iter_mut().for_each(|time| *time *= 2.0);
        warm_up(&times, None).is_some_and(|found| (35..=120).contains(&found.steps))
    });
    let drifting = share(N, || {
        let times = draws.steps(400, 0.3, 0.2).into_iter().enumerate();
        drift(&times.map(|(i, time)| time * (1.0 + 0.5 * i as f64 / 400.0)).collect::<Vec<_>>(), None).is_some()
    });
    claims.claim("40 of 400 steps twice as slow: warm-up of 35 to 120 steps", warming, N, (0.95, 1.0));
    claims.claim("half as slow again over 400 steps: drift", drifting, N, (0.93, 1.0));
    claims.hold();
}

#[test]
fn blocks_of_rows_are_no_signs_and_their_intervals_cover() {
    const N: usize = 1_000;
    let mut claims = Claims::new("Series of a slow step a block, with the period from the settings, and without:");
    let mut draws = Draws::new(8);
    for period in [128.0, 512.0, 163.84] {
        for blocks in [3.3, 8.3, 20.3] {
            let n = (blocks * period) as usize;
            // The loader may read ahead, so where a block begins by the settings need not be where the slow step is.
            let known = Periods::new(period, &[0.0], n).unwrap();
            for periods in [Some(&known), None] {
                // Fewer than eight cannot be told from chance by the series alone.
                if periods.is_none() && blocks < 8.0 {
                    continue;
                }
                let (mut reported, mut covered, mut without) = ([0; 3], 0, 0);
                for _ in 0..N {
                    let times = draws.blocks(n, period);
                    let found = [
                        warm_up(&times, periods).is_some(),
                        drift(&times, periods).is_some(),
                        slow_outliers(&times, periods).is_some(),
                    ];
                    reported.iter_mut().zip(found).for_each(|(count, found)| *count += usize::from(found));
                    match run_rate(&times, 1, periods).unwrap().it_per_s.interval {
                        Some(i) => covered += usize::from((i.low..=i.high).contains(&(1.0 / mean_of_blocks(period)))),
                        None => without += 1,
                    }
                }
                let how = if periods.is_some() { "known" } else { "found" };
                let what = format!("{blocks} blocks of {period} steps, {how}");
                for (sign, count) in ["warm-up", "drift", "outliers"].into_iter().zip(reported) {
                    claims.claim(&format!("{what}: {sign}"), count as f64 / N as f64, N, (0.0, 0.01));
                }
                if blocks < 5.0 {
                    claims.claim(&format!("{what}: no interval"), without as f64 / N as f64, N, (1.0, 1.0));
                } else {
                    claims.claim(&format!("{what}: no interval"), without as f64 / N as f64, N, (0.0, 0.0));
                    claims.covers(&format!("{what}: interval"), covered as f64 / N as f64, N, (0.92, 1.0));
                }
            }
        }
    }
    claims.hold();
}

#[test]
fn warm_ups_and_stalls_among_blocks_are_found() {
    const N: usize = 1_000;
    let mut claims = Claims::new("Series of a slow step a block that do have a sign:");
    let mut draws = Draws::new(9);
    for (period, blocks) in [(128.0, 3.3), (128.0, 8.3), (128.0, 20.3), (163.84, 8.3), (512.0, 3.3)] {
        let n = (blocks * period) as usize;
        let known = Periods::new(period, &[0.0], n).unwrap();
        let long = n / 10;
        let found = share(N, || {
            let mut times = draws.blocks(n, period);
            times[..long].iter_mut().filter(|time| **time < 5.0).for_each(|time| *time *= 2.0);
            let found = warm_up(&times, Some(&known));
            found.is_some_and(|w| w.steps + 20 >= long && w.steps as f64 <= 1.5 * long as f64 + period)
        });
        claims.covers(&format!("{blocks} blocks of {period}: warm-up of {long} steps"), found, N, (0.88, 1.0));
        let found = share(N, || {
            let times = draws.blocks(n, period).into_iter().enumerate();
            let times: Vec<f64> = times.map(|(i, time)| time * (1.0 + 0.5 * i as f64 / n as f64)).collect();
            drift(&times, Some(&known)).is_some()
        });
        claims.covers(&format!("{blocks} blocks of {period}: half as slow again"), found, N, (0.95, 1.0));
        let found = share(N, || {
            let mut times = draws.blocks(n, period);
            // Half a block behind where one begins, as far as the settings know; it may still fall beside a slow step.
            let at = (1.5 * period) as usize;
            times[at] += 0.3 * n as f64;
            slow_outliers(&times, Some(&known)).is_some_and(|found| found.places.contains(&at))
        });
        claims.covers(&format!("{blocks} blocks of {period}: a stall"), found, N, (0.87, 1.0));
    }
    // A cold store: the first blocks take five times as long, the steps between are as ever.
    let known = Periods::new(128.0, &[0.0], 2598).unwrap();
    let found = share(N, || {
        let mut times = draws.blocks(2598, 128.0);
        times[..300].iter_mut().filter(|time| **time > 5.0).for_each(|time| *time *= 5.0);
        warm_up(&times, Some(&known)).is_some_and(|found| found.steps >= 128 && found.period == Some(128.0))
    });
    claims.covers("20.3 blocks of 128: the first two or three 5 × as slow", found, N, (0.75, 1.0));
    claims.hold();
}
