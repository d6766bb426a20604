"""SFAO among the things people use with an optimizer."""

import copy

import pytest
import torch
from torch import nn

from sfao import SFAO, Decision, Gate, layer_groups
from tests.optim.problem import loss, network, task, train, trained, weights

PROJECT = {"accept_above": 1, "discard_below": -1}


def test_closures():
    plain_model, model = network(), network()
    train(plain_model, trained(plain_model, SFAO(layer_groups(plain_model), lr=0.1, **PROJECT), 1), task(1))
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1, **PROJECT), 1)
    for inputs, targets in task(1):

        def closure(inputs=inputs, targets=targets):
            optimizer.zero_grad()
            value = loss(model(inputs), targets)
            value.backward()
            return value

        assert optimizer.step(closure).item() > 0
    assert torch.equal(weights(plain_model), weights(model))


def test_grad_scaler_unscales_before_the_gate_and_skips_infinities():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1, **PROJECT), 1)
    plain_model, plain = copy.deepcopy((model, optimizer))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for inputs, targets in task(1):
        optimizer.zero_grad()
        scaler.scale(loss(model(inputs), targets)).backward()
        scaler.step(optimizer)
        scaler.update()
    train(plain_model, plain, task(1))
    assert torch.allclose(weights(model), weights(plain_model), atol=1e-6)
    before, counts = weights(model), optimizer.counts
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, float("inf"))
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(weights(model), before)
    assert optimizer.counts == counts


def test_grad_scaler_with_a_gate_before_a_fused_optimizer():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    gate = Gate(layer_groups(model), **PROJECT).attach(optimizer)
    gate.consolidate(model, task(0), loss)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    inputs, targets = task(1)[0]
    scaler.scale(loss(model(inputs), targets)).backward()
    scaler.step(optimizer)
    assert gate.risk() < 1e-6
    before = weights(model)
    scaler.update()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, float("nan"))
    scaler.step(optimizer)
    assert torch.equal(weights(model), before)


def test_gradient_accumulation():
    whole_model, model = network(), network()
    whole = trained(whole_model, SFAO(layer_groups(whole_model), lr=0.1, **PROJECT), 1)
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1, **PROJECT), 1)
    inputs, targets = task(1)[0]
    whole.zero_grad()
    optimizer.zero_grad()
    loss(whole_model(inputs), targets).backward()
    whole.step()
    for part in (slice(0, 8), slice(8, 16)):
        (loss(model(inputs[part]), targets[part]) / 2).backward()
    optimizer.step()
    assert torch.allclose(weights(whole_model), weights(model), atol=1e-6)


def test_clipping_before_the_step():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), lr=1.0, **PROJECT), 1)
    optimizer.zero_grad()
    loss(model(task(1)[0][0]), task(1)[0][1]).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    before = weights(model)
    optimizer.step()
    assert 0 < (weights(model) - before).norm() <= 1.001e-3
    assert optimizer.risk() < 1e-9


def test_frozen_and_unused_parameters():
    model = nn.ModuleDict({"body": nn.Linear(12, 8), "used": nn.Linear(8, 3), "unused": nn.Linear(8, 3)})
    model["body"].bias.requires_grad_(False)
    forward = nn.Sequential(model["body"], nn.Tanh(), model["used"])
    optimizer = SFAO(layer_groups(model), lr=0.1, weight_decay=0.5, momentum=0.9, **PROJECT)
    before = copy.deepcopy(model.state_dict())
    train(forward, optimizer, task(0))
    optimizer.consolidate(forward, task(0), loss)
    train(forward, optimizer, task(1))
    assert set(optimizer.last_decisions) == {"body", "used"}
    assert optimizer.risk() < 1e-6
    assert torch.equal(before["body.bias"], model["body"].bias)
    assert torch.equal(before["unused.weight"], model["unused"].weight)
    assert not torch.equal(before["body.weight"], model["body"].weight)
    assert optimizer.counts["unused"] == {"accept": 0, "project": 0, "discard": 0, "zero": 0}


def test_freezing_on_the_way_keeps_the_rest_safe():
    """With the weight frozen after the first task, the bias alone must not move against what is remembered of it."""
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1, capacity=4, **PROJECT), 1)
    model[0].weight.requires_grad_(False)
    train(model, optimizer, task(1))
    blocks = optimizer.state_dict()["gate"]["layers"]["0"]["memory"]["blocks"]
    bias_directions = blocks[0]["tensors"][1]
    assert bias_directions.any()
    along = bias_directions @ model[0].bias.grad
    assert along.abs().max() <= 1e-5 * bias_directions.norm(dim=1).max() * model[0].bias.grad.norm()
    model[0].weight.requires_grad_(True)
    train(model, optimizer, task(1))
    assert optimizer.risk() < 1e-6


def test_heads_used_in_turn():
    body, heads = nn.Linear(12, 8), nn.ModuleList([nn.Linear(8, 3) for _ in range(3)])
    model = nn.ModuleDict({"body": body, "heads": heads})
    optimizer = SFAO(layer_groups(model), lr=0.1, momentum=0.9, **PROJECT)
    for number, head in enumerate(heads):
        others = [weights(other) for other in heads[:number]]
        through = nn.Sequential(body, nn.Tanh(), head)
        train(through, optimizer, task(number))
        optimizer.consolidate(through, task(number), loss)
        assert all(torch.equal(weights(other), then) for other, then in zip(heads[:number], others, strict=True))
    assert optimizer.counts["heads.0"]["accept"] == 6


