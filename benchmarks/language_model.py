"""A small language model that is fine-tuned with LoRA on three tasks in a row, and what it forgets.

python benchmarks/language_model.py [--seeds 3] [--task-steps 200] [--only NAME...] [--json FILE]

The model is a Llama of two layers. It is pretrained here on lines such as `F g a d b = k c m a`: a marker, letters,
and the letters in the cipher of the marker, eight ciphers in all. Each task is the cipher of a marker that the model
has never seen, so the tasks contradict each other in everything but the marker. One LoRA adapter learns them one
after the other, on a frozen base. Nothing is downloaded; needs transformers and peft (`make test-company` installs
them). One seed takes about three minutes on a core of its own.
"""

import argparse
import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter

import peft
import torch
import transformers
from peft import LoraConfig, OSFConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from transformers import LlamaConfig, LlamaForCausalLM

from sfao.experiment.record import versions
from sfao.integrations.gates import find_gate
from sfao.integrations.peft import create_sfao_optimizer

LETTERS, LENGTH, BATCH = 16, 6, 64
KNOWN, NEW = 8, 3
PRETRAINING_STEPS, LR = 800, 3e-3
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


def pretrain(model: LlamaForCausalLM, ciphers: Ciphers, generator: torch.Generator) -> None:
    optimizer = AdamW(model.parameters(), lr=2e-3)
    for _ in range(PRETRAINING_STEPS):
        optimizer.zero_grad()
        model(**ciphers.write_known(BATCH, generator)).loss.backward()
        optimizer.step()


@torch.no_grad()
def measure(model: nn.Module, lines: Batch) -> float:
    """Return the share of the letters of the answers that are right, each after the right ones before it."""
    places = lines["labels"][:, 1:] != IGNORED
    found = model(input_ids=lines["input_ids"]).logits[:, :-1].argmax(-1)
    return float((found == lines["labels"][:, 1:])[places].float().mean())


class Alone:
    """AdamW on a LoRA adapter, and nothing against forgetting."""

    def start(self, base: nn.Module) -> tuple[PeftModel, Optimizer]:
        model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"))
        return model, self.make_optimizer(model)

    def make_optimizer(self, model: PeftModel) -> Optimizer:
        return AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=0.0)

    def measure_penalty(self, model: PeftModel) -> Tensor | float:
        return 0.0

    def finish(self, model: PeftModel, optimizer: Optimizer, batches: list[Batch]) -> tuple[PeftModel, Optimizer]:
        """End a task; return what the next one is learnt with."""
        return model, optimizer


@dataclass
class Gated(Alone):
    """The same with a gate in front, over the adapter alone."""

    options: dict[str, float]

    def make_optimizer(self, model: PeftModel) -> Optimizer:
        return create_sfao_optimizer(model, AdamW, lr=LR, gate_options=self.options, weight_decay=0.0)

    def finish(self, model: PeftModel, optimizer: Optimizer, batches: list[Batch]) -> tuple[PeftModel, Optimizer]:
        find_gate(optimizer).consolidate(model, batches)
        return model, optimizer


class ElasticWeights(Alone):
    """Elastic weight consolidation of the adapter: Fisher information of single lines, summed over tasks."""

    def __init__(self, strength: float, examples: int = 200) -> None:
        self.strength, self.examples = strength, examples
        self.anchors: list[Tensor] = []
        self.fisher: list[Tensor] = []

    def measure_penalty(self, model: PeftModel) -> Tensor | float:
        trained = [p for p in model.parameters() if p.requires_grad]
        parts = [(f * (p - a) ** 2).sum() for f, p, a in zip(self.fisher, trained, self.anchors, strict=False)]
        return self.strength / 2 * sum(parts) if parts else 0.0

    def finish(self, model: PeftModel, optimizer: Optimizer, batches: list[Batch]) -> tuple[PeftModel, Optimizer]:
        trained = [p for p in model.parameters() if p.requires_grad]
        total = [torch.zeros_like(p) for p in trained]
        lines = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
        for number in range(self.examples):
            loss = model(**{name: value[number : number + 1] for name, value in lines.items()}).loss
            for sum_of_squares, gradient in zip(total, torch.autograd.grad(loss, trained), strict=True):
                sum_of_squares += gradient**2 / self.examples
        self.fisher = [old + new for old, new in zip(self.fisher or [0.0] * len(total), total, strict=True)]
        self.anchors = [p.detach().clone() for p in trained]
        return model, optimizer


