"""Writes tests/samples/statistics/vectors.json: what SciPy, statsmodels and arch say, for tests/integration/statistics.rs to hold ours against.

Only who regenerates the file needs them: pip install numpy scipy statsmodels arch; then: python tests/python/statistics_vectors.py
"""

import json
from pathlib import Path

import arch
import numpy as np
import scipy
import statsmodels
from arch.bootstrap import optimal_block_length
from scipy import optimize, stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower

random = np.random.default_rng(20260101)


def rates(n, mean, spread):
    return [round(float(v), 6) for v in mean * np.exp(spread * random.standard_normal(n))]


def pairs_of_sides():
    shapes = [(3, 3), (3, 5), (5, 5), (10, 10), (4, 12), (2, 2), (2, 9)]
    return [(rates(n, 10 * ratio, a), rates(m, 10, b))
            for n, m in shapes for ratio, a, b in [(1.0, 0.02, 0.02), (1.06, 0.01, 0.05), (0.7, 0.2, 0.1)]]


def welch(side, base):
    found = stats.ttest_ind(np.log(side), np.log(base), equal_var=False)
    interval = found.confidence_interval(0.95)
    ratio = np.exp(np.mean(np.log(side)) - np.mean(np.log(base)))
    return {"side": side, "base": base, "ratio": ratio, "low": np.exp(interval.low), "high": np.exp(interval.high),
            "p": found.pvalue}


def paired(side, base):
    logs = np.log(side) - np.log(base)
    found = stats.ttest_1samp(logs, 0.0)
    interval = found.confidence_interval(0.95)
    return {"side": side, "base": base, "ratio": np.exp(logs.mean()), "low": np.exp(interval.low),
            "high": np.exp(interval.high), "p": found.pvalue,
            "detectable": np.exp(noncentrality(len(logs) - 1) * np.std(logs, ddof=1) / np.sqrt(len(logs)))}


def noncentrality(freedom):
    """How many standard errors a difference must be for t to show it with power 0.8."""
    t = stats.t.ppf(0.975, freedom)
    # The other tail is too small for scipy to tell where delta is large.
    power = lambda d: stats.nct.sf(t, freedom, d) + np.nan_to_num(stats.nct.cdf(-t, freedom, d)) - 0.8
    return optimize.brentq(power, 0.1, 30)


def statistic(side, base, axis):
    error = np.var(side, axis=axis, ddof=1) / side.shape[axis] + np.var(base, axis=axis, ddof=1) / base.shape[axis]
    return np.abs(np.mean(side, axis=axis) - np.mean(base, axis=axis)) / np.sqrt(error)


def permutation(side, base):
    found = stats.permutation_test((np.log(side), np.log(base)), statistic, alternative="greater", vectorized=True,
                                   n_resamples=50_000, rng=np.random.default_rng(1))
    return {"side": side, "base": base, "p": found.pvalue, "exact": len(found.null_distribution) < 50_000}


def detectable(side, base):
    """The ratio that Welch's t shows with power 0.8, by the noncentral t."""
    a, b = (np.var(np.log(v), ddof=1) / len(v) for v in (side, base))
    freedom = (a + b) ** 2 / (a**2 / (len(side) - 1) + b**2 / (len(base) - 1))
    return {"side": side, "base": base, "ratio": np.exp(noncentrality(freedom) * np.sqrt(a + b))}


def detectable_by_statsmodels(n, spread):
    """Sides of equal variance, for which statsmodels has it ready."""
    logs = np.linspace(-1, 1, n)
    logs *= spread / np.std(logs, ddof=1)
    effect = TTestIndPower().solve_power(nobs1=n, alpha=0.05, power=0.8)
    return {"side": list(np.exp(logs)), "base": list(10 * np.exp(logs)), "ratio": np.exp(effect * spread)}


def blocks(n, phi):
    series = random.standard_normal(n)
    for i in range(1, n):
        series[i] += phi * series[i - 1]
    series = np.round(20 + series, 4)
    return {"times": list(series), "circular": float(optimal_block_length(series)["circular"].iloc[0])}


sides = pairs_of_sides()
values = rates(11, 5, 0.5)
ps = [list(np.round(random.random(n) ** 3, 6)) for n in (1, 2, 5, 12)] + [[0.01, 0.01, 0.04, 0.04, 0.03]]
all_of_them = {
    "by": f"numpy {np.__version__}, scipy {scipy.__version__}, statsmodels {statsmodels.__version__}, arch {arch.__version__}",
    "welch": [welch(*s) for s in sides],
    "paired": [paired(rates(n, 11, 0.1), rates(n, 10, 0.1)) for n in (2, 3, 5, 10)],
    "permutation": [permutation(*s) for s in sides] + [permutation([5, 5, 6, 7], [5, 4, 4, 5]), permutation([5, 6, 7], [5, 5, 6, 4, 4])],
    "holm": [{"p": p, "corrected": list(multipletests(p, method="holm")[1])} for p in ps],
    "quantiles": {"values": values, "at": [[p, float(np.quantile(values, p))] for p in (0, 0.025, 0.05, 0.5, 0.9, 1)]},
    "noncentral_t": [{"t": t, "freedom": f, "delta": d, "p": float(stats.nct.cdf(t, f, d))}
                     for t in (-2.5, 0.0, 2.0, 4.3) for f in (1.0, 1.6, 2.0, 4.0, 8.5, 18.0, 200.0) for d in (0.0, 1.0, 3.5)],
    "detectable": [detectable(*s) for s in sides] + [detectable_by_statsmodels(n, 0.03) for n in (3, 5, 10, 30)],
    "blocks": [blocks(n, phi) for n, phi in ((200, 0.0), (300, 0.5), (600, 0.8), (400, -0.4))],
}
path = Path(__file__).parent.parent / "samples/statistics/vectors.json"
path.write_text(json.dumps(all_of_them, indent=1, default=float) + "\n")
