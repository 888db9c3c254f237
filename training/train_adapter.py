"""Train an adapter (LoRA) that lets a small language model of llama.cpp write plans.

    python training/train_adapter.py model.gguf
    python training/train_adapter.py model.gguf --start --minutes 15    # teach the adapter new sentences

The model is read from its GGUF file as it will run, so that the adapter learns around what its few bits
lost. The adapter is written as a GGUF file. `planning/offline/plan_text.py` has the notation of plans.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import gguf
import numpy as np
import torch
from augment import Example, joined, project_examples, read_examples, slots_of, varied, voices
from torch import Tensor, distributed, nn
from torch.nn import functional
from train import DEVELOPMENT, SHOWN
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from jarvis_agent.core.settings import Settings
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline.adapter import ADAPTER
from jarvis_agent.planning.offline.network import load_network
from jarvis_agent.planning.offline.plan_text import PlanText
from jarvis_agent.planning.offline.sequences import TokenizedRequest, Vocabulary

LINEAR = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""The linear layers that are adapted: their names in torch and in GGUF."""
OTHERS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
TOKENS, POOL, LONGEST = 768, 160, 256
"""Tokens of a batch, samples that are sorted by length together, and tokens of a sample at most."""


class Adapted(nn.Module):
    """A linear layer that stays as it is, and a product of two small matrices beside it."""

    def __init__(self, linear: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.weight, self.bias, self.scale = linear.weight, linear.bias, alpha / rank
        self.a = nn.Parameter(torch.randn(rank, linear.in_features) / math.sqrt(linear.in_features))
        self.b = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.linear(x, self.a.to(x.dtype))
        return functional.linear(x, self.weight, self.bias) + functional.linear(
            inner, (self.b * self.scale).to(x.dtype)
        )


def load_model(path: Path) -> Qwen2ForCausalLM:
    """The model of a GGUF file with the architecture of Qwen2, in bfloat16.

    Raises:
        SystemExit: the file has another architecture.
    """
    reader = gguf.GGUFReader(path)

    def about(name: str) -> int | float | str:
        return reader.fields[name].contents()

    if about("general.architecture") != "qwen2":
        raise SystemExit(f"{path} has the architecture {about('general.architecture')}, not qwen2")
    arrays = {
        tensor.name: torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        for tensor in reader.tensors
    }
    words = arrays["token_embd.weight"]
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=about("qwen2.embedding_length"),
        intermediate_size=about("qwen2.feed_forward_length"),
        num_hidden_layers=about("qwen2.block_count"),
        num_attention_heads=about("qwen2.attention.head_count"),
        num_key_value_heads=about("qwen2.attention.head_count_kv"),
        rms_norm_eps=about("qwen2.attention.layer_norm_rms_epsilon"),
        rope_theta=about("qwen2.rope.freq_base"),
        tie_word_embeddings=True,
    )
    torch.set_default_dtype(torch.bfloat16)
    model = Qwen2ForCausalLM._from_config(config, attn_implementation="eager")
    torch.set_default_dtype(torch.float32)
    state = {"model.embed_tokens.weight": words, "model.norm.weight": arrays["output_norm.weight"]}
    for number in range(config.num_hidden_layers):
        for ours, theirs in {**LINEAR, **OTHERS}.items():
            for part in ("weight", "bias"):
                if (name := f"blk.{number}.{theirs}.{part}") in arrays:
                    state[f"model.layers.{number}.{ours}.{part}"] = arrays[name]
    state["lm_head.weight"] = arrays.get("output.weight", words)
    model.load_state_dict(state)
    return model.requires_grad_(False)


def adapt(model: Qwen2ForCausalLM, rank: int, alpha: float) -> dict[str, Adapted]:
    """Put adapters on all linear layers; they by their names in GGUF."""
    adapted = {}
    for number, layer in enumerate(model.model.layers):
        for ours, theirs in LINEAR.items():
            part, name = ours.split(".")
            module = Adapted(getattr(getattr(layer, part), name), rank, alpha)
            setattr(getattr(layer, part), name, module)
            adapted[f"blk.{number}.{theirs}"] = module
    return adapted


