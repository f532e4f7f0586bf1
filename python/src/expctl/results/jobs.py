"""Jobs of a ledger, and the tables of one job."""

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Dict, List, Optional, Union

from .frames import Form, chosen, exported
from .program import Root, run, warn
from .tables import Shown, figure


@dataclass(frozen=True)
class JobSummary:
    """A job that was measured here."""

    job: int
    config: str
    #: "slurm", "slurmrest" or "local".
    backend: str
    #: When it was submitted, UTC.
    submitted: datetime
    #: Number of trials in each state that occurs: completed, failed, interrupted, running, waiting, lost, not_started, unknown.
    trials: Dict[str, int]

    def open(self, root: Root = None) -> "Job":
        """The job itself."""
        return job(self.job, root=root)


class Jobs(List[JobSummary], Shown):
    """Jobs, newest first."""

    def _cells(self) -> List[List[str]]:
        rows = [
            [
                str(one.job), one.config, one.backend, f"{one.submitted:%Y-%m-%d %H:%M} UTC",
                ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in one.trials.items()),
            ]
            for one in self
        ]  # fmt: skip
        return [["job", "config", "backend", "submitted", "trials"], *rows]


def jobs(root: Root = None) -> Jobs:
    """The jobs of a ledger that were measured here, newest first.

    Args:
        root: folder of the project; without it, it is found from the working folder.

    Raises:
        ProgramNotFound: the program `expctl` is not installed.
        ResultsError: the ledger cannot be read.
    """
    said, missing = run(["status", "--json"], root)
    warn(missing)
    return Jobs(
        JobSummary(
            job=row["job"],
            config=row["config"],
            backend=row["backend"],
            submitted=datetime.fromtimestamp(row["submitted"], timezone.utc),
            trials={count["state"]: count["trials"] for count in row["trials"]},
        )
        for row in json.loads(said)
    )


def job(name: Union[int, str], root: Root = None) -> "Job":
    """A job: its number, or `published:392` for the published one of two, or `428/430` for jobs that were published as one.

    Args:
        name: the job.
        root: folder of the project; without it, it is found from the working folder.

    Raises:
        JobNotFound: there is none of this name.
        ProgramNotFound: the program `expctl` is not installed.
    """
    return Job(name, root)


class Job(Shown):
    """A job, measured here or published by others. Each call reads the ledger anew."""

    def __init__(self, name: Union[int, str], root: Root = None):
        self.name = str(name)
        self._root = root
        first = self._trials("dicts")[0][0]
        #: Name of its config.
        self.config: str = first["config"]
        #: Folder of `experiments/`.
        self.study: str = first["study"]
        #: Whether others published it: then it has rates and settings, but no steps.
        self.imported: bool = first["class"] == "imported"

    def _trials(self, form: Form) -> Any:
        return exported(self.name, "trials", form, self._root)

    def trials(self, as_: Form = "dicts") -> Any:
        """A row for each trial: outcome, rates (per second) with 95 % intervals within the run, the mean measured step by stage (ms), settings.

        Columns are described in docs/guide/export.md. Trials that did not complete have no rates.

        Args:
            as_: "dicts" for a list of dicts, "pandas", "polars" or "arrow".
        """
        table, missing = self._trials(as_)
        warn(missing)
        return table

    def steps(
        self,
        as_: Form = "dicts",
        trial: Optional[str] = None,
        rank: Optional[int] = None,
        measured: Optional[bool] = None,
    ) -> Any:
        """A row for each step of each rank of each trial, joined over attempts. Times are nanoseconds, sizes bytes.

        Columns are those of the step tables (docs/reference/ledger.md) behind `job`, `trial`, `variant`, `repeat`, the swept settings and `rank`.

        Args:
            as_: "dicts" for a list of dicts, "pandas", "polars" or "arrow".
            trial: the id of a trial; all without it.
            rank: a rank; all without it.
            measured: True for the measured steps alone, False for the warm-up; both without it.

        Raises:
            Refused: others published the job.
        """
        table, missing = exported(self.name, "steps", as_, self._root)
        warn(missing)
        return chosen(table, as_, trial=trial, rank=rank, measured=measured)

    def _cells(self) -> List[List[str]]:
        trials, _ = self._trials("dicts")
        rows = [
            [
                row["trial"],
                row["state"],
                figure(row["it_per_s"], (row["it_per_s_low"], row["it_per_s_high"])),
                figure(row["samples_per_s"], (row["samples_per_s_low"], row["samples_per_s_high"])),
                row["class"],
                row["reason"] or "",
            ]
            for row in trials
        ]
        return [["trial", "state", "it/s", "samples/s", "class", "reason"], *rows]

    def __repr__(self) -> str:
        return f"<job {self.name} of {self.config}{', imported' if self.imported else ''}>"
