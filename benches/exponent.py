"""How a cost grows with a size: the exponent of a line through logarithms.

1 is in proportion to the size, 0 does not depend on it. The interval covers the noise of the runs, not that the sizes lie on no line.
"""

import math
import random
import statistics

BOOTSTRAP = 2000


def slope(points):
    """Slope of the least-squares line through the logarithms of size and cost."""
    x, y = [math.log(n) for n, _ in points], [math.log(cost) for _, cost in points]
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) / sum((a - mean_x) ** 2 for a in x)


def interval(by_n, statistic):
    """95 % interval of a statistic of the costs by size: runs are drawn again within each size."""
    draw = random.Random(1)
    again = sorted(statistic({n: draw.choices(runs, k=len(runs)) for n, runs in by_n.items()}) for _ in range(BOOTSTRAP))
    return {"low": again[int(0.025 * BOOTSTRAP)], "high": again[int(0.975 * BOOTSTRAP) - 1]}


def exponent(by_n):
    """The slope over all runs of each size, and its 95 % interval."""

    def of(by_n):
        return slope([(n, cost) for n, runs in by_n.items() for cost in runs])

    return of(by_n), interval(by_n, of)
