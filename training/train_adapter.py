"""Train an adapter (LoRA) that lets a small language model of llama.cpp write plans.

    python training/train_adapter.py model.gguf --minutes 60
    python training/train_adapter.py model.gguf --minutes 60 --voices all    # also those for development

The model is read from its GGUF file as it will run, so that the adapter learns around what its few bits
lost. The adapter is written as a GGUF file. `planning/offline/plan_text.py` has the notation of plans.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import gguf
import numpy as np
import torch
from augment import Example, joined, project_examples, read_examples, slots_of, varied, voices
from torch import Tensor, nn
from torch.nn import functional
from train import DEVELOPMENT, SHOWN
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from jarvis_agent.core.settings import Settings
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline.network import load_network
from jarvis_agent.planning.offline.plan_text import PlanText
from jarvis_agent.planning.offline.sequences import TokenizedRequest, Vocabulary

OUT = Path("build/adapter.gguf")
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
    model = Qwen2ForCausalLM(config)
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


def loss_of(model: Qwen2ForCausalLM, batch: Sequence[Sample]) -> tuple[Tensor, int]:
    """Cross-entropy of the tokens of the plans, and how many plans have no other likeliest token."""
    length = max(len(prompt) + len(plan) for prompt, plan in batch)
    ids = torch.zeros(len(batch), length, dtype=torch.long)
    wanted = torch.full((len(batch), length), -100)
    for row, (prompt, plan) in enumerate(batch):
        ids[row, : len(prompt) + len(plan)] = torch.tensor([*prompt, *plan])
        wanted[row, len(prompt) - 1 : len(prompt) + len(plan) - 1] = torch.tensor(plan)
    # Tokens after the end are only seen by each other, so that no mask is needed.
    states = model.model(input_ids=ids, use_cache=False).last_hidden_state
    logits = model.lm_head(states[wanted >= 0]).float()
    target = wanted[wanted >= 0]
    rows = (wanted >= 0).nonzero()[:, 0]
    wrong = {*rows[logits.argmax(-1) != target].tolist()}
    return functional.cross_entropy(logits, target), len(batch) - len(wrong)


@torch.no_grad()
def check(model: Qwen2ForCausalLM, held: Sequence[Sample]) -> str:
    """Loss and share of plans of which every token is the likeliest one, given those before."""
    right, lost, count = 0, 0.0, 0
    for start in range(0, len(held), 16):
        loss, good = loss_of(model, batch := held[start : start + 16])
        tokens = sum(len(plan) for _, plan in batch)
        lost, count, right = lost + float(loss) * tokens, count + tokens, right + good
    return f"development: loss {lost / count:.3f}, {right / len(held):.1%} as written"


def main() -> None:
    """Train for some minutes, with a line of progress every minute; the file is saved every five."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="GGUF file, such as `jarvis setup` downloads")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--voices", choices=("learned", "all"), default="learned")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rate", type=float, default=8e-4)
    parser.add_argument("--joined", type=float, default=0.1, help="share of samples that are two requests")
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    encoder = Encoder(load_network(Settings(offline=True)).vocabulary, given.model)
    learned = [voice for voice in voices() if given.voices == "all" or voice.stem not in DEVELOPMENT]
    shown = [voice for voice in learned if voice.stem in SHOWN]
    examples = [*read_examples([*learned, *shown]), *project_examples()]
    held = [
        sample
        for example in read_examples(voice for voice in voices() if voice.stem in DEVELOPMENT)
        if (sample := encoder.sample_of(example))
    ]
    held = sorted(Random(0).sample(held, 160), key=lambda sample: sum(map(len, sample)))
    model = load_model(given.model)
    alpha = 2.0 * given.rank
    adapted = adapt(model, given.rank, alpha)
    weights = [weight for module in adapted.values() for weight in (module.a, module.b)]
    print(f"{len(examples)} examples, {sum(map(Tensor.numel, weights)) / 1e6:.1f} M weights", flush=True)
    optimizer = torch.optim.AdamW(weights, lr=given.rate, betas=(0.9, 0.99), weight_decay=0.0)
    stream = samples(examples, encoder, given.seed, given.joined)
    began, spoken, checked, seen, running = time.monotonic(), 0.0, 0.0, 0, 0.0
    for step, batch in enumerate(batches(stream, Random(given.seed))):
        now = time.monotonic() - began
        progress = now / 60 / given.minutes
        if progress >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = given.rate * min(1, (step + 1) / 30) * max(0.02, 1 - progress)
        loss, _ = loss_of(model, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        seen += len(batch)
        running += (loss.item() - running) * (0.03 if step > 30 else 1 / (step + 1))
        if now - spoken > 60:
            spoken = now
            print(f"{now:.0f} s, {seen} samples, loss {running:.3f}", flush=True)
        if now - checked > 600:
            checked = now
            print(check(model, held), flush=True)
            save(given.out, adapted, alpha, given.model.name)
    print(f"{seen} samples; {check(model, held)}", flush=True)
    save(given.out, adapted, alpha, given.model.name)


if __name__ == "__main__":
    main()
