"""The parts of MosaicML's streaming that write and read local MDS shards, without the rest of the package.

`streaming/__init__.py` imports its text, vision and multimodal data sets, and with them transformers and torchvision, which
scripts/streaming_python.sh leaves out. The packages themselves stay as they are: only these two `__init__.py` are not run.
"""

import os
import sys
import types

site = os.environ["EXPCTL_STREAMING"]
sys.path.append(site)
for name in ["streaming", "streaming.base"]:
    package = types.ModuleType(name)
    package.__path__ = [os.path.join(site, *name.split("."))]
    sys.modules[name] = package

from streaming.base.compression import decompress  # noqa: E402, F401
from streaming.base.dataset import StreamingDataset  # noqa: E402, F401
from streaming.base.format.mds import MDSWriter  # noqa: E402, F401
from streaming.base.local import LocalDataset  # noqa: E402, F401
from streaming.base.util import clean_stale_shared_memory  # noqa: E402, F401