def test_heads_used_in_turn_with_the_global_gate():
    body, heads = nn.Linear(12, 8), nn.ModuleList([nn.Linear(8, 3) for _ in range(2)])
    model = nn.ModuleDict({"body": body, "heads": heads})
    for storage in ("dense", "factored"):
        optimizer = SFAO(layer_groups(model), lr=0.1, granularity="global", storage=storage, **PROJECT)
        for number, head in enumerate(heads):
            through = nn.Sequential(body, nn.Tanh(), head)
            train(through, optimizer, task(number))
            optimizer.consolidate(through, task(number), loss)
        assert optimizer.counts["model"]["project"] == 6


def test_shared_parameters_belong_to_the_first_module():
    encoder, decoder = nn.Linear(12, 12), nn.Linear(12, 12)
    decoder.weight = encoder.weight
    model = nn.Sequential(encoder, nn.Tanh(), decoder, nn.Linear(12, 3))
    groups = layer_groups(model)
    assert [(g["name"], len(g["params"])) for g in groups] == [("0", 2), ("2", 1), ("3", 2)]
    optimizer = trained(model, SFAO(groups, lr=0.1, **PROJECT))
    assert optimizer.risk() < 1e-6


def test_schedulers():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1), 1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    rates = []
    for _ in range(4):
        train(model, optimizer, task(1))
        scheduler.step()
        rates.append([group["lr"] for group in optimizer.param_groups])
    assert rates[-1] == [pytest.approx(0), pytest.approx(0)]
    one_cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=5, cycle_momentum=False)
    train(model, optimizer, task(1))
    one_cycle.step()
    optimizer.load_state_dict(optimizer.state_dict())


def test_plain_parameters_are_a_layer_each():
    model = network()
    optimizer = SFAO(model.parameters(), lr=0.1)
    assert list(optimizer.counts) == ["layer0", "layer1", "layer2", "layer3"]
    assert list(SFAO(model.named_parameters()).counts) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    with pytest.warns(RuntimeWarning, match=r"without an input space.*'layer1' \(linear\)"):
        trained(model, optimizer)


def test_a_compiled_step():
    plain_model, model = network(), network()
    train(plain_model, trained(plain_model, SFAO(layer_groups(plain_model), lr=0.1, **PROJECT), 1), task(1))
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1, **PROJECT), 1)
    step = torch.compile(optimizer.step, backend="eager")
    for inputs, targets in task(1):
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        step()
    assert torch.allclose(weights(plain_model), weights(model), atol=1e-6)
    assert optimizer.risk() < 1e-6


def test_a_compiled_model():
    model = network()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = SFAO(layer_groups(compiled), lr=0.1, **PROJECT)
    assert list(optimizer.counts) == ["0", "2"]
    trained(compiled, optimizer)
    plain_model = network()
    trained(plain_model, SFAO(layer_groups(plain_model), lr=0.1, **PROJECT))
    assert torch.allclose(weights(model), weights(plain_model), atol=1e-5)
    assert optimizer.risk() < 1e-6


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("storage", ["dense", "factored"])
def test_channels_last(memory_format, storage):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 2))
    model = model.to(memory_format=memory_format)
    optimizer = SFAO(layer_groups(model), lr=0.1, storage=storage, **PROJECT)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(3, 8, 3, 8, 8, generator=generator)
    batches = [(x.to(memory_format=memory_format), torch.randint(0, 2, (8,), generator=generator)) for x in images]
    optimizer.consolidate(model, batches[:2], loss)
    train(model, optimizer, batches[2:])
    assert set(optimizer.last_decisions.values()) == {Decision.PROJECT}
    assert optimizer.risk() < 1e-6


def test_bfloat16_parameters_and_autocast():
    model = network(dtype=torch.bfloat16)
    optimizer = SFAO(layer_groups(model), lr=0.1, momentum=0.9, **PROJECT)
    train(model, optimizer, task(0, dtype=torch.bfloat16))
    optimizer.consolidate(model, task(0, dtype=torch.bfloat16), loss)
    train(model, optimizer, task(1, dtype=torch.bfloat16))
    # The update is rounded to bfloat16 after the projection: three digits.
    assert optimizer.risk() < 1e-2 * max(float(p.grad.norm()) for p in model.parameters())
    model = network()
    optimizer = SFAO(layer_groups(model), lr=0.1, **PROJECT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        trained(model, optimizer)
    assert optimizer.risk() < 1e-6


def test_products_of_the_gate_are_exact_whatever_the_model_runs_in():
    model = network()
    optimizer = SFAO(layer_groups(model), lr=0.1, **PROJECT)
    torch.set_float32_matmul_precision("medium")
    try:
        trained(model, optimizer)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert optimizer.risk() < 1e-6


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="torch 2.9 brought this")
def test_products_are_exact_where_precision_is_a_matter_of_backends():
    """Having been set for one of them, it cannot be read for all of them at once any more."""
    model = network()
    optimizer = SFAO(layer_groups(model), lr=0.1, **PROJECT)
    torch.backends.cuda.matmul.fp32_precision = "none"
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    torch.backends.fp32_precision = "tf32"
    try:
        trained(model, optimizer)
        assert optimizer.risk() < 1e-6
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        torch.backends.fp32_precision = "ieee"
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    finally:
        torch.backends.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")


def test_the_names_of_a_models_layers():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert [g["name"] for g in layer_groups(model)] == ["0", "1.0", "1.1"]
    assert [g["name"] for g in layer_groups(nn.Linear(2, 2))] == ["(root)"]


def test_the_memory_follows_the_gradients_to_their_device():
    """The meta device stands in for another one. It keeps no values, so bringing the memory back must fail, and
    nothing but bringing it back can fail that way.
    """
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1, **PROJECT), 1)
    memory = optimizer.gate.layers[0].memory
    memory.to(torch.device("meta"))
    assert memory.device.type == "meta"
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        train(model, optimizer, task(1))
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        optimizer.consolidate(model, task(1), nn.CrossEntropyLoss())
