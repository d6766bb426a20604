"""Three tasks with the Trainer of transformers, one Trainer for each. Takes half a minute."""

import tempfile

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from sfao.integrations.attached import find_attached
from sfao.integrations.transformers import ConsolidateCallback, create_bounded_optimizer

VOCABULARY = 24
torch.set_num_threads(1)  # small tensors gain nothing from more


def make_task(step):
    """Lines in which every token is that before it plus `step`."""
    lines = (torch.arange(VOCABULARY)[:, None] + step * torch.arange(8)) % VOCABULARY
    marker = torch.full((len(lines), 1), VOCABULARY + step)
    return [{"input_ids": line, "labels": line} for line in torch.cat([marker, lines], dim=1)] * 4


def make_model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=VOCABULARY + 8, max_position_embeddings=16, use_cache=False, **sizes)
    )


def measure(model, task):
    """Return the share of tokens, from the third on, that the model predicts."""
    lines = torch.stack([line["input_ids"] for line in task])
    found = model(input_ids=lines).logits[:, 1:-1].argmax(-1)
    return float((found == lines[:, 2:]).float().mean())


tasks = [make_task(step) for step in (1, 5, 7)]
with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        folder,
        num_train_epochs=8,
        per_device_train_batch_size=8,
        learning_rate=5e-3,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
    )
    model, bound = make_model(), None
    for module in model.modules():  # RMSNorm can't be bounded
        if not isinstance(module, nn.Linear):
            for parameter in module.parameters(recurse=False):
                parameter.requires_grad_(False)
    for task in tasks:
        # A new AdamW for every task, as the Trainer makes it; the bound moves from one to the next.
        optimizer = create_bounded_optimizer(model, args, bound)
        callbacks = [ConsolidateCallback()]
        Trainer(model, args, train_dataset=task, optimizers=(optimizer, None), callbacks=callbacks).train()
        bound = find_attached(optimizer)
model.eval()
print("after all three:", *(f"{measure(model, task):.2f}" for task in tasks))
print(f"{bound.tasks} tasks in {bound.memory_bytes / 1e6:.2f} MB")
