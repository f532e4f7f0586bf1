"""What the scripts that rebuild layers have in common: run each case of a file, and compare values and gradients.

A case NAME is `KIND` or `KIND:VARIANT`. Of it the file holds

- `NAME/leaf/*`: parameters and inputs, with the gradients `NAME/grad/*` (absent where there is none);
- `NAME/const/*`: what is not differentiated; `tolerance` is how far apart values may be, if not by 1e-5;
- `NAME/out`: what the layer yields; the gradients are those of sum(out * `NAME/weight`).
"""

import sys
from collections import defaultdict

import torch
from safetensors.numpy import load_file

TOLERANCE = 1e-5


def difference(got: torch.Tensor, expected: torch.Tensor, of_all: float) -> float:
    """Largest difference, relative to the largest entry; of a gradient that is 0 but for rounding, as that of a bias in
    front of a softmax, relative to the largest entry of all gradients."""
    assert got.shape == expected.shape, f"{tuple(got.shape)} and {tuple(expected.shape)}"
    scale = expected.abs().max().item()
    if scale <= 1e-9 * of_all:
        scale = of_all
    return (got - expected).abs().max().item() / scale


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
        (out * case["weight"][""].double()).sum().backward()
        grads = {n: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for n, leaf in leaves.items()}
        of_all = max(grad.abs().max().item() for grad in grads.values())
        differences = {"out": difference(case["out"][""].double(), out.detach(), 0.0)}
        for n, grad in grads.items():
            differences[n] = difference(case["grad"].get(n, torch.zeros_like(grad)).double(), grad, of_all)
        largest = max(differences, key=differences.get)
        tolerance = float(case["const"].get("tolerance", TOLERANCE))
        worst[name] = [largest, differences[largest], tolerance, len(differences)]
    for name, entry in worst.items():
        print(name, *entry)
    far = {name: entry for name, entry in worst.items() if not entry[1] <= entry[2]}
    if far:
        sys.exit(f"too far apart: {far}")