def load_saved(path: Path, adapted: dict[str, Adapted]) -> None:
    """Take the weights of a written adapter. Raises RuntimeError if its rank is another one."""
    arrays = {tensor.name: torch.from_numpy(tensor.data.copy()) for tensor in gguf.GGUFReader(path).tensors}
    with torch.no_grad():
        for name, module in adapted.items():
            module.a.copy_(arrays[f"{name}.weight.lora_a"])
            module.b.copy_(arrays[f"{name}.weight.lora_b"])


def save(path: Path, adapted: dict[str, Adapted], alpha: float, base: str) -> None:
    """Write the adapter in 16 bits, as llama.cpp reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, alpha)
    writer.add_string("general.base_model.0.name", base)
    for name, module in adapted.items():
        for letter, weight in (("a", module.a), ("b", module.b)):
            writer.add_tensor(f"{name}.weight.lora_{letter}", weight.detach().numpy().astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


Sample = tuple[list[int], list[int]]


class Encoder:
    """Examples as the tokens of their prompts and plans."""

    def __init__(self, vocabulary: Vocabulary, base: Path) -> None:
        self._vocabulary = vocabulary
        self._tokenizer = AutoTokenizer.from_pretrained(base.parent, gguf_file=base.name)
        self.end = self._tokenizer.convert_tokens_to_ids("<|im_end|>")

    def sample_of(self, example: Example) -> Sample | None:
        """None if the plan cannot be written, or is too long."""
        request = TokenizedRequest(self._vocabulary, PlanRequest.of(example.asked.inputs))
        actions = request.actions_of(example.asked.plan, example.left)
        if actions is None:
            return None
        text = PlanText(request)
        # In two parts, as the prompt and the plan will be read.
        prompt, plan = (
            self._tokenizer(part, add_special_tokens=False)["input_ids"]
            for part in (text.prompt, text.write(actions))
        )
        return (prompt, [*plan, self.end]) if len(prompt) + len(plan) < LONGEST else None


def samples(examples: Sequence[Example], encoder: Encoder, seed: int, share: float) -> Iterator[Sample]:
    """Samples without end: every example in turn, some varied, a share of them joined with another one."""
    rng, slots, queue = Random(seed), slots_of(examples), []
    while True:
        if not queue:
            queue = rng.sample(examples, len(examples))
        example = queue.pop()
        if rng.random() < 0.5:
            example = varied(example, slots, rng)
        if rng.random() < share and (both := joined(example, rng.choice(examples), rng)):
            example = both
        if sample := encoder.sample_of(example):
            yield sample


def batches(stream: Iterator[Sample], rng: Random) -> Iterator[list[Sample]]:
    """Batches of samples of nearly the same length."""
    while True:
        pool = sorted((next(stream) for _ in range(POOL)), key=lambda sample: sum(map(len, sample)))
        made: list[list[Sample]] = [[]]
        for sample in pool:
            if (len(made[-1]) + 1) * sum(map(len, sample)) > TOKENS:
                made.append([])
            made[-1].append(sample)
        rng.shuffle(made)
        yield from made


def loss_of(model: Qwen2ForCausalLM, batch: Sequence[Sample], words: Tensor) -> tuple[Tensor, int]:
    """Cross-entropy of the tokens of the plans, and how many plans have no other likeliest token.

    Only tokens of `words`, and those of the plans, compete: most of a large vocabulary is in no plan.
    """
    length = max(len(prompt) + len(plan) for prompt, plan in batch)
    ids = torch.zeros(len(batch), length, dtype=torch.long)
    wanted = torch.full((len(batch), length), -100)
    for row, (prompt, plan) in enumerate(batch):
        ids[row, : len(prompt) + len(plan)] = torch.tensor([*prompt, *plan])
        wanted[row, len(prompt) - 1 : len(prompt) + len(plan) - 1] = torch.tensor(plan)
    # Tokens after the end are only seen by each other, so that no mask is needed.
    states = model.model(input_ids=ids, use_cache=False).last_hidden_state
    words = torch.cat([words, ids.flatten()]).unique()
    logits = functional.linear(states[wanted >= 0], model.lm_head.weight[words]).float()
    target = torch.searchsorted(words, wanted[wanted >= 0])
    rows = (wanted >= 0).nonzero()[:, 0]
    wrong = {*rows[logits.argmax(-1) != target].tolist()}
    return functional.cross_entropy(logits, target), len(batch) - len(wrong)


@torch.no_grad()
def check(model: Qwen2ForCausalLM, held: Sequence[Sample], words: Tensor) -> str:
    """Loss and share of plans of which every token is the likeliest one, given those before."""
    right, lost, count = 0, 0.0, 0
    for start in range(0, len(held), 16):
        loss, good = loss_of(model, batch := held[start : start + 16], words)
        tokens = sum(len(plan) for _, plan in batch)
        lost, count, right = lost + float(loss) * tokens, count + tokens, right + good
    return f"development: loss {lost / count:.3f}, {right / len(held):.1%} as written"


def main() -> None:
    """Train in processes with one thread and samples of their own, which share each step."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="GGUF file, such as `jarvis setup` downloads")
    parser.add_argument("--out", type=Path, default=ADAPTER)
    parser.add_argument("--start", action="store_true", help="go on from the adapter of the package")
    parser.add_argument("--minutes", type=float, default=75)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rate", type=float, default=8e-4)
    parser.add_argument("--joined", type=float, default=0.1, help="share of samples that are two requests")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--port", type=int, default=29512, help="of this machine, where the processes meet")
    given = parser.parse_args()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(given.port))
    torch.multiprocessing.spawn(work, (given,), given.processes)


