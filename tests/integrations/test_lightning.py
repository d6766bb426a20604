"""Lightning: the memory goes from fit to fit, through checkpoints, and into whatever optimizer comes next."""

import json
import os
import subprocess
import sys
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from torch.nn.functional import cross_entropy

import sfao
from sfao.integrations.lightning import DriftBoundCallback, GateCallback
from tests.integrations.tasks import make_network, make_tasks, measure_gap, measure_memory_gap, train

CALLBACKS = [GateCallback, DriftBoundCallback]


class Module(pl.LightningModule):
    def __init__(self, make_optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.02)):
        super().__init__()
        self.network = make_network()
        self.make_optimizer = make_optimizer

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        loss = cross_entropy(self.network(inputs), targets)
        self.log("loss", loss)
        self.log_dict({"again": loss})
        return loss

    def configure_optimizers(self):
        return self.make_optimizer(self.network.parameters())


def make_trainer(callback, **options) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    given = {"enable_checkpointing": False, "max_epochs": 2, **quiet, **options}
    return pl.Trainer(callbacks=[callback, *given.pop("more", [])], **given)


def load(task):
    return torch.utils.data.DataLoader(task, batch_size=None)


def learn(tasks, module, callback, **options) -> None:
    for task in tasks:
        make_trainer(callback, **options).fit(module, load(task))


@pytest.mark.parametrize("make_callback", CALLBACKS)
def test_a_fit_for_every_task_is_the_loop_of_our_own(make_callback):
    tasks = make_tasks()
    module, callback = Module(), make_callback()
    learn(tasks, module, callback)
    network = make_network()
    attached = callback.kind(network)
    for task in tasks:
        optimizer = torch.optim.AdamW(network.parameters(), lr=0.02)
        attached.attach(optimizer)
        train(network, optimizer, task, epochs=2)
        attached.consolidate(task, cross_entropy)
        attached.detach()
    assert callback.attached.tasks == 3
    assert callback.attached.memory_bytes == attached.memory_bytes > 0
    assert measure_gap(module.network, network) == 0.0


def test_sfao_as_the_optimizer_of_every_fit_keeps_its_memory():
    tasks = make_tasks()
    callback = GateCallback()

    def make(parameters):
        return sfao.SFAO(module.network, lr=0.1, momentum=0.5)

    module = Module(make)
    learn(tasks, module, callback)
    network = make_network()
    optimizer = sfao.SFAO(network, lr=0.1, momentum=0.5)
    for task in tasks:
        train(network, optimizer, task, epochs=2)
        optimizer.consolidate(task, cross_entropy)
    assert callback.attached.tasks == 3
    assert measure_gap(module.network, network) == 0.0


@pytest.mark.parametrize("make_callback", CALLBACKS)
def test_resumed_from_a_checkpoint_nothing_differs(tmp_path: Path, make_callback):
    first, second = make_tasks(2)
    straight, callback = Module(), make_callback()
    learn([first], straight, callback)
    keeper = pl.callbacks.ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    make_trainer(callback, max_epochs=4, enable_checkpointing=True, more=[keeper]).fit(straight, load(second))

    resumed, other = Module(), make_callback()
    again = pl.callbacks.ModelCheckpoint(tmp_path / "again")  # saving projects the weights of a bound
    trainer = make_trainer(other, max_epochs=4, enable_checkpointing=True, more=[again])
    trainer.fit(resumed, load(second), ckpt_path=tmp_path / "epoch=1.ckpt")
    assert other.attached.tasks == callback.attached.tasks == 2
    assert measure_gap(straight, resumed) == 0.0
    assert measure_memory_gap(callback.attached.state_dict(), other.attached.state_dict()) == 0.0


