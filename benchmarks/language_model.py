"""A small language model that is fine-tuned with LoRA on three tasks in a row, and what it forgets.

python benchmarks/language_model.py [--seeds 1] [--pretrain-steps 6000] [--task-steps 400]

The model is a Llama of two layers. It is pretrained here on lines such as `F g a d b = k c m a`: a marker, letters, and
the letters in the cipher of the marker, eight ciphers in all. Each task is the cipher of a marker that the model has
never seen, so the tasks contradict each other in everything but the marker. One LoRA adapter learns them one after the
other, on a frozen base. Nothing is downloaded; needs transformers and peft (`make test-company` installs them).
"""

import argparse
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from statistics import fmean, stdev
from time import perf_counter

import torch
from peft import LoraConfig, OSFConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from sfao.integrations.peft import create_sfao_optimizer

LETTERS, LENGTH, BATCH = 16, 6, 64
KNOWN, NEW = 8, 3
EQUALS = LETTERS + KNOWN + NEW
IGNORED = -100

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Ciphers:
    """One permutation of the letters for every marker: first those of the pretraining, then those of the tasks."""

    tables: Tensor

    @staticmethod
    def draw(generator: torch.Generator) -> "Ciphers":
        return Ciphers(torch.stack([torch.randperm(LETTERS, generator=generator) for _ in range(KNOWN + NEW)]))

    def write(self, markers: Tensor, generator: torch.Generator) -> Batch:
        """Return one line for each marker; only the answers have labels."""
        words = torch.randint(LETTERS, (len(markers), LENGTH), generator=generator)
        answers = self.tables[markers].gather(1, words)
        equals = torch.full((len(markers), 1), EQUALS)
        lines = torch.cat([markers[:, None] + LETTERS, words, equals, answers], dim=1)
        labels = lines.clone()
        labels[:, : LENGTH + 2] = IGNORED
        return {"input_ids": lines, "labels": labels}

    def write_task(self, task: int, count: int, generator: torch.Generator) -> Batch:
        return self.write(torch.full((count,), KNOWN + task), generator)

    def write_known(self, count: int, generator: torch.Generator) -> Batch:
        return self.write(torch.randint(KNOWN, (count,), generator=generator), generator)


def make_model(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=EQUALS + 1,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=32,
            use_cache=False,
        )
    )


def pretrain(model: LlamaForCausalLM, ciphers: Ciphers, steps: int, generator: torch.Generator) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**ciphers.write_known(BATCH, generator)).loss.backward()
        optimizer.step()
        schedule.step()


@torch.no_grad()
def measure(model: torch.nn.Module, lines: Batch) -> float:
    """Return the share of the letters of the answers that are right, each after the right ones before it."""
    places = lines["labels"][:, 1:] != IGNORED
    found = model(input_ids=lines["input_ids"]).logits[:, :-1].argmax(-1)
    return float((found == lines["labels"][:, 1:])[places].float().mean())
