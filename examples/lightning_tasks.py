"""Four tasks in Lightning, a `fit` for each, without a callback and with two. Takes some seconds."""

import logging
import warnings

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from sfao.integrations.lightning import DriftBoundCallback, GateCallback

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")
torch.set_num_threads(1)  # small tensors gain nothing from more
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}


class Network(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, batch_idx):
        points, kinds = batch
        loss = cross_entropy(self.layers(points), kinds)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=5e-3)


def make_task():
    """Ten Gaussian clusters in 40-D; each task has new centres."""
    centres, kinds = torch.randn(10, 40), torch.randint(0, 10, (1000,))
    return TensorDataset(centres[kinds] + torch.randn(1000, 40), kinds)


def learn(callbacks):
    """Learn four tasks, one after the other; return the accuracy on all of them."""
    torch.manual_seed(0)
    tasks, network = [make_task() for _ in range(4)], Network()
    for task in tasks:
        # A new Trainer, and with it a new AdamW; the callback keeps the memory.
        trainer = pl.Trainer(max_epochs=2, accelerator="cpu", callbacks=list(callbacks), **QUIET)
        trainer.fit(network, DataLoader(task, batch_size=50, shuffle=True))
    points, kinds = (torch.cat(parts) for parts in zip(*(task.tensors for task in tasks), strict=True))
    return float((network.layers(points).argmax(1) == kinds).float().mean())


print(f"AdamW {learn([]):.2f}")
for callback in (GateCallback(), DriftBoundCallback(tolerance=0.3)):
    accuracy, memory = learn([callback]), callback.attached
    print(f"{type(memory).__name__} {accuracy:.2f}, {memory.tasks} tasks in {memory.memory_bytes / 1e6:.2f} MB")
