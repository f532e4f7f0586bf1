"""Rebuild every layer of DANGO from the formulas of docs/reference/dango.md, and compare.

    dango_layers.py CASES.safetensors RATIO NEIGHBOURS
"""

import math

import torch
from compare_layers import run


def relu(x):
    return torch.clamp(x, min=0)


def linear(p, at, x):
    return x @ p[f"{at}.weight"].T + p.get(f"{at}.bias", 0)


def sage(p, at, x, index):
    mean = torch.zeros(len(x), len(x), dtype=x.dtype)
    for source, target in zip(*index.tolist()):
        mean[target, source] += 1
    mean = mean / mean.sum(1, keepdim=True).clamp(min=1)
    return linear(p, f"{at}.lin_l", mean @ x) + linear(p, f"{at}.lin_r", x)


def meta(p, x):
    """[n, types, h] to [n, h]."""
    scores = torch.exp(linear(p, "meta.2", relu(linear(p, "meta.0", x))))
    return (scores / scores.sum(1, keepdim=True) * x).sum(1)


def reconstruction(p, at, x, index, weight_of_absent):
    rebuilt = linear(p, at, x)
    adjacency = torch.zeros_like(rebuilt)
    adjacency[index[0], index[1]] = 1
    weight = adjacency + (1 - adjacency) * weight_of_absent
    return (weight * (adjacency - rebuilt) ** 2).sum() / len(x) ** 2


def hyper_sagnn(p, x, sample, batch, heads=2):
    scores = []
    for b in range(batch):
        moved = own = x[sample == b]
        layer = 0
        while f"hyper_sagnn.attention{layer}.beta" in p:
            name = f"hyper_sagnn.attention{layer}"
            q, key, v = (linear(p, f"{name}.{part}", moved) for part in "qkv")
            width = q.shape[1] // heads
            parts = []
            for head in range(heads):
                of_head = slice(head * width, (head + 1) * width)
                attention = torch.exp(q[:, of_head] @ key[:, of_head].T / math.sqrt(width)) * (1 - torch.eye(len(own)))
                parts.append(attention / (attention.sum(1, keepdim=True) + (len(own) == 1)) @ v[:, of_head])
            moved = moved + p[f"{name}.beta"] * linear(p, f"{name}.o", torch.cat(parts, 1))
            layer += 1
        static = relu(linear(p, "hyper_sagnn.static", own))
        scores.append(linear(p, "hyper_sagnn.prediction", (moved - static) ** 2).mean())
    return torch.stack(scores)


def model(p, c):
    embeddings, losses = [], []
    for i in range(2):
        x = relu(sage(p, f"encoders.{i}.conv1", p["embedding"], c["index"]))
        x = relu(sage(p, f"encoders.{i}.conv2", x, c["index"]))
        losses.append(reconstruction(p, f"encoders.{i}.reconstruction", x, c["index"], 1))
        embeddings.append(x)
    genes = meta(p, torch.stack(embeddings, 1))[c["genes"]]
    predictions = hyper_sagnn(p, genes, c["sample"], int(c["batch"]))
    return torch.cat([predictions, (sum(losses) / len(losses)).reshape(1)])


run(
    {
        "sage": lambda p, c: sage(p, "conv", p["x"], c["index"]),
        "meta": lambda p, c: meta(p, p["x"]),
        "reconstruction": lambda p, c: reconstruction(p, "reconstruction", p["x"], c["index"], c["lambda"].item()),
        "hyper_sagnn": lambda p, c: hyper_sagnn(p, p["x"], c["sample"], int(c["batch"])),
        "model": model,
    }
)
