"""The run of one rank."""

import atexit
import json
import os
import sys
from threading import get_ident
from time import perf_counter_ns
from typing import Optional

from . import about
from .connection import Connection
from .loader import Loader, loaded
from .step import Step
from .table import Table

PROTOCOL = 1
# What is measured outside expctl, where no config says it.
WARMUP, STEPS = 10, 100

#: The run of this process that is open, to which the loaders of `expctl.data` say what batches cost; None is none.
current: "Optional[Run]" = None


class Run:
    """A rank that reports its steps to expctl; outside expctl it prints a table at its end.

    `program` names it, `versions` are those of the packages that matter, `settings` its own (numbers, texts, True or False).
    `device` and `backend` (of the process group) are shown with them. `rank` and `world_size` are for programs that start their
    ranks themselves and set no environment. `warmup` and `steps` hold outside expctl only.
    """

    def __init__(
        self, program, versions=None, settings=None, device=None, backend=None, rank=None, world_size=None,
        warmup=WARMUP, steps=STEPS, **counts,
    ):  # fmt: skip
        self.program = program
        self.rank, self.world_size = about.ranks(rank, world_size)
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.rank))
        self.trial = about.trial()
        #: The settings of the trial by section: `run.settings["loader"]["batch_size"]`.
        self.settings = self.trial.get("settings", {})
        #: Folder of the data set, and the files in it to read; None and [] where there is none.
        self.data_dir = os.environ.get("EXPCTL_DATA_DIR")
        files = os.environ.get("EXPCTL_FILES")
        self.files = json.load(open(files))["files"] if files else []
        measure = self.settings.get("measure", {"warmup": warmup, "steps": steps})
        self.warmup, self.total = measure["warmup"], measure["warmup"] + measure["steps"]
        self._step = None
        # Whether batches count that the program takes from elsewhere than `loader`, and the thread whose waits are those of a step.
        self.counts_beside, self._thread = True, get_ident()
        self._table, self._connection = None, None
        socket = os.environ.get("EXPCTL_SOCKET")
        if socket:
            self._connection = Connection(socket)
            self._send(
                run={
                    "protocol": PROTOCOL,
                    "rank": self.rank,
                    "world_size": self.world_size,
                    "program": str(program),
                    "versions": about.versions(versions),
                    "settings": settings or {},
                    "device": device or about.device(),
                    "backend": backend,
                    "counts": {name: int(count) for name, count in counts.items()},
                }
            )
        else:
            self._table = Table()
        self._pid = os.getpid()
        self._hook, sys.excepthook = sys.excepthook, self._uncaught
        atexit.register(self.close)
        global current
        current = self

    def steps(self):
        """The steps of the trial, warm-up first. A step is over when the next one is asked for; what reporting it costs is in the
        next one, in no stage."""
        batch_size = self.settings.get("loader", {}).get("batch_size", 0)
        self._thread = get_ident()
        begin = start = perf_counter_ns()
        try:
            for number in range(self.total):
                step = self._step = Step(number, number >= self.warmup, batch_size)
                yield step
                if step.beside is not None:
                    step.take_beside()
                if step.device:
                    from .device import collect

                    collect(step)
                end = perf_counter_ns()
                # Neither is there any more once the run was closed.
                if self._connection is not None:
                    self._connection.send(step.line(start - begin, end - start))
                elif self._table is not None:
                    self._table.add(step, end - start)
                start = end
        finally:
            self._step = None

    def loader(self, dataloader, device=None, endless=False):
        """`dataloader` with its times in the steps; see `Loader`. The times of no other loader are in them then."""
        self.counts_beside = False
        return Loader(self, dataloader, device, endless)

    def loaded_beside(self, batch, waited, epoch):
        """Called by loaders of `expctl.data` with each batch of an epoch, for which the program waited so many ns. If it takes its
        batches from none that `loader` made, the step has what they cost, unless the program adds times of loading itself. Its samples and
        epoch are those of the first batch until they are set."""
        step = self._step
        # Inside a stage the wait is that of the stage, and on another thread it is none of the step.
        if not self.counts_beside or step is None or step.inner is not None or get_ident() != self._thread:
            return
        if step.beside is not None:
            loaded(step.beside, batch, waited)
            return
        step.beside = Step(step.number, step.measured)
        if loaded(step.beside, batch, waited):
            step.samples, step.epoch = step.beside.samples, epoch

    def note(self, **counts):
        """Say `samples_per_epoch`, `samples_total`, `stored_bytes` or `peak_memory_bytes` once they are known."""
        self._send(note={name: int(count) for name, count in counts.items()})

    def close(self, error=None):
        """Say that the run is over, and why if it failed. Later calls change nothing."""
        if self._pid != os.getpid():
            return
        global current
        if current is self:
            current = None
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                if error is None:
                    connection.send(line(note={"peak_memory_bytes": about.peak_memory_bytes()}))
                connection.send(line(end={} if error is None else {"error": str(error)[:2000]}))
            except OSError:
                # The supervisor is gone, and has said why.
                pass
            connection.close()
            live = about.live_modules()
            if live:
                print(
                    f"expctl: imported from the project's folder, not from the job's copy of the code: {', '.join(live)}; "
                    "folders in PYTHONPATH are taken from the copy",
                    file=sys.stderr,
                )
        table, self._table = self._table, None
        if table is not None and self.rank == 0:
            table.print(self.program, self.rank)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        self.close(None if kind is None else words(kind, error))

    def _send(self, **record):
        if self._connection is not None:
            self._connection.send(line(**record))

    def _uncaught(self, kind, error, trace):
        self.close(words(kind, error))
        self._hook(kind, error, trace)


def line(**record):
    """A record as a line. Numbers that are none are refused here, not by the supervisor."""
    return json.dumps(record, allow_nan=False) + "\n"


def words(kind, error):
    """`ValueError: what was wrong`."""
    return f"{kind.__name__}: {error}"
