"""Jobs side by side, as `expctl compare` puts them."""

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

from .program import Root, run, warn


@dataclass(frozen=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Ratio:
    """How many times as fast as the baseline: 2 is two times as fast."""

    value: float
    #: None below two runs on a side, and where runs do not differ.
    interval: Optional[Interval]
    #: Two-sided p value of the ratio being 1, not corrected for the table.
    p: Optional[float]


@dataclass(frozen=True)
class ComparedRow:
    """A variant at one point of its sweep, or a published row."""

    job: str
    config: str
    variant: str
    #: The variant with its swept settings.
    label: str
    #: Its name in tables.
    method: str
    #: "measured", or "imported" for what others published.
    rate_class: str
    #: Iterations per second of the slowest rank, a value for each run.
    it_per_s: Tuple[float, ...]
    #: Samples per second of all ranks, a value for each run.
    samples_per_s: Tuple[float, ...]
    #: Geometric mean over the runs, samples per second, and its interval; None for imported rows.
    samples_per_s_mean: Optional[float]
    samples_per_s_interval: Optional[Interval]
    #: Whether ratios refer to this row.
    baseline: bool
    #: Ratio of samples per second to the baseline.
    ratio: Optional[Ratio]
    #: "faster", "slower", "no_difference_shown", "too_few_runs", "too_short" or "no_spread"; None without a ratio.
    verdict: Optional[str]
    #: p value of the ratio, corrected by Holm over the table.
    p_holm: Optional[float]
    #: Settings in which the row differs from its baseline besides the one under study: name, value there, value here.
    confounds: Tuple[Tuple[str, str, str], ...]
    #: All that `expctl compare --json` says of the row.
    raw: Dict[str, Any]


@dataclass(frozen=True)
class Group:
    """Rows of one table: the same mode, data set and class."""

    mode: str
    #: Name of the class; empty if there is one.
    class_name: str
    profiler: bool
    rows: Tuple[ComparedRow, ...]


@dataclass(frozen=True)
class Comparison:
    """Jobs side by side."""

    groups: Tuple[Group, ...]
    #: All that `expctl compare --json` says.
    raw: Dict[str, Any]
    _markdown: str

    @property
    def rows(self) -> List[ComparedRow]:
        """The rows of all groups."""
        return [row for group in self.groups for row in group.rows]

    def row(self, label: str, job: Optional[Union[int, str]] = None) -> ComparedRow:
        """The row of a variant (with its swept settings, where there is a sweep), in a job where several have it.

        Raises:
            LookupError: there is none, or several.
        """
        found = [row for row in self.rows if row.label == label and job in (None, row.job) or row.label == label and str(job) == row.job]
        if len(found) != 1:
            there = ", ".join(f"{row.label!r} of job {row.job}" for row in self.rows)
            raise LookupError(f"{len(found)} rows are called {label!r}; there are {there}")
        return found[0]

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    def _repr_markdown_(self) -> str:
        return self._markdown

    def __str__(self) -> str:
        return self._markdown


def compare(*jobs: Union[int, str], baseline: Optional[Union[int, str]] = None, root: Root = None) -> Comparison:
    """Put jobs side by side.

    Args:
        jobs: numbers, or names: "428/430" for several together, "published:392" for the published one of two.
        baseline: the job that ratios refer to; the first one without it.
        root: folder of the project; without it, it is found from the working folder.

    Raises:
        JobNotFound: there is no such job.
        Refused: nothing in the jobs compares.
    """
    names = [str(job) for job in jobs]
    if not names:
        raise TypeError("compare() needs a job")
    arguments = ["compare", *names, *(["--baseline", str(baseline)] if baseline is not None else []), "--format"]
    said, missing = run([*arguments, "json"], root)
    markdown, _ = run([*arguments, "markdown"], root)
    warn(missing)
    raw = json.loads(said)
    return Comparison(tuple(group_of(group) for group in raw["groups"]), raw, markdown)


def group_of(raw: Dict[str, Any]) -> Group:
    """A group of the JSON."""
    return Group(raw["mode"], raw["class"], raw["profiler"], tuple(row_of(line) for line in raw["lines"]))


def row_of(raw: Dict[str, Any]) -> ComparedRow:
    """A line of the JSON."""
    mean = raw["samples_per_s_rate"]
    ratio = raw["ratio_samples_per_s"]
    return ComparedRow(
        job=raw["job"],
        config=raw["config"],
        variant=raw["variant"],
        label=raw["label"],
        method=raw["method"],
        rate_class=raw["class"],
        it_per_s=tuple(raw["it_per_s"]),
        samples_per_s=tuple(raw["samples_per_s"]),
        samples_per_s_mean=mean and mean["value"],
        samples_per_s_interval=interval_of(mean and mean["interval"]),
        baseline=raw["baseline"],
        ratio=ratio and Ratio(ratio["value"], interval_of(ratio["interval"]), ratio["p"]),
        verdict=raw["verdict"],
        p_holm=raw["p_holm"],
        confounds=tuple((one["setting"], one["base"], one["row"]) for one in [*raw["crosses"], *raw["confounds"]]),
        raw=raw,
    )


def interval_of(raw: Optional[Dict[str, float]]) -> Optional[Interval]:
    """An interval of the JSON."""
    return raw and Interval(raw["low"], raw["high"])
