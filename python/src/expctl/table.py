"""What a program that does not run under expctl prints at its end."""

import sys

from .stages import STAGES


class Table:
    """Sums over the measured steps."""

    def __init__(self):
        self.steps = self.samples = self.wall = 0
        self.busy, self.exposed = {}, {}

    def add(self, step, wall_ns):
        """Count a step."""
        if not step.measured:
            return
        self.steps += 1
        self.samples += int(step.samples)
        self.wall += wall_ns
        for total, part in ((self.busy, step.busy), (self.exposed, step.exposed)):
            for name, ns in part.items():
                total[name] = total.get(name, 0) + ns

    def print(self, program, rank):
        """Print it on stderr, if there is anything in it."""
        if not self.steps or not self.wall:
            return
        rate, ms = self.steps / self.wall * 1e9, self.steps * 1e6
        # A program that never sets step.samples has no rate of samples.
        samples = f", {self.samples / self.wall * 1e9:.1f} samples/s" if self.samples else ""
        out = [f"{program}, rank {rank}: {self.steps} steps, {rate:.2f} it/s{samples}"]
        out.append(f"{'stage':14}{'exposed ms':>12}{'busy ms':>12}")
        for name in STAGES:
            if name in self.busy or name in self.exposed:
                out.append(f"{name:14}{self.exposed.get(name, 0) / ms:12.3f}{self.busy.get(name, 0) / ms:12.3f}")
        out.append(f"{'unattributed':14}{(self.wall - sum(self.exposed.values())) / ms:12.3f}")
        print("\n".join(out), file=sys.stderr)