def test_a_strategy_that_saves_optimizers_its_own_way_loses_nothing(tmp_path: Path):
    class OwnWay(pl.strategies.SingleDeviceStrategy):
        def optimizer_state(self, optimizer):
            return {key: value for key, value in optimizer.state_dict().items() if key in ("state", "param_groups")}

    first, second = make_tasks(2)
    straight, callback = Module(), GateCallback()
    learn([first], straight, callback)
    keeper = pl.callbacks.ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    trainer = make_trainer(callback, strategy=OwnWay("cpu"), enable_checkpointing=True, more=[keeper])
    trainer.fit(straight, load(second))
    resumed, other = Module(), GateCallback()
    make_trainer(other, strategy=OwnWay("cpu")).fit(resumed, load(second), ckpt_path=tmp_path / "epoch=0.ckpt")
    assert measure_gap(straight, resumed) == 0.0
    assert measure_memory_gap(callback.attached.state_dict(), other.attached.state_dict()) == 0.0


def test_weights_are_projected_before_validation():
    first, second = make_tasks(2)

    class Watched(Module):
        def validation_step(self, batch, batch_idx):
            self.drifts.append(callback.attached.telemetry().get("drift", 0.0))

    module, callback = Watched(), DriftBoundCallback(tolerance=0.01, every=1000)
    module.drifts = []
    for task in (first, second):
        make_trainer(callback).fit(module, load(task), load(task))
    assert max(module.drifts) == pytest.approx(1, abs=1e-3)


class Manual(Module):
    automatic_optimization = False


class Two(Module):
    def configure_optimizers(self):
        return [torch.optim.SGD(layer.parameters()) for layer in (self.network[0], self.network[2])]

    automatic_optimization = False


class Silent(Module):
    def training_step(self, batch, batch_idx):
        super().training_step(batch, batch_idx)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (Manual, {}, "`objective` must be given for a module that optimizes manually"),
        (Two, {"objective": lambda module, batch: 0}, "the callback needs a module with one optimizer, got 2"),
        (Silent, {}, "`training_step` must return the loss, got NoneType"),
        (Module, {"objective": lambda module, batch: module}, "`objective` must return one number or one per example"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(make, options, message):
    (task,) = make_tasks(1)
    module, callback = make(), GateCallback(**options)
    with pytest.raises(ValueError, match=message) as raised:
        learn([task], module, callback)
    assert len(str(raised.value).splitlines()) == 1
    assert callback.attached is None or callback.attached.memory_bytes == 0


RANKS = """
import json
import sys
from pathlib import Path
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from sfao.integrations.lightning import DriftBoundCallback, GateCallback


class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def training_step(self, batch, number):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-2)


if __name__ == "__main__":
    torch.manual_seed(0)
    module, callback = Classifier(), GateCallback()
    quiet = {name: False for name in ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")}
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        examples = torch.randn(64, 8, generator=generator), torch.randint(0, 3, (64,), generator=generator)
        ranks = {"accelerator": "cpu", "devices": 2, "strategy": sys.argv[1]}
        trainer = Trainer(max_epochs=1, callbacks=[callback], **ranks, **quiet)
        trainer.fit(module, DataLoader(TensorDataset(*examples), batch_size=8))
    memory = callback.attached
    seen = [memory.tasks, memory.memory_bytes, *(float(p.detach().sum()) for p in module.parameters())]
    Path(__file__).with_name(f"rank{trainer.global_rank}").write_text(json.dumps(seen))
"""


def run_ranks(tmp_path, strategy):
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, script, strategy], capture_output=True, text=True, timeout=600, env=environment, check=False
    )


def test_ranks_of_a_strategy_have_one_memory_that_goes_on(tmp_path):
    done = run_ranks(tmp_path, "ddp")
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"rank{number}").read_text()) for number in range(2))
    assert first == second
    assert first[0] == 2


def test_a_strategy_whose_processes_end_with_fit_is_refused(tmp_path):
    done = run_ranks(tmp_path, "ddp_fork")
    assert done.returncode != 0
    assert "the memory would end with them" in done.stderr
