"""A loop with accelerate that is stopped in its second task and resumes from the saved state. Takes some seconds."""

import tempfile

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.functional import cross_entropy

import sfao


def make_task(seed):
    generator = torch.Generator().manual_seed(seed)
    centres, kinds = torch.randn(10, 40, generator=generator), torch.randint(0, 10, (600,), generator=generator)
    points = centres[kinds] + torch.randn(600, 40, generator=generator)
    return list(zip(points.split(20), kinds.split(20), strict=True))


def prepare(accelerator):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    bound = sfao.DriftBound(model).attach(optimizer)
    return *accelerator.prepare(model, optimizer), bound


def train(accelerator, model, optimizer, batches):
    for points, kinds in batches:
        optimizer.zero_grad()
        accelerator.backward(cross_entropy(model(points), kinds))
        optimizer.step()


first, second = make_task(1), make_task(2)
with tempfile.TemporaryDirectory() as folder:
    accelerator = Accelerator(cpu=True)
    model, optimizer, bound = prepare(accelerator)
    train(accelerator, model, optimizer, first)
    bound.consolidate(first, cross_entropy)
    train(accelerator, model, optimizer, second[:10])
    accelerator.save_state(folder)
    train(accelerator, model, optimizer, second[10:])

    again = Accelerator(cpu=True)
    resumed, resumed_optimizer, resumed_bound = prepare(again)
    again.load_state(folder)
    train(again, resumed, resumed_optimizer, second[10:])

gap = max(float((a - b).detach().abs().max()) for a, b in zip(model.parameters(), resumed.parameters(), strict=True))
print(f"{resumed_bound.tasks} task consolidated, difference {gap}")
