"""BioNeMo SCDL (NVIDIA): single rows of memory maps of its own, stacked by torch's DataLoader.

Settings, with the sentence of its README (0.1.3, METADATA of the wheel) that each follows:

- "You can use PyTorch-compatible DataLoaders to load batches of data from a SCDL class."
- "With a batch size greater than 1, there is a collation function (`collate_sparse_matrix_batch`)": it makes a sparse CSR tensor as wide
  as the last gene that occurs in the batch.
- Written as float32, which ours yields: "Supported types include "uint8", "uint16", "uint32", "uint64", "float16", "float32", and "float64"."

launch.threads are torch's: with as many as processors, as torch has by itself, collation uses them. Rows alone: its DataLoader yields no
columns of obs. Reads go through memory maps: their bytes are not counted.
"""

import measured


def batches(request):
    request.needs("SCDL", draw=["uniform", "weighted"])
    from bionemo.scdl.io.single_cell_memmap_dataset import SingleCellMemMapDataset
    from bionemo.scdl.util.torch_dataloader_utils import collate_sparse_matrix_batch
    from h5ad_rows import row_sampler
    from torch.utils.data import DataLoader

    data = SingleCellMemMapDataset(str(request.format("scdl")))
    more = {"prefetch_factor": request.ahead, "persistent_workers": True} if request.workers else {}
    loader = DataLoader(data, batch_size=request.batch, sampler=row_sampler(request, data), drop_last=True,
                        num_workers=request.workers, collate_fn=collate_sparse_matrix_batch, **more)
    yield from request.endless(loader)


if __name__ == "__main__":
    measured.run_rows("BioNeMo SCDL", ["bionemo-scdl", "numpy"], batches, by_system_calls=False)
