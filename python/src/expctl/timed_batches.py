"""When a batch is made, noted in the process that makes it. CLOCK_MONOTONIC is one clock for all processes of a machine."""

from time import perf_counter_ns


class Timed:
    """A batch with the times of its making, ns; `pin_to` is 0 where it is not pinned."""

    __slots__ = ("batch", "read_from", "collate_from", "collate_to", "pin_from", "pin_to")

    def __init__(self, batch, read_from, collate_from, collate_to):
        self.batch = batch
        self.read_from, self.collate_from, self.collate_to = read_from, collate_from, collate_to
        self.pin_from = self.pin_to = 0

    def pin_memory(self, *device):
        """Called by torch's pinning thread; objects with this method are pinned by it."""
        from torch.utils.data._utils.pin_memory import pin_memory

        self.pin_from = perf_counter_ns()
        self.batch = pin_memory(self.batch, *device)
        self.pin_to = perf_counter_ns()
        return self


class TimedDataset:
    """A data set that notes when the first sample of a batch is asked for. It is `inner` in all else."""

    def __init__(self, inner, clock):
        self.__dict__.update(_inner=inner, _clock=clock)
        if hasattr(inner, "__getitems__"):
            self.__dict__["__getitems__"] = self._several

    def __getattr__(self, name):
        if name.startswith("__") or name in ("_inner", "_clock"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __setattr__(self, name, value):
        setattr(self._inner, name, value)

    def __reduce__(self):
        return TimedDataset, (self._inner, self._clock)

    def __len__(self):
        return len(self._inner)

    def __getitem__(self, index):
        if not self._clock:
            self._clock["from"] = perf_counter_ns()
        return self._inner[index]

    def _several(self, indices):
        if not self._clock:
            self._clock["from"] = perf_counter_ns()
        return self._inner.__getitems__(indices)

    def __iter__(self):
        iterator = iter(self._inner)
        while True:
            if not self._clock:
                self._clock["from"] = perf_counter_ns()
            try:
                sample = next(iterator)
            except StopIteration:
                return
            yield sample


class TimedCollate:
    """A collate function that puts the times of a batch beside it. With `TimedDataset` it shares `clock`, also after both were
    pickled together."""

    def __init__(self, inner, clock):
        self.inner, self.clock = inner, clock

    def __call__(self, samples):
        start = perf_counter_ns()
        batch = self.inner(samples)
        end = perf_counter_ns()
        return Timed(batch, self.clock.pop("from", start), start, end)
