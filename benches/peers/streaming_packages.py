"""Imports MosaicML streaming without torchvision and transformers.

Its package imports both for readers of pictures and texts, which nothing here uses; names that are missing stand for them.
"""

import sys
import types

NAMES = {
    "torchvision": [],
    "torchvision.datasets": ["CIFAR10", "VisionDataset"],
    "torchvision.transforms": [],
    "torchvision.transforms.functional": ["to_tensor"],
    "transformers": [],
    "transformers.feature_extraction_utils": ["BatchFeature"],
    "transformers.tokenization_utils_base": ["BatchEncoding"],
    "transformers.models": [],
    "transformers.models.auto": [],
    "transformers.models.auto.tokenization_auto": ["AutoTokenizer"],
}

for name, members in NAMES.items():
    module = sys.modules.setdefault(name, types.ModuleType(name))
    for member in members:
        setattr(module, member, type(member, (), {}))

from streaming import MDSWriter, StreamingDataset  # noqa: E402

__all__ = ["MDSWriter", "StreamingDataset"]
