"""The program `expctl`, and what its exit codes mean here."""

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Optional, Sequence, Tuple, Union

Root = Optional[Union[str, "os.PathLike[str]"]]

#: Exit codes of docs/reference/commands.md.
TRIALS_FAILED, INCOMPLETE, REFUSED = 5, 6, 7


class ResultsError(Exception):
    """`expctl` could not answer; the text is what it said. `exit_code` is its exit code, None where it did not run."""

    exit_code: Optional[int]

    def __init__(self, message: str, exit_code: Optional[int] = None):
        super().__init__(message)
        self.exit_code = exit_code


class ProgramNotFound(ResultsError):
    """There is no program `expctl`."""


class JobNotFound(ResultsError, LookupError):
    """The ledger has no such job; the text lists those that it has."""


class Refused(ResultsError):
    """The question has no answer: a published job has no steps; nothing in the jobs compares."""


class IncompleteWarning(UserWarning):
    """Trials failed or did not end: figures are those of the others."""


def program() -> str:
    """The program: that of the variable EXPCTL, else the one beside this Python, else that of PATH.

    Raises:
        ProgramNotFound: there is none.
    """
    named = os.environ.get("EXPCTL")
    if named:
        return named
    beside = Path(sys.executable).with_name("expctl")
    found = str(beside) if beside.is_file() else shutil.which("expctl")
    if found is None:
        raise ProgramNotFound("there is no program expctl in PATH; install it, or name it: EXPCTL=/path/to/expctl")
    return found


def run(arguments: Sequence[str], root: Root = None) -> Tuple[str, Optional[str]]:
    """Runs `expctl`; returns what it printed, and what it said of trials that are missing in it, if any are.

    Raises:
        ProgramNotFound: there is none, or it cannot be run.
        JobNotFound, Refused, ResultsError: it could not answer.
    """
    command = [program(), *(["--root", os.fspath(root)] if root is not None else []), *arguments]
    # Its words come without colours, in which no exception is readable.
    environment = {**os.environ, "NO_COLOR": "1"}
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment)
    except OSError as error:
        raise ProgramNotFound(f"{command[0]} cannot be run: {error}") from error
    said = done.stderr.strip()
    if done.returncode == 0:
        return done.stdout, None
    if done.returncode in (TRIALS_FAILED, INCOMPLETE) and done.stdout.strip():
        return done.stdout, said
    said = said.removeprefix("error: ") or f"{command[0]} ended with exit code {done.returncode}"
    if done.returncode == REFUSED:
        raise (JobNotFound if "there is no job" in said else Refused)(said, done.returncode)
    raise ResultsError(said, done.returncode)


def warn(missing: Optional[str]) -> None:
    """Warns of trials that are missing, at the caller of the function of this package that the user called."""
    if missing is not None:
        warnings.warn(missing.removeprefix("error: "), IncompleteWarning, stacklevel=3)
