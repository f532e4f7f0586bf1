"""SLAF (Sparse Lazy Array Format): values of cells as rows of a Lance table, read by a mixture of scanners, batches as tables of Polars.

Settings, with the sentence of its docstrings (slafdb 0.5.2, slaf/ml/dataloaders.py and slaf/data/converter.py of the wheel) that each follows:

- `raw_mode=True`: "If True, return raw cell × gene data as Polars DataFrames instead of pre-tokenized sequences." Its other mode yields tokens of
  ranked genes, with the values binned or left out, which is another question: no other loader here answers it.
- The mixture of scanners, its default with `n_scanners=16` and `prefetch_batch_size=4194304` values: "Randomly samples from multiple fragment
  generators for maximum entropy and randomization". With 1,460 values a row 16 × 2,870 rows are shuffled together; its documentation calls that "88%
  of random entropy". sampler.chunk_rows and sampler.chunks are not used.
- `parallelize_fragment_reads=False`: "For local data, sequential reads are typically more efficient".
- Written by `SLAFConverter()` with its defaults, of which `chunk_size=5000` rows make a fragment. (Its benchmarks have fragments of 5 to 10 million
  values; these have 7.)
- loader.workers threads of Polars and of Lance (POLARS_MAX_THREADS, LANCE_CPU_THREADS), both of which take as many as processors by default. Its
  prefetch thread is one more, and no worker processes: its own loader stands in the place of torch's.

It has no single rows and no weights: only `chunked`. Rows alone: a batch has the numbers of its cells, and no columns of obs. A batch is a table
with a line for each value (cell, gene, value); *collate* makes scipy's CSR of it, which a model of counts would need. Its last batch of a block has
fewer rows and is left out.
"""

import os
import sys

import measured

# Epochs that the loader is asked for: it cannot be iterated again.
EPOCHS = 1_000_000


def batches(request):
    request.needs("SLAF", draw=["chunked"])
    # Both packages read these when they are imported.
    os.environ["POLARS_MAX_THREADS"] = os.environ["LANCE_CPU_THREADS"] = str(max(request.workers, 1))
    import numpy as np
    from loguru import logger
    from slaf import SLAFArray
    from slaf.ml import SLAFDataLoader

    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    # It draws its scanners by numpy's own generator; the seed of its shuffle is fixed.
    np.random.seed(request.seed)
    array = SLAFArray(str(request.format("slaf")))
    # They are read in the background, and the loader needs them from its first batch on.
    array.wait_for_metadata()
    loader = SLAFDataLoader(slaf_array=array, batch_size=request.batch, raw_mode=True, n_epochs=EPOCHS, verbose=False)
    for batch in loader:
        if len(batch["cell_ids"]) == request.batch:
            yield batch["x"], array.shape[1]
    # Its thread writes why it ended as information.
    sys.exit("error: SLAF's prefetch thread ended before the epochs")


def finish(batch, output):
    """A table with a line for each value, the lines of a cell one after the other, as CSR."""
    import numpy as np
    import scipy.sparse as sp

    table, genes = batch
    cells = table["cell_integer_id"].to_numpy()
    starts = np.flatnonzero(np.concatenate([[True], cells[1:] != cells[:-1]]))
    values = table["value"].to_numpy().astype(np.float32)
    columns = table["gene_integer_id"].to_numpy().astype(np.int32)
    indptr = np.append(starts, len(cells)).astype(np.int32)
    rows = sp.csr_matrix((values, columns, indptr), shape=(len(starts), genes))
    return measured.as_output(rows, output)


if __name__ == "__main__":
    measured.run_rows("SLAF", ["slafdb", "pylance", "polars", "scipy"], batches, finish)
