"""What the scripts that rebuild layers have in common: run each case of a file, and compare values and gradients.

A case NAME is `KIND` or `KIND:VARIANT`. Of it the file holds

- `NAME/leaf/*`: parameters and inputs, with the gradients `NAME/grad/*` (absent where there is none);
- `NAME/const/*`: what is not differentiated;
- `NAME/out`: what the layer yields; the gradients are those of sum(out * `NAME/weight`).
"""

import json
import sys
from collections import defaultdict

import torch
from safetensors.numpy import load_file

TOLERANCE = 1e-5


def difference(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference, relative to the largest entry."""
    assert got.shape == expected.shape, f"{tuple(got.shape)} and {tuple(expected.shape)}"
    scale = expected.abs().max().item() if expected.numel() else 0.0
    largest = (got - expected).abs().max().item() if expected.numel() else 0.0
    return largest / scale if scale else largest


def run(kinds: dict) -> None:
    """Compare all cases of the file named on the command line, print the differences, and fail on a large one."""
    torch.manual_seed(0)
    cases: dict = defaultdict(lambda: defaultdict(dict))
    for key, value in load_file(sys.argv[1]).items():
        case, part, *name = key.split("/", 2)
        cases[case][part][name[0] if name else ""] = torch.from_numpy(value)
    worst = {}
    for name, case in sorted(cases.items()):
        leaves = {n: t.double().requires_grad_() for n, t in case["leaf"].items()}
        out = kinds[name.split(":")[0]](leaves, case["const"])
        differences = {"out": difference(out.detach(), case["out"][""].double())}
        (out * case["weight"][""].double()).sum().backward()
        for n, leaf in leaves.items():
            grad = leaf.grad if leaf.grad is not None else torch.zeros_like(leaf)
            differences[n] = difference(case["grad"].get(n, torch.zeros_like(leaf)).double(), grad)
        largest = max(differences, key=differences.get)
        worst[name] = [largest, differences[largest], len(differences)]
    print(json.dumps(worst, indent=1))
    far = {name: entry for name, entry in worst.items() if not entry[1] <= TOLERANCE}
    if far:
        sys.exit(f"more than {TOLERANCE} apart: {far}")
