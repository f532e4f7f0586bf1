"""Where the time of loading goes."""

import time
from dataclasses import dataclass, field
from typing import Dict, List, NamedTuple, Tuple

from .._native import Stream


class BatchTimes(NamedTuple):
    """What loading a batch cost. `expctl.Run` puts it into the step that uses the batch."""

    stages: List[Tuple[str, int, int]]
    """For each stage its name, the ns that loader threads worked on it, and the ns that the program waited for it."""
    samples: int
    """Rows or samples of the batch."""
    bytes_read: int
    """Bytes that were read for it."""
    nbytes: int
    """Bytes of its arrays, but the numbers of the rows or samples."""


class StreamTotals(NamedTuple):
    """What all batches of a stream cost."""

    counts: Tuple[int, int, int]
    """Batches, rows or samples, bytes read."""
    stages: List[Tuple[str, int, int]]
    """Of each stage its name, busy and exposed ns."""

    @classmethod
    def of(cls, stream: Stream) -> "StreamTotals":
        """The totals so far."""
        return cls(stream.counts(), stream.stages())


class Iteration:
    """An epoch, or what is left of one, of a stream."""

    def __init__(self, stream: Stream):
        self.stream = stream
        #: Another epoch of the same stream may have come before.
        self.before = StreamTotals.of(stream)
        self.begun = time.perf_counter()


@dataclass(repr=False)
class StageTimes:
    """What the batches of a loader cost so far. All times are in seconds.

    busy: time that loader threads worked on a stage, summed over threads. exposed: time that the program waited for a batch while
    it was in this stage. Only exposed time makes a step longer.
    """

    batches: int = 0
    rows: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    """From the start of each iteration to its last batch, the program's own work included."""
    busy: Dict[str, float] = field(default_factory=dict)
    exposed: Dict[str, float] = field(default_factory=dict)

    @property
    def waited(self) -> float:
        """Seconds that the program waited for batches."""
        return sum(self.exposed.values())

    def add(self, iteration: "Iteration") -> None:
        """Add what an iteration has cost so far."""
        now, before = StreamTotals.of(iteration.stream), iteration.before
        self.batches += now.counts[0] - before.counts[0]
        self.rows += now.counts[1] - before.counts[1]
        self.bytes_read += now.counts[2] - before.counts[2]
        self.seconds += time.perf_counter() - iteration.begun
        for (name, busy, exposed), (_, busy_before, exposed_before) in zip(now.stages, before.stages):
            self.busy[name] = self.busy.get(name, 0.0) + (busy - busy_before) / 1e9
            self.exposed[name] = self.exposed.get(name, 0.0) + (exposed - exposed_before) / 1e9

    def table(self) -> List[Tuple[str, float, float]]:
        """Stage, busy and exposed seconds, of the stages that took any time."""
        return [(name, busy, self.exposed[name]) for name, busy in self.busy.items() if busy or self.exposed[name]]

    def __str__(self) -> str:
        lines = [f"{self.batches} batches, {self.rows} rows, {self.bytes_read / 1e6:.1f} MB read in {self.seconds:.2f} s"]
        lines.append(f"{'stage':<10}{'busy s':>10}{'exposed s':>12}")
        lines += [f"{name:<10}{busy:>10.3f}{exposed:>12.3f}" for name, busy, exposed in self.table()]
        return "\n".join(lines)

    # Notebooks and the interpreter show the table, too.
    __repr__ = __str__

    def _repr_html_(self) -> str:
        title, rows = str(self).split("\n", 1)[0], []
        for name, busy, exposed in self.table():
            rows.append(f"<tr><td>{name}</td><td>{busy:.3f}</td><td>{exposed:.3f}</td></tr>")
        return f"<table><caption>{title}</caption><tr><th>stage</th><th>busy s</th><th>exposed s</th></tr>{''.join(rows)}</table>"


class Explanation(str):
    """A text that notebooks and the interpreter show as it is, not as a literal."""

    __repr__ = str.__str__


ADVICE = {
    "read": "Reading holds the program up: larger chunks (sampler=chunked(...)), more threads, or memory=True read less often.",
    "decode": "Decompressing holds the program up: more threads, or files with a faster codec (lz4, zstd) or none.",
    "collate": "Putting rows together holds the program up: more threads, fewer genes, or sparse=True.",
    "sample": "Drawing rows holds the program up: larger batches.",
    "other": "The program waits for threads that begin to work: larger batches, or a larger prefetch.",
}


def explain(times: StageTimes, threads: int, items: str, advice: Dict[str, str]) -> Explanation:
    """What holds a loader of `items` up, in a few sentences; `advice` is what can be done, by stage."""
    if times.batches == 0:
        return Explanation("No batch has been loaded yet.")
    share = times.waited / times.seconds if times.seconds > 0 else 0.0
    busy = sum(times.busy.values())
    lines = [
        f"{times.rows} {items} in {times.batches} batches took {times.seconds:.2f} s. In {times.waited:.2f} s of it "
        f"({share:.0%}) the program waited for batches; in the rest it worked itself.",
        f"{threads} loader threads worked {busy:.2f} s in all."
        if threads
        else "There are no loader threads (threads=0): each batch is built while the program waits.",
    ]
    if share < 0.05:
        lines.append("Loading does not hold the program up.")
    else:
        stage = max(times.exposed, key=lambda name: times.exposed[name])
        lines.append(f"It waited longest for {stage} ({times.exposed[stage]:.2f} s). {advice.get(stage, '')}".strip())
    return Explanation("\n".join(lines))
