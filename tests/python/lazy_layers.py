"""Rebuild every layer of the lazy model from the formulas of docs/reference/lazy-model.md, and compare.

    lazy_layers.py CASES.safetensors RATIO NEIGHBOURS
"""

import math

import torch
from compare_layers import run


def gelu(x):
    return x / 2 * (1 + torch.erf(x / math.sqrt(2)))


def linear(p, at, x):
    return x @ p[f"{at}.weight"].T + p[f"{at}.bias"]


def mlp(p, at, x):
    """Linear layers `at.0`, `at.1`, … with GELU between them."""
    layer = 0
    while f"{at}.{layer}.weight" in p:
        x = linear(p, f"{at}.{layer}", gelu(x) if layer else x)
        layer += 1
    return x


def norm(p, at, x, of_nodes):
    if of_nodes:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5)
    else:
        centred = x - x.mean()
        scaled = centred / (torch.sqrt((centred**2).mean()) + 1e-5)
    return scaled * p[f"{at}.weight"] + p[f"{at}.bias"]


def preprocessor(p, at, x, of_nodes):
    for layer in range(2):
        x = gelu(norm(p, f"{at}norm", linear(p, f"{at}{layer}", x), of_nodes))
    return x


def adjacency(index, mask, rows, dtype):
    """[target, source]: how often the edge is listed and kept."""
    a = torch.zeros(rows, rows, dtype=dtype)
    for source, target, kept in zip(*index.tolist(), mask.tolist()):
        a[target, source] += float(kept)
    return a


def convolution(p, at, x, a, of_nodes):
    y = mlp(p, f"{at}linear", a @ x + (1 + p[f"{at}eps"]) * x)
    return gelu(norm(p, f"{at}norm", y, of_nodes))


def aggregation(p, at, types, yields, kind, normalised, of_nodes):
    if kind != "pairwise":
        return sum(yields) if kind == "sum" else sum(yields) / len(yields)
    options = []
    for i, first in enumerate(types):
        for j in range(i, len(types)):
            pair = torch.cat([yields[i], yields[j]], 1)
            options.append(mlp(p, f"{at}pair.{first}-{types[j]}", pair))
    options.append(sum(yields) / len(yields))
    scores = torch.cat([mlp(p, f"{at}scorer", option) for option in options], 1)
    weights = torch.exp(scores) / torch.exp(scores).sum(1, keepdim=True)
    joined = sum(weights[:, i : i + 1] * option for i, option in enumerate(options))
    return norm(p, f"{at}norm", joined, of_nodes) if normalised else joined


def readout(p, at, x, sample, batch):
    rows = []
    for b in range(batch):
        own = x[sample == b]
        gate = torch.exp(mlp(p, f"{at}gate", own))
        rows.append((gate / gate.sum() * gelu(linear(p, f"{at}transform", own))).sum(0))
    return torch.stack(rows)


def local_head(p, at, x, sample, batch, heads, layers):
    scores = []
    for b in range(batch):
        own = x[sample == b]
        k = len(own)
        if k == 0:
            scores.append(torch.zeros((), dtype=x.dtype))
            continue
        moved = own
        for layer in range(layers if k > 1 else 0):
            name = f"{at}attention{layer}"
            q, key, v = (linear(p, f"{name}.{part}", moved) for part in "qkv")
            width = q.shape[1] // heads
            parts = []
            for head in range(heads):
                of_head = slice(head * width, (head + 1) * width)
                attention = torch.exp(q[:, of_head] @ key[:, of_head].T / math.sqrt(width)) * (1 - torch.eye(k))
                parts.append(attention / attention.sum(1, keepdim=True) @ v[:, of_head])
            moved = moved + p[f"{name}.beta"] * linear(p, f"{name}.o", torch.cat(parts, 1))
        static = gelu(linear(p, f"{at}static", own))
        scores.append(linear(p, f"{at}prediction", (moved - static) ** 2).mean())
    return torch.stack(scores)


def model(p, c):
    types = sorted((name.removeprefix("index.") for name in c if name.startswith("index.")), key=lambda t: int(c[f"place.{t}"]))
    genes, batch = p["embedding"].shape[0], int(c["batch"])
    of_nodes, before = bool(c["of_nodes"]), bool(c["preprocessor_of_nodes"])
    kind = ["pairwise", "sum", "mean"][int(c["aggregation"])]

    def encode(x, graph):
        x = preprocessor(p, "preprocessor.", x, before)
        layer = 0
        while f"encoder.{layer}.convolution.{types[0]}.eps" in p:
            at = f"encoder.{layer}."
            yields = [convolution(p, f"{at}convolution.{t}.", x, graph[t], of_nodes) for t in types]
            x = aggregation(p, f"{at}aggregation.", types, yields, kind, bool(c["normalised"]), of_nodes)
            layer += 1
        return x

    whole = {t: adjacency(c[f"index.{t}"], torch.ones(c[f"index.{t}"].shape[1]), genes, p["embedding"].dtype) for t in types}
    wild = encode(p["embedding"], whole)
    of_wild = readout(p, "readout.", wild, torch.zeros(genes), 1)
    # A sample lacks the edges of its perturbed genes; it keeps the genes themselves, but for the readout.
    cut = {t: torch.block_diag(*(whole[t].clone() for _ in range(batch))) for t in types}
    kept = torch.ones(batch * genes, dtype=torch.bool)
    for gene, sample in zip(c["genes"].tolist(), c["gene_sample"].tolist()):
        row = sample * genes + gene
        kept[row] = False
        for t in types:
            cut[t][row, :] = 0
            cut[t][:, row] = 0
    encoded = encode(p["embedding"].repeat(batch, 1), cut)
    sample = torch.arange(batch).repeat_interleave(genes)
    of_samples = readout(p, "readout.", encoded[kept], sample[kept], batch)
    from_all = mlp(p, "global_head", of_wild - of_samples)[:, 0]
    head = ["full", "pooled", "zero", "none"][int(c["local_head"])]
    if head in ("zero", "none"):
        return from_all / (2 if head == "zero" else 1)
    whose = c["gene_sample"] * (head == "full")
    layers = sum(f"local_head.attention{i}.beta" in p for i in range(10))
    local = local_head(p, "local_head.", wild[c["genes"]], whose, batch, int(c["heads"]), layers)
    return (from_all + local) / 2


run(
    {
        "preprocessor": lambda p, c: preprocessor(p, "", p["x"], bool(c["of_nodes"])),
        "norm": lambda p, c: norm(p, "norm", p["x"], bool(c["of_nodes"])),
        "convolution": lambda p, c: convolution(p, "", p["x"], adjacency(c["index"], c["mask"], len(p["x"]), p["x"].dtype), False),
        "pairwise": lambda p, c: aggregation(p, "", ["a", "b", "c"], list(p["x"]), "pairwise", True, False),
        "readout": lambda p, c: readout(p, "", p["x"], c["sample"], int(c["batch"])),
        "global_head": lambda p, c: mlp(p, "head", p["x"])[:, 0],
        "local_head": lambda p, c: local_head(p, "", p["x"], c["sample"], int(c["batch"]), 2, 2),
        "model": model,
    }
)
