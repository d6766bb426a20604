"""transformers' Trainer: the memory is in its checkpoints, and training goes on from them to the bit."""

from pathlib import Path

import pytest
from transformers import Trainer, TrainingArguments

from sfao.integrations.attached import find_attached
from sfao.integrations.transformers import ConsolidateCallback, create_bounded_optimizer, create_gated_optimizer
from tests.integrations.language import Lines, make_language_model
from tests.integrations.tasks import measure_gap, measure_memory_gap

#: Layers of a few parameters are spanned soon, and these norms cannot be bounded.
pytestmark = [
    pytest.mark.filterwarnings("ignore:the directions of these layers:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:these parameters can't be bounded"),
]


def make_arguments(folder: Path, **options) -> TrainingArguments:
    given = {
        "per_device_train_batch_size": 8,
        "num_train_epochs": 2,
        "learning_rate": 1e-2,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "save_strategy": "no",
        **options,
    }
    return TrainingArguments(output_dir=str(folder), **given)


CREATE = [create_gated_optimizer, create_bounded_optimizer]


def train_task(model, task, args, attached=None, resume=None, callback=None, create=CREATE[0], **options):
    """Train one task with a Trainer of its own; return its gate or bound."""
    optimizer = create(model, args, attached, **options)
    trainer = Trainer(
        model,
        args,
        train_dataset=Lines(task),
        optimizers=(optimizer, None),
        callbacks=[callback or ConsolidateCallback()],
    )
    trainer.train(resume_from_checkpoint=resume)
    return find_attached(optimizer)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_accumulation_steps": 2, "max_grad_norm": 0.5},
        {"gradient_checkpointing": True},
        {"bf16": True},
        {"optim": "sgd"},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_resumed_from_a_checkpoint_nothing_differs(tmp_path: Path, options):
    args = make_arguments(tmp_path, **options)
    straight = make_language_model()
    gate = train_task(straight, 0, args)
    keeping = make_arguments(tmp_path / "second", save_strategy="epoch", **options)
    gate = train_task(straight, 1, keeping, gate)
    checkpoint = min((tmp_path / "second").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))

    resumed = make_language_model(seed=1)
    other = train_task(resumed, 1, make_arguments(tmp_path / "third", **options), resume=str(checkpoint))
    assert other.tasks == gate.tasks == 2
    assert measure_gap(straight, resumed) == 0.0
    assert measure_memory_gap(gate.state_dict(), other.state_dict()) == 0.0


@pytest.mark.parametrize("create", CREATE)
def test_another_trainer_continues_from_a_checkpoint(tmp_path: Path, create):
    straight = make_language_model()
    attached = train_task(straight, 0, make_arguments(tmp_path), create=create)
    attached = train_task(straight, 1, make_arguments(tmp_path / "1", save_strategy="epoch"), attached, create=create)
    checkpoint = min((tmp_path / "1").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    resumed = make_language_model(seed=1)
    other = train_task(resumed, 1, make_arguments(tmp_path / "2"), resume=str(checkpoint), create=create)
    assert attached.tasks == other.tasks == 2
    assert measure_gap(straight, resumed) == 0.0


def test_a_callback_without_a_gate_is_refused_before_anything_is_trained(tmp_path: Path):
    model, untouched = make_language_model(), make_language_model()
    trainer = Trainer(model, make_arguments(tmp_path), train_dataset=Lines(0), callbacks=[ConsolidateCallback()])
    with pytest.raises(
        ValueError, match="ConsolidateCallback needs an optimizer with a Gate or DriftBound, got one without"
    ):
        trainer.train()
    assert measure_gap(model, untouched) == 0.0