def work(rank: int, given: argparse.Namespace) -> None:
    """One process; the first one prints a line every minute or two, and saves every ten minutes."""
    distributed.init_process_group("gloo", rank=rank, world_size=given.processes)
    torch.manual_seed(given.seed)
    torch.set_num_threads(1)
    encoder = Encoder(load_network(Settings(offline=True)).vocabulary, given.model)
    learned = [voice for voice in voices() if voice.stem not in DEVELOPMENT]
    shown = [voice for voice in learned if voice.stem in SHOWN]
    examples = [*read_examples([*learned, *shown]), *project_examples()]
    development = read_examples(voice for voice in voices() if voice.stem in DEVELOPMENT)
    held = [sample for example in development if (sample := encoder.sample_of(example))]
    held = sorted(Random(0).sample(held, 160), key=lambda sample: sum(map(len, sample)))
    written = [sample for example in examples if (sample := encoder.sample_of(example))]
    words = torch.tensor([token for parts in written for part in parts for token in part]).unique()
    model = load_model(given.model)
    alpha = 2.0 * given.rank
    adapted = adapt(model, given.rank, alpha)
    if given.start:
        load_saved(ADAPTER, adapted)
    weights = [weight for module in adapted.values() for weight in (module.a, module.b)]
    say = functools.partial(print, flush=True) if rank == 0 else (lambda *_: None)
    say(f"{len(examples)} examples, {sum(map(Tensor.numel, weights)) / 1e6:.1f} M weights")
    optimizer = torch.optim.AdamW(weights, lr=given.rate, betas=(0.9, 0.99), weight_decay=0.0)
    stream = samples(examples, encoder, given.seed + 1000 * rank, given.joined)
    began, spoken, checked, seen, running, progress = time.monotonic(), 0.0, 0.0, 0.0, 0.0, 0.0
    for step, batch in enumerate(batches(stream, Random(given.seed))):
        for group in optimizer.param_groups:
            group["lr"] = given.rate * min(1, (step + 1) / 30) * max(0.02, 1 - progress)
        loss, _ = loss_of(model, batch, words)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        now = time.monotonic() - began
        about = torch.tensor([now / 60 / given.minutes, loss.item(), len(batch)])
        shared = torch.cat([about, *(weight.grad.flatten() for weight in weights)]) / given.processes
        distributed.all_reduce(shared)
        progress, lost, size = shared[:3].tolist()
        for weight, gradient in zip(weights, shared[3:].split([w.numel() for w in weights]), strict=True):
            weight.grad.copy_(gradient.view_as(weight))
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        seen += size * given.processes
        running += (lost - running) * (0.03 if step > 30 else 1 / (step + 1))
        if rank == 0 and now - spoken > 60:
            spoken = now
            say(f"{now:.0f} s, {seen:.0f} samples, loss {running:.3f}")
        if rank == 0 and now - checked > 600:
            checked = now
            say(check(model, held, words))
            save(given.out, adapted, alpha, given.model.name)
        if progress >= 1:
            break
    if rank == 0:
        say(f"{seen:.0f} samples; {check(model, held, words)}")
        save(given.out, adapted, alpha, given.model.name)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
