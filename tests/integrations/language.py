"""A small language model, and lines of text that it can learn."""

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 24


def make_language_model(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=16, use_cache=False, **sizes))


class Lines(Dataset):
    """Lines in which every token is that before it plus the number of the task."""

    def __init__(self, task: int, count: int = 48) -> None:
        generator = torch.Generator().manual_seed(task)
        starts = torch.randint(VOCABULARY, (count, 1), generator=generator)
        self.tokens: Tensor = (starts + (task + 1) * torch.arange(8)) % VOCABULARY

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}
