"""A LoRA adapter that learns two tasks, with the gate on the adapter alone. Takes some seconds."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from sfao.integrations.gates import find_gate
from sfao.integrations.peft import create_sfao_optimizer

VOCABULARY = 24
torch.set_num_threads(1)  # small tensors gain nothing from more


def make_batches(step):
    """Lines in which every token is that before it plus `step`, after a marker of the task."""
    lines = (torch.arange(VOCABULARY)[:, None] + step * torch.arange(8)) % VOCABULARY
    lines = torch.cat([torch.full((len(lines), 1), VOCABULARY + step), lines], dim=1)
    return [{"input_ids": part, "labels": part} for part in lines.split(8)]


torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
base = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY + 8, max_position_embeddings=16, use_cache=False, **sizes))
model = get_peft_model(base, LoraConfig(r=8, target_modules="all-linear"))

optimizer = create_sfao_optimizer(model, torch.optim.AdamW, lr=1e-2, gate_options={"keep": 0.05})
gate = find_gate(optimizer)
for step in (1, 5):
    for batch in make_batches(step) * 20:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    gate.consolidate(model, make_batches(step))
print(f"{len(gate.layers)} layers, {gate.memory_bytes / 1e6:.2f} MB")
print(gate.layers[0].name)
