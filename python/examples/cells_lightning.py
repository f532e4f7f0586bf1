"""Trains a classifier of cells on AnnData files in a Lightning trainer:

    python cells_lightning.py OBS_COLUMN FILE...

A fifth of the cells is for validation. Each rank loads its own rows, and a checkpoint has the loader's position (`ckpt_path=` of `fit`).
"""

import sys

import expctl.data as xd
import torch
from expctl.data.lightning import DataModule
from lightning.pytorch import LightningModule, Trainer


class Classifier(LightningModule):
    def __init__(self, genes, classes, column):
        super().__init__()
        self.column = column
        self.layers = torch.nn.Sequential(torch.nn.Linear(genes, 64), torch.nn.ReLU(), torch.nn.Linear(64, classes))

    def loss(self, batch):
        labels = batch.obs[self.column]
        known = labels >= 0
        return torch.nn.functional.cross_entropy(self.layers(batch.X)[known], labels[known])

    def training_step(self, batch, _):
        loss = self.loss(batch)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(batch))
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.loss(batch), batch_size=len(batch))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main(column, files):
    train, val = xd.open(files, obs={column: "class"}, split=(0.8, 0.2), split_seed=1)
    data = DataModule(train=train, val=val, batch_size=32, sampler="chunked", seed=1, normalize=1e4, log1p=True)
    trainer = Trainer(max_epochs=3, devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Classifier(train.shape[1], len(train.classes[column]), column), datamodule=data)
    for name in ["train_loss", "val_loss"]:
        print(f"{name} {trainer.callback_metrics[name].item():.4f}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
