"""What the Python helper costs.

    PYTHONPATH=python/src python benches/helper_overhead.py step      the helper alone: time of a step of 5 stages
    PYTHONPATH=python/src python benches/helper_overhead.py wait      what a step of 0.3 ms waits for the helper (needs numpy)
    PYTHONPATH=python/src python benches/helper_overhead.py ddp       two ranks on gloo: the helper's it/s and the script's own

All write to a real Unix socket that another process empties. Times of `step` are the processor time of the process, so that other
programs on the machine do not count. `wait` takes wall time: the other process reads as the supervisor does (src/launch/command/socket.rs,
at most 200 times a second) and parses each line, the step works with numpy, and runs without and with the helper take turns. `ddp`
compares two clocks over the same steps, and runs without and with the helper in turns. Prints a line per run, and median, smallest and
largest at the end. `--record FILE` (or EXPCTL_BENCH_RECORD) writes these
in the form of crates/ledger/src/bench_record.rs.
"""

import json
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time

# The Python of scripts/torch_python.sh sets a PYTHONPATH of its own.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python", "src"))

import bench_record
import expctl
from expctl.connection import Connection

REPEATS = 9
# The shortest time between two reads of the supervisor, and the work of a step of `wait`, seconds.
READ_EVERY_S = 0.005
WORK_S = 0.3e-3


def drain(path, ready):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        ready.set()
        while True:
            stream, _ = server.accept()
            while stream.recv(1 << 16):
                pass


def supervise(path, ready):
    """Empties the socket as the supervisor does: a pause between two reads, and each line is parsed."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        ready.set()
        while True:
            stream, _ = server.accept()
            rest, read_at = b"", 0.0
            while True:
                time.sleep(max(0.0, read_at + READ_EVERY_S - time.monotonic()))
                read = stream.recv(1 << 16)
                read_at = time.monotonic()
                if not read:
                    break
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    json.loads(line)


def spread(key, name, unit, values):
    middle, low, high = bench_record.of_runs(key, values, unit)
    print(f"{name}: median {middle:.3f} {unit}, {low:.3f} to {high:.3f}, n = {len(values)}")


def step_cost(path):
    def run(steps, helper):
        run = expctl.Run(program="bench", warmup=0, steps=steps)
        run._connection = Connection(path)
        begin = time.process_time_ns()
        if helper:
            for step in run.steps():
                for stage in ("read", "collate", "forward", "backward", "optimizer"):
                    with step.stage(stage):
                        pass
                step.samples = 128
        else:
            for _ in range(steps):
                pass
        ns = time.process_time_ns() - begin
        run._connection.close()
        run._connection = None
        return ns / steps / 1e3

    run(2000, True)
    costs = []
    for _ in range(REPEATS):
        costs.append(run(20000, True) - run(20000, False))
        print(f"{costs[-1]:.3f} µs a step")
    spread("step", "helper, 5 stages a step", "µs", costs)


def wait_cost(path, steps=2000):
    import numpy

    # Of a size that stays in the cache of a processor, and without BLAS, which may have threads.
    values, out = numpy.ones(8192, "f4"), numpy.empty(8192, "f4")

    def work(times):
        for _ in range(times):
            numpy.sqrt(values, out=out)

    def seconds(times):
        begin = time.perf_counter()
        work(times)
        return time.perf_counter() - begin

    work(1000)
    times = max(round(WORK_S / (statistics.median(seconds(100) for _ in range(50)) / 100)), 1)

    def plain():
        begin = time.perf_counter()
        for _ in range(steps):
            work(times)
        return (time.perf_counter() - begin) / steps * 1e6

    def helped():
        run = expctl.Run(program="bench", warmup=0, steps=steps)
        run._connection = Connection(path)
        begin = time.perf_counter()
        for step in run.steps():
            for stage in ("read", "collate", "backward", "optimizer"):
                with step.stage(stage):
                    pass
            with step.stage("forward"):
                work(times)
            step.samples = 128
        us = (time.perf_counter() - begin) / steps * 1e6
        run._connection.close()
        run._connection = None
        return us

    plain(), helped()
    without, waits = [], []
    for repeat in range(REPEATS):
        # Each goes first in every other repeat, so that a drift of the machine is not the helper's.
        if repeat % 2:
            with_it, alone = helped(), plain()
        else:
            alone, with_it = plain(), helped()
        without.append(alone)
        waits.append(with_it - alone)
        print(f"without {alone:.2f} µs a step, with {with_it:.2f} µs: {waits[-1]:.2f} µs more")
    spread("without", "step without the helper", "µs", without)
    spread("wait", "step with the helper less one without, 5 stages", "µs", waits)


def rank_of(rank, port, path, steps, results):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    data = torch.randn(64, 512)
    run = expctl.Run(program="bench", warmup=0, steps=steps)
    sums = []

    class Counting(Connection):
        def send(self, line):
            sums.append(int(line.split('"wall_ns":')[1].split(",")[0]))
            super().send(line)

    def one():
        loss = model(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def plain():
        begin = time.perf_counter()
        for _ in range(steps):
            one()
        return steps / (time.perf_counter() - begin)

    def helped():
        run._connection = Counting(path)
        sums.clear()
        begin = time.perf_counter()
        for step in run.steps():
            with step.stage("forward"):
                loss = model(data).square().mean()
            with step.stage("backward"):
                optimizer.zero_grad()
                loss.backward()
            with step.stage("optimizer"):
                optimizer.step()
            step.samples = 64
        own = steps / (time.perf_counter() - begin)
        run._connection.close()
        run._connection = None
        return own, len(sums) / sum(sums) * 1e9

    plain()
    for _ in range(REPEATS):
        without = plain()
        own, reported = helped()
        if rank == 0:
            results.put((without, own, reported))
    dist.destroy_process_group()


def ddp(path, steps=100):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=rank_of, args=(rank, port, path, steps, results)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    found = [results.get(timeout=300) for _ in range(REPEATS)]
    for rank in ranks:
        rank.join()
    for without, own, reported in found:
        print(f"without {without:.2f} it/s; with: own timer {own:.2f} it/s, helper {reported:.2f} it/s")
    spread("without", "it/s without the helper", "it/s", [row[0] for row in found])
    spread("own_timer", "it/s with it, own timer", "it/s", [row[1] for row in found])
    spread("helper_against_timer", "helper against own timer of the same steps", "%", [(row[2] / row[1] - 1) * 100 for row in found])
    spread("with_against_without", "with the helper against without, in turns", "%", [(row[1] / row[0] - 1) * 100 for row in found])


if __name__ == "__main__":
    arguments = sys.argv[1:]
    record = os.environ.get("EXPCTL_BENCH_RECORD")
    if "--record" in arguments:
        at = arguments.index("--record")
        record = arguments[at + 1]
        del arguments[at : at + 2]
    what = arguments[0] if arguments else "step"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "socket")
        ready = multiprocessing.get_context("spawn").Event()
        reader = supervise if what == "wait" else drain
        drainer = multiprocessing.get_context("spawn").Process(target=reader, args=(path, ready), daemon=True)
        drainer.start()
        ready.wait()
        {"step": step_cost, "wait": wait_cost, "ddp": ddp}[what](path)
        drainer.terminate()
    if record:
        bench_record.write_record(record, f"PYTHONPATH=python/src python benches/helper_overhead.py {what}")
