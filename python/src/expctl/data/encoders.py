"""Class numbers of obs columns that stay the same from one data set to the next."""

import json
import os
import tempfile
from collections.abc import Mapping
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from .._native import DataError, ObsColumns

VERSION = 1


class Encoders(Mapping):
    """For each obs column the names of its classes; the place of a name in its list is the number of the class in a batch.

        train = open("train.h5ad", obs=["cell_type"])
        train.encoders().save("classes.json")
        test = open("test.h5ad", obs=["cell_type"], encoders="classes.json")
        test.classes == train.classes        # whatever classes test.h5ad has, and in whatever order

    It is a mapping: `encoders["cell_type"]` is a tuple of str. Make one of your own with `Encoders({"cell_type": ["B cell", "NK"]})`.
    """

    def __init__(self, classes: "Mapping[str, Sequence[str]]"):
        self._classes: Dict[str, Tuple[str, ...]] = {}
        for column, names in classes.items():
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise TypeError(f"the classes of {column!r} are a list of names, and not {names!r}")
            if len(set(names)) != len(names):
                twice = next(name for name in names if list(names).count(name) > 1)
                raise ValueError(f"the classes of {column!r} have {twice!r} more than once")
            self._classes[column] = tuple(names)

    def save(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Write them to a JSON file, which is replaced as a whole or not at all. Raises OSError."""
        path = os.fspath(path)
        text = json.dumps({"version": VERSION, "classes": self._classes}, ensure_ascii=False, indent=1)
        handle, part = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=os.path.basename(path), suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            mask = os.umask(0)
            os.umask(mask)
            # Temporary files are for their owner alone.
            os.chmod(part, 0o666 & ~mask)
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise

    @classmethod
    def load(cls, path: "Union[str, os.PathLike[str]]") -> "Encoders":
        """Read a file that `save` wrote. Raises OSError, or DataError if it is no such file."""
        with open(path, encoding="utf-8") as file:
            try:
                found = json.load(file)
            except ValueError as error:
                raise DataError(f"{os.fspath(path)} is not JSON: {error}") from None
        if not isinstance(found, dict) or found.get("version") != VERSION or not isinstance(found.get("classes"), dict):
            raise DataError(f"{os.fspath(path)} is not a file of encoders, version {VERSION}")
        try:
            return cls(found["classes"])
        except (TypeError, ValueError) as error:
            raise DataError(f"{os.fspath(path)}: {error}") from None

    def __getitem__(self, column: str) -> Tuple[str, ...]:
        return self._classes[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def __repr__(self) -> str:
        return f"Encoders({', '.join(f'{column}: {len(names)} classes' for column, names in self._classes.items())})"


def encoders_of(given: Any) -> Optional[Encoders]:
    """What a user gave: None, the path of a file, or a mapping of columns and names."""
    if given is None or isinstance(given, Encoders):
        return given
    if isinstance(given, (str, os.PathLike)):
        return Encoders.load(given)
    if isinstance(given, Mapping):
        return Encoders(given)
    raise TypeError(f"encoders are a file, or columns with the names of their classes, and not a {type(given).__name__}")


def with_classes(columns: Dict[str, str], encoders: Optional[Encoders]) -> Dict[str, str]:
    """Types of columns, where those that are "auto" and have an encoder are classes, numbers too."""
    return {
        name: "class" if dtype == "auto" and encoders is not None and name in encoders else dtype
        for name, dtype in columns.items()
    }


def renumbered(name: str, columns: ObsColumns, column: int, classes: Sequence[str], unseen: str, rows: Any) -> Any:
    """int64 [classes of the files + 1]: the class number for each one of the files, and at its end -1 for -1, which is missing.

    None if the numbers are the same. `rows` are those that matter, or None for all.

    Raises:
        DataError: one of these rows has a class that is not among `classes`, and `unseen` is "error".
    """
    own: List[str] = columns.categories(column) or []
    if own == list(classes[: len(own)]):
        return None
    import numpy

    number = {text: i for i, text in enumerate(classes)}
    table = numpy.array([number.get(text, -1) for text in own] + [-1], dtype="int64")
    if unseen == "error" and (table[:-1] < 0).any():
        # A category that no row has does no harm.
        codes = numpy.from_dlpack(columns.tensor(column))
        counts = numpy.bincount((codes if rows is None else codes[rows]) + 1, minlength=len(own) + 1)[1:]
        strange = [text for text, count, to in zip(own, counts, table) if count and to < 0]
        if strange:
            more = f" and {len(strange) - 5} more" if len(strange) > 5 else ""
            raise DataError(
                f"obs[{name!r}] has classes that its encoder does not know: {', '.join(map(repr, strange[:5]))}{more}; "
                'unseen="missing" numbers them -1'
            )
    return table
