"""A LoRA adapter that learns two tasks, with AdamW alone and with a DriftBound. Takes some seconds."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

import sfao
from sfao.integrations.attached import find_attached
from sfao.integrations.peft import create_sfao_optimizer

VOCABULARY = 24
torch.set_num_threads(1)  # small tensors gain nothing from more


def make_batches(step):
    """Lines in which every token is that before it plus `step`, after a marker of the task."""
    lines = (torch.arange(VOCABULARY)[:, None] + step * torch.arange(8)) % VOCABULARY
    lines = torch.cat([torch.full((len(lines), 1), VOCABULARY + step), lines], dim=1)
    return [{"input_ids": part, "labels": part} for part in lines.split(8)]


def make_model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=VOCABULARY + 8, max_position_embeddings=16, use_cache=False, **sizes)
    return get_peft_model(LlamaForCausalLM(config), LoraConfig(r=8, target_modules="all-linear"))


@torch.no_grad()
def accuracy(model, step):
    """How many tokens are continued right, from the second of a line on, which is the first that can be known."""
    right = [
        (model(**batch).logits[:, 1:-1].argmax(-1) == batch["input_ids"][:, 2:]).float() for batch in make_batches(step)
    ]
    return torch.cat(right).mean().item()


def learn(name, model, optimizer, bound=None):
    for step in (1, 5):
        for batch in make_batches(step) * 20:
            optimizer.zero_grad()
            model(**batch).loss.backward()
            optimizer.step()
        if bound is not None:
            bound.consolidate(make_batches(step))
        if step == 1:
            learnt = accuracy(model, 1)
    first, second = accuracy(model, 1), accuracy(model, 5)
    print(f"{name}: first task {learnt:.2f} when learned, {first:.2f} at the end; second task {second:.2f}")


model = make_model()
learn("AdamW", model, torch.optim.AdamW(model.parameters(), lr=1e-2))
for tolerance in (0.05, 0.1):  # a smaller one forgets less and learns less
    model = make_model()
    options = {"tolerance": tolerance}
    optimizer = create_sfao_optimizer(model, torch.optim.AdamW, lr=1e-2, kind=sfao.DriftBound, options=options)
    bound = find_attached(optimizer)
    learn(f"tolerance {tolerance}", model, optimizer, bound)
print(f"{len(bound.memory)} layers, {bound.memory_bytes / 1e6:.2f} MB")
