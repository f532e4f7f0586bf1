"""One step and the stages in it. Times are ns of the monotonic clock."""

import json
from time import perf_counter_ns

from .stages import KNOWN, check

# What loading is made of.
LOADING = frozenset(("sample", "read", "decode", "mask", "collate"))


class Step:
    """What one step cost so far.

    `samples`, `bytes_read` (out of the store), `bytes_batch` and `bytes_moved` (to the device) are counts, `loss` a number or
    None, `epoch` counts from 0. `measured` is false during the warm-up. `samples` is the config's `loader.batch_size` until it is set.
    """

    __slots__ = (
        "number", "measured", "epoch", "samples", "bytes_read", "bytes_batch", "bytes_moved", "loss",
        "own", "more_busy", "more_exposed", "loaded", "beside", "inner", "device",
    )  # fmt: skip

    def __init__(self, number, measured, samples=0):
        self.number = number
        self.measured = measured
        self.samples = samples
        self.epoch = self.bytes_read = self.bytes_batch = self.bytes_moved = 0
        self.loss = None
        # Times of stages on the step's own thread, which are busy and exposed alike; and those that were added.
        self.own = {}
        self.more_busy = self.more_exposed = None
        # Times of the one batch that was loaded, as text: often all that a step has beside its wall time.
        self.loaded = None
        # A step of the batches that were loaded beside `Run.loader`.
        self.beside = None
        # Time of the stages inside the one that is open; None while none is.
        self.inner = None
        # Stages that are timed on the device, once there are any.
        self.device = None

    def stage(self, name, device=False):
        """Times what is done below `with` on the step's own thread: busy and exposed alike. A stage inside another one is
        taken out of it. With `device` the time is that of the current CUDA stream, where there is one."""
        if name not in KNOWN:
            check(name)
        if device:
            from .device import device_stage

            found = device_stage(self, name)
            if found is not None:
                return found
        return HostStage(self, name)

    def add(self, name, busy=0, exposed=0):
        """Add ns that were measured elsewhere: `busy` worked by any thread or process, `exposed` waited by the step."""
        check(name)
        if self.more_busy is None:
            self.more_busy, self.more_exposed = {}, {}
        if busy:
            self.more_busy[name] = self.more_busy.get(name, 0) + int(busy)
        if exposed:
            self.more_exposed[name] = self.more_exposed.get(name, 0) + int(exposed)
            self._inside(int(exposed))

    def add_all(self, busy, exposed):
        """`add` for several stages at once, by the names of `stages.STAGES`. The dictionaries are the step's from then on."""
        self._inside(sum(exposed.values()))
        self._merge(busy, exposed)

    def load(self, times, waited):
        """Add the times of a batch: `times` has the members "busy" and "exposed" of a JSON object, and `waited` is the sum of the
        latter, ns."""
        self._inside(waited)
        self._read_loaded()
        self.loaded = times

    def take_beside(self):
        """Take what the batches beside `Run.loader` cost, unless the program said itself what loading cost."""
        beside, self.beside = self.beside, None
        busy, exposed = beside.busy, beside.exposed
        if not LOADING.isdisjoint(self.busy) or not LOADING.isdisjoint(self.exposed):
            return
        self.add_all(busy, exposed)
        self.bytes_read += beside.bytes_read
        self.bytes_batch += beside.bytes_batch

    def _inside(self, ns):
        """Count time that was measured elsewhere to the stage that is open."""
        if self.inner is not None:
            self.inner += ns

    def _read_loaded(self):
        """Put the times that are text into the others."""
        times, self.loaded = self.loaded, None
        if times is not None:
            self._merge(**json.loads(f"{{{times}}}"))

    def _merge(self, busy, exposed):
        self.more_busy = added(busy, self.more_busy)
        self.more_exposed = added(exposed, self.more_exposed)

    @property
    def busy(self):
        """Time worked on each stage so far."""
        self._read_loaded()
        return added(self.own, self.more_busy)

    @property
    def exposed(self):
        """Time that the step waited on each stage so far."""
        self._read_loaded()
        return added(self.own, self.more_exposed)

    def line(self, start_ns, wall_ns):
        """The step as expctl reads it. Only whole numbers and names of stages are in the dictionaries, so they are JSON but for
        their quotes: ten times as fast as `json`."""
        if self.loaded is not None and not self.own and self.more_busy is None:
            times = self.loaded
        elif self.loaded is None and self.more_busy is None:
            own = str(self.own)
            times = f'"busy":{own},"exposed":{own}'
        else:
            # As measured: where stages overlap or were counted twice, expctl must be able to say so.
            times = f'"busy":{self.busy},"exposed":{self.exposed}'
        loss = ""
        if self.loss is not None:
            loss = float(self.loss)
            loss = f'"loss":{loss!r},' if loss - loss == 0.0 else ""
        return (
            f'{{"step":{{"step":{self.number},"epoch":{int(self.epoch)},"start_ns":{start_ns},"wall_ns":{wall_ns},'
            f'"samples":{int(self.samples)},"bytes_read":{int(self.bytes_read)},"bytes_batch":{int(self.bytes_batch)},'
            f'"bytes_to_device":{int(self.bytes_moved)},{loss}{times}}}}}\n'
        ).replace("'", '"')


def added(own, more):
    """The sum of two dictionaries; `more` may be None."""
    if not more:
        return own
    return {name: own.get(name, 0) + more.get(name, 0) for name in {**own, **more}} if own else more


class HostStage:
    """A stage on the step's own thread."""

    __slots__ = ("step", "name", "outer", "start")

    def __init__(self, step, name):
        self.step = step
        self.name = name

    def __enter__(self):
        step = self.step
        self.outer = step.inner
        step.inner = 0
        self.start = perf_counter_ns()
        return self

    def __exit__(self, *_):
        ns = perf_counter_ns() - self.start
        step, name, inner = self.step, self.name, self.step.inner
        step.inner = None if self.outer is None else self.outer + ns
        if inner:
            ns = max(ns - inner, 0)
        own = step.own
        own[name] = own[name] + ns if name in own else ns
