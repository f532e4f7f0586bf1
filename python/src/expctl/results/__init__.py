"""Reads the results of expctl: jobs, their trials and steps as tables, and comparisons with ratios, intervals and verdicts.

    import expctl.results as xr

    xr.jobs()                                   # a list; a table in a notebook
    job = xr.job(12)
    job.trials(as_="pandas")                    # a row for each trial: outcome, rates, intervals, stages, settings
    job.steps(as_="polars", measured=True)      # a row for each step of each rank
    xr.compare(12, 13).row("ids").ratio.value   # how many times as fast as the baseline

Nothing is ever written to the ledger. All figures come from the program `expctl`, which has to be installed: rates and statistics exist once.
`root=` names the project, as `--root` does; without it, it is found from the working folder. Guide: docs/guide/results-in-python.md.
"""

from .comparison import ComparedRow, Comparison, Group, Interval, Ratio, compare
from .jobs import Job, JobSummary, Jobs, job, jobs
from .program import IncompleteWarning, JobNotFound, ProgramNotFound, Refused, ResultsError

__all__ = [
    "ComparedRow", "Comparison", "Group", "IncompleteWarning", "Interval", "Job", "JobNotFound", "JobSummary", "Jobs", "ProgramNotFound", "Ratio",
    "Refused", "ResultsError", "compare", "job", "jobs",
]
