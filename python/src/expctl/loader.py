"""A data loader whose times are in the steps."""

import copy
import sys
from time import perf_counter_ns

from .timed_batches import Timed, TimedCollate, TimedDataset


class Loader:
    """Gives the batches of `dataloader`: a torch or PyG DataLoader, or anything else that can be iterated over.

    What the step waits for a batch is exposed. Of a torch DataLoader (and of PyG's, which is one) it is known when each batch was
    fetched and collated, in whichever process, so the wait is split over what was done to that batch meanwhile: *read* until its
    samples were fetched, *collate*, *pin*, and *other* (its way between processes). Fetching, collating and pinning are busy time
    of the step that uses the batch. Batches of `expctl.data` say themselves what their loader threads did to them. Of any other
    loader the wait is *read*.

    With `device` batches are moved there (*transfer*). With `endless` it begins again when it has come to its end, with the next
    epoch; a sampler is told with `set_epoch`.
    """

    def __init__(self, run, dataloader, device=None, endless=False):
        self._run, self._device, self._endless = run, device, endless
        self._loader = timed(dataloader)
        self.epoch = 0

    def __len__(self):
        return len(self._loader)

    def __iter__(self):
        while True:
            for holder in (self._loader, getattr(self._loader, "batch_sampler", None)):
                sampler = getattr(holder, "sampler", None)
                if self._endless and hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(self.epoch)
            iterator, given = None, 0
            while True:
                start = perf_counter_ns()
                if iterator is None:
                    iterator = iter(self._loader)
                try:
                    batch = next(iterator)
                except StopIteration:
                    break
                given += 1
                yield self._arrived(batch, start, perf_counter_ns())
            self.epoch += 1
            if not self._endless:
                return
            if not given:
                raise ValueError("the loader gives no batch at all")

    def _arrived(self, batch, start, end):
        step = self._run._step
        times = batch if type(batch) is Timed else None
        if times is not None:
            batch = times.batch
        if step is not None:
            step.epoch = self.epoch
            if not loaded(step, batch, end - start):
                if times is None:
                    step.add("read", busy=end - start, exposed=end - start)
                else:
                    split(step, times, start, end)
                step.bytes_batch += nbytes(batch)
        if self._device is None:
            return batch
        begin = perf_counter_ns()
        batch = move(batch, self._device)
        if step is not None:
            ns = perf_counter_ns() - begin
            step.add("transfer", busy=ns, exposed=ns)
            step.bytes_moved += nbytes(batch)
        return batch


def loaded(step, batch, waited):
    """Whether a batch is of the loaders of `expctl.data`, which measure themselves; then puts it into the step. The rest of the wait is
    Python's."""
    record = getattr(batch, "expctl_record", None)
    found = None if record is None else record(waited)
    if found is not None:
        times, samples, bytes_read, size = found
        step.load(times, waited)
    else:
        measured = getattr(batch, "expctl_times", None)
        if measured is None:
            return False
        put(step, measured, waited)
        samples, bytes_read, size = measured.samples, measured.bytes_read, measured.nbytes
    step.samples = samples
    step.bytes_read += bytes_read
    step.bytes_batch += size
    return True


def put(step, measured, waited):
    """Put `BatchTimes` into the step."""
    busy_ns, exposed_ns = {}, {}
    for stage, busy, exposed in measured.stages:
        if busy:
            busy_ns[stage] = busy
        if exposed:
            exposed_ns[stage] = exposed
            waited -= exposed
    if waited > 0:
        exposed_ns["other"] = exposed_ns.get("other", 0) + waited
    step.add_all(busy_ns, exposed_ns)


def split(step, times, start, end):
    """Put the wait from `start` to `end` into the stages that the batch was in meanwhile."""
    step.add("read", busy=times.collate_from - times.read_from)
    step.add("collate", busy=times.collate_to - times.collate_from)
    marks = [("read", times.collate_from), ("collate", times.collate_to)]
    if times.pin_to:
        step.add("pin", busy=times.pin_to - times.pin_from)
        marks += [("other", times.pin_from), ("pin", times.pin_to)]
    for stage, until in marks + [("other", end)]:
        until = min(max(until, start), end)
        step.add(stage, exposed=until - start)
        start = until


def timed(dataloader):
    """A copy of a torch DataLoader that notes when each batch is made; anything else as it is. Loaders with an iterator of their
    own (PyG's NeighborLoader) change batches after collation, so they stay as they are."""
    torch = sys.modules.get("torch")
    base = torch.utils.data.DataLoader if torch is not None else None
    if base is None or not isinstance(dataloader, base):
        return dataloader
    kind = type(dataloader)
    if kind.__iter__ is not base.__iter__ or kind._get_iterator is not base._get_iterator:
        return dataloader
    loader = copy.copy(dataloader)
    # Past __setattr__, which refuses to change a loader.
    state = loader.__dict__
    clock = {}
    state["dataset"] = TimedDataset(dataloader.dataset, clock)
    state["collate_fn"] = TimedCollate(dataloader.collate_fn, clock)
    return loader


def move(batch, device):
    """A batch on `device`: whatever can move itself, in tuples, lists and dictionaries."""
    if hasattr(batch, "to"):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: move(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(value, device) for value in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(move(value, device) for value in batch)
    return batch


def nbytes(batch):
    """Bytes of the arrays and tensors in a batch."""
    size = getattr(batch, "nbytes", None)
    if isinstance(size, int):
        return size
    if isinstance(batch, dict):
        return sum(map(nbytes, batch.values()))
    if isinstance(batch, (tuple, list)):
        return sum(map(nbytes, batch))
    to_dict = getattr(batch, "to_dict", None)
    return nbytes(to_dict()) if callable(to_dict) and hasattr(batch, "edge_index") else 0
