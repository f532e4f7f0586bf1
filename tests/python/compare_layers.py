"""What the scripts that rebuild layers have in common: run each case of a file, and compare values and gradients.

    SCRIPT CASES.safetensors RATIO NEIGHBOURS

A case NAME is `KIND` or `KIND:VARIANT`. Of it the file holds

- `NAME/leaf/*`: parameters and inputs, with the gradients `NAME/grad/*` (absent where there is none);
- `NAME/const/*`: what is not differentiated;
- `NAME/out`: what the layer yields; the gradients are those of sum(out * `NAME/weight`).

The script's formulas in double precision are the truth. How far float32 is from it, the same formulas in float32 say, at
NEIGHBOURS points that float32 hardly tells apart from the given one. For each tensor the distance to the truth (Euclidean) may
be RATIO times the root mean square of those distances, and √n u times the norm of the truth, where u is the unit roundoff and n
bounds the terms of a sum in the case: the entries of its largest tensor. crates/rounding says why. Errors are proportional to u
as long as they are small, so for cases in double precision the bound is that of float32, times the ratio of the two units.
"""

import math
import sys
from collections import defaultdict

import torch
from safetensors.numpy import load_file

UNIT = {dtype: torch.finfo(dtype).eps / 2 for dtype in (torch.float32, torch.float64)}


def differentiated(kind, case: dict, leaves: dict, dtype) -> dict:
    """What the formulas yield for these leaves, and the gradient of each leaf."""
    leaves = {name: tensor.detach().to(dtype).requires_grad_() for name, tensor in leaves.items()}
    out = kind(leaves, case["const"])
    (out * case["weight"][""].to(dtype)).sum().backward()
    assert out.dtype == dtype, f"{out.dtype}: not all of it is computed in {dtype}"
    grads = {n: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for n, leaf in leaves.items()}
    return {"out": out.detach()} | {f"grad {n}": grad for n, grad in grads.items()}


def distances(got: dict, exact: dict) -> dict:
    """Euclidean, by tensor."""
    for name, tensor in exact.items():
        assert got[name].shape == tensor.shape, f"{name}: {tuple(got[name].shape)} and {tuple(tensor.shape)}"
    return {name: (got[name].double() - tensor).norm().item() for name, tensor in exact.items()}


def neighbour(leaves: dict, generator) -> dict:
    """Each entry moved by up to the distance of two float32 numbers."""
    near = {}
    for name, leaf in leaves.items():
        factor = 1 + (2 * torch.rand(leaf.shape, generator=generator, dtype=torch.float64) - 1) * 2 * UNIT[torch.float32]
        near[name] = (leaf.double() * factor).float()
    return near


def compared(kind, case: dict, ratio: float, neighbours: int) -> dict:
    """By tensor: its distance to the truth, the peer's, and the bound."""
    leaves, dtype = case["leaf"], case["out"][""].dtype
    exact = differentiated(kind, case, leaves, torch.float64)
    got = {"out": case["out"][""]} | {f"grad {n}": case["grad"].get(n, torch.zeros_like(leaf)) for n, leaf in leaves.items()}
    found = distances(got, exact)
    generator, squares = torch.Generator().manual_seed(1), defaultdict(float)
    for _ in range(neighbours):
        near = neighbour(leaves, generator)
        truth = differentiated(kind, case, near, torch.float64)
        for name, error in distances(differentiated(kind, case, near, torch.float32), truth).items():
            squares[name] += error**2 / neighbours
    terms = max(tensor.numel() for tensor in exact.values())
    rows = {}
    for name, distance in found.items():
        peer = math.sqrt(squares[name]) * UNIT[dtype] / UNIT[torch.float32]
        bound = ratio * peer + math.sqrt(terms) * UNIT[dtype] * exact[name].norm().item()
        rows[name] = [distance, peer, bound]
    return rows


def run(kinds: dict) -> None:
    """Compare all cases of the file named on the command line, print the largest differences, and fail on one beyond its bound."""
    ratio, neighbours = float(sys.argv[2]), int(sys.argv[3])
    cases: dict = defaultdict(lambda: defaultdict(dict))
    for key, value in load_file(sys.argv[1]).items():
        case, part, *name = key.split("/", 2)
        cases[case][part][name[0] if name else ""] = torch.from_numpy(value)
    far = []
    for name, case in sorted(cases.items()):
        rows = compared(kinds[name.split(":")[0]], case, ratio, neighbours)
        share = {of: distance / bound if bound else float(distance > 0) for of, (distance, _, bound) in rows.items()}
        worst = max(share, key=share.get)
        distance, peer, _ = rows[worst]
        of_peer = distance / peer if peer else 0.0
        print(f"rounding: {share[worst]:.3f} of the bound, {of_peer:.3f} of the peer: {name}: {worst}: {distance:.2e}, {len(rows)} tensors")
        far += [f"{name}: {of}: {d:.3e} from the truth, the peer {p:.3e}, at most {b:.3e}" for of, (d, p, b) in rows.items() if not d <= b]
    if far:
        sys.exit("too far apart:\n" + "\n".join(far))
