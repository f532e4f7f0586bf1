"""A Lightning training that reports its steps to expctl through the callback.

    [variant.lightning]
    worker.command = ["python", "python/examples/lightning_fit.py"]
"""

import torch
from expctl.lightning import Callback
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))

    def training_step(self, batch, _):
        features, target = batch
        return torch.nn.functional.mse_loss(self.model(features), target)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def main():
    data = TensorDataset(torch.randn(4096, 64), torch.randn(4096, 1))
    trainer = Trainer(
        max_epochs=-1, accelerator="cpu", devices=1, callbacks=[Callback("lightning_fit")],
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Regression(), DataLoader(data, batch_size=32))


if __name__ == "__main__":
    main()