class OrthogonalSubspaces(Alone):
    """peft's OSF: each task is merged, and the next trains what lies outside the largest singular directions.

    As peft's page has it, with more of the directions kept for every task.
    """

    SHARES = (0.5, 0.7, 0.9)

    def __init__(self) -> None:
        self.tasks = 0

    def start(self, base: nn.Module) -> tuple[PeftModel, Optimizer]:
        share = self.SHARES[min(self.tasks, len(self.SHARES) - 1)]
        model = get_peft_model(base, OSFConfig(target_modules="all-linear", effective_rank=share))
        return model, self.make_optimizer(model)

    def finish(self, model: PeftModel, optimizer: Optimizer, batches: list[Batch]) -> tuple[PeftModel, Optimizer]:
        self.tasks += 1
        return self.start(model.merge_and_unload())


METHODS: dict[str, Callable[[], Alone]] = {
    "AdamW": Alone,
    "EWC": lambda: ElasticWeights(1e6),
    "OSF": OrthogonalSubspaces,
    "gate": lambda: Gated({}),
    "gate, keep=0.05": lambda: Gated({"keep": 0.05}),
}


@dataclass(frozen=True)
class Result:
    """Accuracies at the end, of each task and of the pretraining; those of each task right after it; seconds."""

    tasks: list[float]
    learnt: list[float]
    known: float
    seconds: float


def run(method: Alone, base: nn.Module, ciphers: Ciphers, steps: int, seed: int) -> Result:
    """Learn the tasks in a row."""
    start = perf_counter()
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(1000 + seed)
    tests = [ciphers.write_task(task, 256, generator) for task in range(NEW)]
    model, optimizer = method.start(deepcopy(base))
    learnt = []
    for task in range(NEW):
        for _ in range(steps):
            optimizer.zero_grad()
            (model(**ciphers.write_task(task, BATCH, generator)).loss + method.measure_penalty(model)).backward()
            optimizer.step()
        learnt.append(measure(model, tests[task]))
        batches = [ciphers.write_task(task, 100, generator) for _ in range(6)]
        model, optimizer = method.finish(model, optimizer, batches)
    known = measure(model, ciphers.write_known(512, generator))
    return Result([measure(model, lines) for lines in tests], learnt, known, perf_counter() - start)


def summarise(name: str, results: list[Result]) -> dict[str, str | float]:
    """Return a row of the table: means over seeds, and the deviation of the average."""
    averages = [fmean(result.tasks) for result in results]
    tasks = [fmean(column) for column in zip(*(result.tasks for result in results), strict=True)]
    return {
        "method": name,
        "average": fmean(averages),
        "sd": stdev(averages) if len(averages) > 1 else 0.0,
        **dict(zip(("first", "second", "third"), tasks, strict=True)),
        "learnt": fmean(fmean(result.learnt) for result in results),
        "known": fmean(result.known for result in results),
        "seconds": fmean(result.seconds for result in results),
    }


def describe(name: str, results: list[Result]) -> str:
    return (
        "{method:18} {average:.3f} ± {sd:.3f}  {first:5.2f} {second:5.2f} {third:5.2f}  {learnt:6.2f}  {known:6.2f}  "
        "{seconds:5.0f} s".format(**summarise(name, results))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--task-steps", type=int, default=200)
    parser.add_argument("--only", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, list[Result]] = {name: [] for name in arguments.only}
    # Settings were chosen on seeds 0 and 100.
    for seed in range(1, 1 + arguments.seeds):
        generator = torch.Generator().manual_seed(seed)
        ciphers, base = Ciphers.draw(generator), make_model(seed)
        pretrain(base, ciphers, generator)
        print(f"seed {seed}: pretrained, {measure(base, ciphers.write_known(512, generator)):.2f} of the letters right")
        for name in arguments.only:
            results[name].append(run(METHODS[name](), base, ciphers, arguments.task_steps, seed))
            print(describe(name, results[name][-1:]), flush=True)
    print(f"\n{'method':18} {'average':13}  {'after all three':17}  learnt   known   time")
    for name, found in results.items():
        print(describe(name, found))
    if arguments.json:
        kept = {
            "seeds": arguments.seeds,
            "machine": {**versions("cpu"), "peft": peft.__version__, "transformers": transformers.__version__},
            "rows": [summarise(name, found) for name, found in results.items()],
        }
        arguments.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
