import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from sfao.lab.methods.fisher import batch_fisher, exact_fisher
from sfao.lab.methods.method import TaskView
from sfao.lab.models import build_model, wide_resnet


def batches(shape=(1, 4, 4), classes=3, sizes=(5, 5, 2)):
    return [(torch.randn(size, *shape), torch.randint(classes, (size,))) for size in sizes]


def one_by_one(model, data, parameters):
    """Mean over examples of the squared gradient, a backward pass an example."""
    total, seen = [torch.zeros_like(p) for p in parameters], 0
    model.eval()
    for inputs, targets in data:
        for image, target in zip(inputs, targets, strict=True):
            found = torch.autograd.grad(
                cross_entropy(model(image[None]), target[None]), parameters, materialize_grads=True, allow_unused=True
            )
            for sum_, gradient in zip(total, found, strict=True):
                sum_ += gradient**2
            seen += 1
    return [sum_ / seen for sum_ in total]


class Branching(nn.Module):
    """A network that reads its activations: vmap can't run it."""

    def __init__(self):
        super().__init__()
        self.hidden, self.head = nn.Linear(16, 7), nn.Linear(7, 3)

    def forward(self, images):
        features = self.hidden(images.flatten(1))
        return self.head(features.relu() if features.sum() > 0 else features)


class Shared(nn.Module):
    """One Linear layer used twice, one on rows of the image: neither gradient is an outer product an example."""

    def __init__(self):
        super().__init__()
        self.rows, self.twice, self.head = nn.Linear(4, 4), nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, images):
        features = self.rows(images[:, 0]).flatten(1).relu()
        return self.head(self.twice(self.twice(features).relu()))


def networks():
    return {
        "mlp": build_model("mlp", (1, 4, 4), 3, 0, hidden=[7, 6]),
        "cnn": build_model("cnn", (1, 4, 4), 3, 0, fc=6),
        "wrn": wide_resnet((1, 4, 4), 3, depth=10, widen=1),
        "in place": nn.Sequential(nn.Flatten(), nn.Linear(16, 7), nn.ReLU(inplace=True), nn.Linear(7, 3, bias=False)),
        "shared": Shared(),
        "branching": Branching(),
        "odd": nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=(2, 1), dilation=(1, 2)),
            nn.Conv2d(4, 4, 1, groups=2),
            nn.Conv2d(4, 5, 3, padding=1, padding_mode="circular"),
            nn.Flatten(),
            nn.Linear(15, 3),
        ),
    }


@pytest.mark.parametrize("name", list(networks()))
def test_exact_is_the_mean_of_squared_gradients_of_examples(name, monkeypatch):
    monkeypatch.setattr("sfao.lab.methods.fisher.CHUNK_VALUES", 20000)  # some networks in several chunks
    model, data = networks()[name], batches()
    parameters = list(model.parameters())
    expected = one_by_one(model, data, parameters)
    for found, wanted in zip(exact_fisher(model, data, parameters), expected, strict=True):
        assert not found.requires_grad
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("measure", [exact_fisher, batch_fisher])
def test_the_model_is_left_as_it_was(measure):
    model = wide_resnet((1, 4, 4), 3, depth=10, widen=1)
    model.group2.eval()
    modes = [module.training for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    measure(TaskView(model, slice(0, 3)), batches(), list(model.parameters()))
    assert modes == [module.training for module in model.modules()]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("measure", [exact_fisher, batch_fisher])
def test_outputs_of_other_tasks_have_none_beside_frozen_parameters(measure):
    model = networks()["cnn"]
    model.conv1.weight.requires_grad_(False)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    found = measure(TaskView(model, slice(1, 3)), batches(classes=2), list(trained.values()))
    named = dict(zip(trained, found, strict=True))
    assert not named["classifier.weight"][0].any()
    assert named["classifier.weight"][1:].any()
    assert named["conv2.weight"].any()


def test_batch_squares_the_gradient_of_every_batch():
    model, data = networks()["mlp"], batches()
    parameters = list(model.parameters())
    squares = [[g**2 for g in torch.autograd.grad(cross_entropy(model(x), y), parameters)] for x, y in data]
    for found, wanted in zip(batch_fisher(model, data, parameters), zip(*squares, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(wanted).mean(0))
