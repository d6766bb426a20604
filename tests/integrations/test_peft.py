"""peft: adapters are gated and nothing else, and the memory of one is not taken for that of another."""

from copy import deepcopy

import pytest
import torch
from peft import LoraConfig, get_peft_model

import sfao
from sfao.batches import read_model_loss
from sfao.integrations.attached import consolidate_task, find_attached
from sfao.integrations.peft import adapter_groups, create_sfao_optimizer
from tests.integrations.language import Lines, make_language_model
from tests.integrations.tasks import measure_gap, measure_memory_gap

RANK, LAYERS = 4, 2


def make_adapter(seed: int = 0, base=None, **options):
    torch.manual_seed(seed)
    config = LoraConfig(**{"r": RANK, "target_modules": ["q_proj", "v_proj"], **options})
    return get_peft_model(base or make_language_model(), config)


def make_batches(task: int):
    lines = torch.stack([line["input_ids"] for line in Lines(task)])
    return [{"input_ids": part, "labels": part} for part in lines.split(8)]


def train(model, optimizer, batches) -> None:
    for batch in batches:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()


def consolidate(optimizer, model, batches) -> None:
    consolidate_task(optimizer, model, batches, read_model_loss, None)


def learn(model, optimizer, tasks) -> None:
    for task in tasks:
        train(model, optimizer, make_batches(task))
        consolidate(optimizer, model, make_batches(task))


def test_the_groups_are_the_trained_parameters_and_no_others():
    model = make_adapter()
    groups = adapter_groups(model)
    names = [group["name"] for group in groups]
    assert len(names) == 2 * 2 * LAYERS
    assert names[0] == "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default"
    grouped = {parameter for group in groups for parameter in group["params"]}
    assert grouped == {parameter for parameter in model.parameters() if parameter.requires_grad}


@pytest.mark.parametrize(("kind", "acts"), [(sfao.Gate, "project"), (sfao.DriftBound, "acted")])
def test_adapters_learn_and_remember_and_the_base_stays(kind, acts):
    model, base = make_adapter(), make_language_model()
    optimizer = create_sfao_optimizer(model, torch.optim.AdamW, lr=1e-2, kind=kind)
    learn(model, optimizer, range(3))
    attached = find_attached(optimizer)
    assert attached.tasks == 3
    assert attached.telemetry()[acts] > 0
    assert measure_gap(model.unload(), base) == 0.0


def test_a_saved_state_goes_on_to_the_bit():
    model = make_adapter()
    optimizer = create_sfao_optimizer(model, lr=1e-2)
    learn(model, optimizer, [0])
    weights, state = deepcopy(model.state_dict()), deepcopy(optimizer.state_dict())
    learn(model, optimizer, [1])

    other = make_adapter(seed=1)
    other.load_state_dict(weights)
    resumed = create_sfao_optimizer(other, lr=1e-2)
    resumed.load_state_dict(state)
    assert find_attached(resumed).tasks == 1
    learn(other, resumed, [1])
    assert measure_gap(model, other) == 0.0
    assert measure_memory_gap(find_attached(optimizer).state_dict(), find_attached(resumed).state_dict()) == 0.0


@pytest.mark.parametrize("kind", [sfao.Gate, sfao.DriftBound])
def test_the_memory_of_an_adapter_that_was_merged_is_refused(kind):
    model = make_adapter()
    optimizer = create_sfao_optimizer(model, lr=1e-2, kind=kind)
    learn(model, optimizer, [0])
    state = optimizer.state_dict()
    again = make_adapter(seed=1, base=model.merge_and_unload())
    fresh = create_sfao_optimizer(again, lr=1e-2, kind=kind)
    fresh.load_state_dict(state)
    with pytest.raises(RuntimeError, match="weights"):
        train(again, fresh, make_batches(1)[:1])


def test_the_memory_of_adapters_with_another_name_or_rank_is_refused():
    model = make_adapter()
    optimizer = create_sfao_optimizer(model, lr=1e-2)
    learn(model, optimizer, [0])
    for other in (make_adapter(r=RANK + 1), make_adapter(target_modules=["k_proj"])):
        fresh = create_sfao_optimizer(other, lr=1e-2)
        with pytest.raises((RuntimeError, ValueError)):
            fresh.load_state_dict(optimizer.state_dict())
        assert find_attached(fresh).tasks == 0


def test_what_has_no_adapter_to_train_is_refused():
    with pytest.raises(ValueError, match="`model` must be a peft model, got LlamaForCausalLM"):
        adapter_groups(make_language_model())
    frozen = make_adapter()
    frozen.requires_grad_(False)
    with pytest.raises(ValueError, match="`model` must have an adapter that is trained, but 'default' is frozen"):
        create_sfao_optimizer(frozen, lr=1e-2)
