"""Trains SCVI of scvi-tools on AnnData files, and prints the shape of the latent space:

    python cells_scvi.py [--raw] [--log1p] BATCH_KEY FILE...

SCVI takes counts. `--raw` takes the values of `raw` in place of X. `--log1p`: they are ln(1 + c · count) with a c of each cell, as scanpy's
normalize_total and log1p make them; a transform makes counts of them again. experiments/arrayloader/real/pbmc68k_reduced.h5ad needs both:

    python cells_scvi.py --raw --log1p phase experiments/arrayloader/real/pbmc68k_reduced.h5ad
"""

import argparse

import expctl.data as xd
import scvi
from expctl.data.scvi import DataModule


def counts(batch):
    """The smallest value of a cell is of one count."""
    scaled = batch.X.double().expm1()
    batch.X = (scaled / scaled.masked_fill(scaled == 0, float("inf")).amin(1, keepdim=True)).round().float()
    return batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--log1p", action="store_true")
    parser.add_argument("batch_key")
    parser.add_argument("files", nargs="+")
    asked = parser.parse_args()

    key = asked.batch_key
    train, val = xd.open(asked.files, raw=asked.raw, obs={key: "class"}, split=(0.9, 0.1), split_seed=1)
    data = DataModule(
        train, val, batch_key=key, batch_size=128, sampler="chunked", seed=1, transform=counts if asked.log1p else None
    )
    scvi.settings.seed = 1
    model = scvi.model.SCVI(registry=data.registry, n_latent=8)
    model.train(max_epochs=3, datamodule=data, devices=1, check_val_every_n_epoch=1, enable_progress_bar=False)
    for name in ["elbo_train", "elbo_validation"]:
        print(f"{name} {float(model.history[name].iloc[-1, 0]):.1f}")
    latent = model.get_latent_representation(dataloader=data.inference_dataloader())
    print(f"latent {latent.shape}")


if __name__ == "__main__":
    main()
