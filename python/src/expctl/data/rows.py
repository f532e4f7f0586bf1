"""What data sets have in common: rows by number, and views of some of them."""

import sys
from typing import Any, Generic, List, TypeVar

from . import views
from .samplers import check_mask, mask_length, row_bytes

#: Rows from which on `read` leaves them to a thread, so that Ctrl-C ends the wait; a thread takes longer to start than few rows to read.
MANY_ROWS = 4096

Read = TypeVar("Read")
Self = TypeVar("Self", bound="RowSet[Any]")


class RowSet(Generic[Read]):
    """Rows that are read by number: cells of files, or samples of a graph."""

    #: What it has several of.
    _items = "rows"
    #: The native data set, which has a length; None after `close`.
    _opened: Any = None
    #: int64: of each row its number among all rows of the files, ascending; None are all.
    _rows: Any = None

    @property
    def _native(self) -> Any:
        if self._opened is None:
            raise ValueError("this data set was closed: open its files again")
        return self._opened

    @property
    def closed(self) -> bool:
        """`close` was called."""
        return self._opened is None

    def close(self) -> None:
        """Let go of the files; what needs them afterwards raises ValueError.

        Views of this data set, and iterations that have begun, keep the files open until they end. At the end of a `with` it is closed, too.
        """
        self._opened = None

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def read(self, rows: Any) -> Read:
        """A batch of these rows, in this order; a row may come more than once."""
        raise NotImplementedError

    def _file_rows(self, rows: Any) -> bytes:
        """Rows by number, or a mask, as the bytes of int64 rows of the files. Raises IndexError."""
        check_mask(mask_length(rows), len(self), self._items)
        listed = row_bytes(rows)
        return listed if self._rows is None else views.file_rows(listed, self._rows, self._items)

    def _view(self: Self, rows: Any) -> Self:
        """The same open files, of which these rows are seen."""
        # Not copy.copy, which makes a copy as unpickling does, and would open the files again.
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        view._rows = rows
        return view

    def subset(self: Self, rows: Any) -> Self:
        """A view of these rows (numbers, or a mask of bool [rows]), in the order of the files and each once."""
        check_mask(mask_length(rows), len(self), self._items)
        found = views.subset(self._rows, rows, self._items)
        if len(found) and not (0 <= found[0] and found[-1] < len(self._native)):
            raise self._no_item(found[0] if found[0] < 0 else found[-1])
        if not len(found):
            raise ValueError(f"a view of no {self._items} is asked for")
        return self._view(found)

    @property
    def rows(self) -> Any:
        """int64 [rows], ascending: the number of each row among all rows of the files. All but a view's are 0, 1, 2, …"""
        import numpy

        return numpy.arange(len(self)) if self._rows is None else self._rows.copy()

    def __len__(self) -> int:
        return len(self._native) if self._rows is None else len(self._rows)

    def __getitem__(self, key: Any) -> Read:
        if isinstance(key, slice):
            return self.read(range(*key.indices(len(self))))
        if hasattr(key, "__index__") and not getattr(key, "ndim", 0):
            row = key.__index__()
            if not -len(self) <= row < len(self):
                raise self._no_item(row)
            return self.read([row % len(self)])
        return self.read(key)

    def _no_item(self, number: int) -> IndexError:
        return IndexError(f"{self._items[:-1]} {number} is asked for, and there are {len(self)} {self._items}")

    def __getitems__(self, rows: List[int]) -> List[Read]:
        # A DataLoader of torch with a batch size asks for it, and collates what it gets: a list of the one batch.
        batch = self.read(rows)
        collate = sys.modules.get("torch.utils.data._utils.collate")
        known = getattr(collate, "default_collate_fn_map", None)
        if known is not None:
            known.setdefault(type(batch), _only)
        return [batch]


def _only(batches: List[Any], *, collate_fn_map: Any = None) -> Any:
    """The batch that rows were read as: it is collated already.

    Raises:
        TypeError: there are several. A data set around others, such as `ConcatDataset`, asks for each row by itself.
    """
    if len(batches) > 1:
        raise TypeError(f"{len(batches)} batches are no batch: open all files as one data set, or collate them with a collate_fn of your own")
    return batches[0]
