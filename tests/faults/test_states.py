"""States that were altered: each is refused by a line that names the entry, and nothing changes, or is as good."""

import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from sfao.gating.options import DEFAULTS
from sfao.optim._digest import digest
from tests.faults.subjects import MEMORIES, Subject
from tests.faults.tally import Attack, in_soak
from tests.faults.test_interrupts import copy_subject, make_subject

#: Settings and options that anyone may set in a state, within their rules: they are what they say, not altered.
SETTINGS = "param_groups"
#: How far parameters may be from those of the unaltered state: products computed anew differ in their last bits.
ROUNDING = 1e-5


def find_places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all entries of nested containers, the containers among them."""
    if path:
        yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from find_places(child, (*path, key))


def alter_tensor(tensor: Tensor, random: Random) -> Any:
    changed = tensor.clone()
    place = random.randrange(max(1, tensor.numel()))
    kinds: list[Callable[[], Any]] = [
        lambda: tensor[..., :-1] if tensor.ndim else tensor[None],
        lambda: tensor.double() if tensor.dtype != torch.float64 else tensor.half(),
        lambda: tensor.to("meta"),
        lambda: tensor.to_sparse(),
        lambda: tensor.unsqueeze(0),
        lambda: None,
        lambda: tensor.tolist(),
    ]
    if tensor.is_floating_point() and tensor.numel():
        for number in (float("nan"), float("inf"), 1e30, -1.0, 0.5):
            kinds.append(
                lambda number=number: changed.view(-1).index_fill(0, torch.tensor(place), number).view_as(tensor)
            )
        kinds.append(lambda: tensor.flip(0) if tensor.ndim else tensor + 1)
    return random.choice(kinds)()


def alter_value(value: Any, random: Random) -> Any:
    if isinstance(value, Tensor):
        return alter_tensor(value, random)
    if isinstance(value, bool):
        return random.choice([not value, "yes", None, 2])
    if isinstance(value, (int, float)):
        return random.choice([value + 1, -value - 1, float("nan"), 10**30, "1", None, [value]])
    if isinstance(value, str):
        return random.choice([value + "x", "", None, 3])
    if isinstance(value, list):
        return random.choice([value[:-1], [*value, *value[-1:]], value[::-1], None, {}, "list"])
    if isinstance(value, dict):
        return random.choice([{}, None, [], dict(list(value.items())[1:])])
    return random.choice([0, "x", [], float("nan")])


def alter(state: dict[str, Any], random: Random) -> tuple[str, str, dict[str, Any]]:
    """Return an altered copy of a state, with how and where: changed, missing, extra, or swapped with another entry."""
    altered = copy.deepcopy(state)
    places = [path for path in find_places(altered) if SETTINGS not in path and "options" not in path]
    path = random.choice(places)
    parent = reach(altered, path[:-1])
    how = random.choice(["changed", "changed", "changed", "missing", "extra", "swapped"])
    if how == "changed":
        parent[path[-1]] = alter_value(parent[path[-1]], random)
    elif how == "missing":
        del parent[path[-1]]
    elif how == "extra" and isinstance(parent, dict):
        parent[f"{path[-1]}x"] = parent[path[-1]]
    else:
        other = random.choice(places)
        a, b = reach(altered, path), reach(altered, other)
        parent[path[-1]] = b
        if path[: len(other)] != other and other[: len(path)] != path:
            reach(altered, other[:-1])[other[-1]] = a
    return how, "/".join(map(str, path)), altered


def reach(state: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        state = state[key]
    return state


def go_on(subject: Subject) -> list[Tensor]:
    """Train and consolidate once more; return the parameters."""
    subject.train(3)
    subject.consolidate(3)
    subject.train(4)
    return [parameter.detach() for parameter in subject.model.parameters()]


def find_error(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as error:
        return error
    return None


def load_altered(subject: Subject, state: dict[str, Any], expected: list[Tensor]) -> None:
    before, momentum = subject.write_memory(), digest(subject.optimizer.state_dict()["state"])
    refusal = find_error(lambda: subject.load(state))
    if refusal is not None:
        said = str(refusal)
        assert isinstance(refusal, RuntimeError), f"{type(refusal).__name__}: {said}"
        assert said.startswith("`state_dict` must"), f"no rule: {said}"
        assert len(said.splitlines()) == 1, f"not one line: {said}"
        assert subject.write_memory() == before, "refused, but the memory has changed"
        assert digest(subject.optimizer.state_dict()["state"]) == momentum, "refused, but momentum has changed"
        return
    found: list[Tensor] = []
    error = find_error(lambda: found.extend(go_on(subject)))
    assert error is None, f"loaded, then {type(error).__name__}: {error}"
    gap = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
    assert gap <= ROUNDING, f"loaded, and went on otherwise, {gap:.1e} away"


@pytest.mark.parametrize("memory", MEMORIES)
def test_altered_states(memory: str, attack: Callable[[str, str], Attack]) -> None:
    begun = attack(f"load_state_dict, {memory}", "an entry of the gate's state changed, missing, added or swapped")
    original = make_subject(memory, "SFAO")
    state = copy.deepcopy(original.optimizer.state_dict())
    expected = go_on(copy_subject(original))
    random = Random(memory)
    for _ in range(in_soak(20, 1000)):
        how, where, altered = alter(state, random)
        subject = copy_subject(original)
        begun.try_it(f"{how} {where}", lambda s=subject, a=altered: load_altered(s, a, expected))


@pytest.mark.parametrize(("memory", "kind"), [("both", "SFAO"), ("both", "Gate"), ("dense directions", "SFAO")])
def test_altered_options_are_refused_when_loaded_or_serve(
    memory: str, kind: str, attack: Callable[[str, str], Attack]
) -> None:
    begun = attack(f"load_state_dict, {memory}, {kind}", "an option of one group changed")
    original = make_subject(memory, kind)
    state = copy.deepcopy(original.optimizer.state_dict())
    groups = ("param_groups",) if kind == "SFAO" else ("sfao_gate", "options")
    random = Random(memory)
    for name in random.sample(list(DEFAULTS), in_soak(8, len(DEFAULTS))):
        altered = copy.deepcopy(state)
        group = reach(altered, groups)[1]
        group[name] = alter_value(group[name], random)
        subject = copy_subject(original)
        begun.try_it(f"{name}={group[name]!r}", lambda subject=subject, altered=altered: serve(subject, altered))


def serve(subject: Subject, state: dict[str, Any]) -> None:
    """Load a state, and go on with it if it is not refused."""
    refusal = find_error(lambda: subject.load(state))
    if refusal is not None:
        assert isinstance(refusal, RuntimeError), f"{type(refusal).__name__}: {refusal}"
        assert str(refusal).startswith("`state_dict` must"), f"no rule: {refusal}"
    else:
        error = find_error(lambda: go_on(subject))
        assert error is None, f"loaded, then {type(error).__name__}: {error}"
