"""The trained planner in numpy, without torch.

planner = PointerPlanner(Path("planner.npz"))
plan, confidence = planner.plan(PlanRequest.of("Describe cat.jpg in French"))
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sequences import END, MARKERS, START, SYMBOLS, Prompt, Vocabulary

from jarvis_agent.backends.starter.backend import MINILM, STARTERS, fetch_weights
from jarvis_agent.core.settings import Settings
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.plan import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

HEADS, DECODER_HEADS, LAYERS, DECODER_LAYERS, SIZE = 12, 6, 6, 3, 384
BEAM, LONGEST = 4, 150


class _Beam(NamedTuple):
    score: float
    actions: tuple[int, ...]


class PointerPlanner:
    """Writes plans of requests, action by action; only the Hub's task types."""

    def __init__(self, weights: Path, settings: Settings | None = None) -> None:
        """Read the weights, and MiniLM's words and tokenizer."""
        from safetensors import safe_open
        from tokenizers import Tokenizer

        folder = fetch_weights(STARTERS[MINILM], settings or Settings()).parent
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        with safe_open(folder / "model.safetensors", framework="numpy") as file:
            self._words = file.get_tensor("embeddings.word_embeddings.weight")
        with np.load(weights) as saved:
            about = json.loads(bytes(saved["about"]))
            if about["symbols"] != SYMBOLS or about["markers"] != MARKERS:
                raise ValueError(f"{weights} was trained for other task types: train it again")
            self._weights: dict[str, Floats] = {}
            for name in saved.files:
                if name == "about" or name.endswith(".scale"):
                    continue
                array = saved[name]
                if array.dtype == np.int8:
                    array = array * saved[f"{name}.scale"]
                is_table = "embeddings" in name or name.split(".")[0] in ("rows", "actions", "places")
                self._weights[name] = array if array.ndim < 2 or is_table else np.ascontiguousarray(array.T)
        self._vocabulary = Vocabulary.of(tokenizer, about["chinese"])

    def plan(self, request: PlanRequest) -> tuple[Plan, float]:
        """The likeliest plan, and the logarithm of its probability."""
        prompt = Prompt(self._vocabulary, request)
        states = self._encode(prompt)
        best = self._search(prompt, states, request)
        tasks, left = prompt.plan_of(best.actions[1:])
        notes = [f"“{words}”: no task does this" for words in left]
        return Plan(tasks=tasks, notes=notes, removed=notes), best.score

    def _encode(self, prompt: Prompt) -> Floats:
        words, rows = prompt.arrays()
        weights = self._weights
        states = self._words[words] + weights["rows.weight"][rows].sum(1)
        states = states + weights["encoder.embeddings.position_embeddings.weight"][: len(words)]
        states = states + weights["encoder.embeddings.token_type_embeddings.weight"][0]
        states = self._norm("encoder.embeddings.LayerNorm", states, 1e-12)
        for number in range(LAYERS):
            layer = f"encoder.encoder.layer.{number}"
            parts = (
                self._linear(f"{layer}.attention.self.{part}", states) for part in ("query", "key", "value")
            )
            mixed = self._linear(f"{layer}.attention.output.dense", _attend(*parts, HEADS))
            states = self._norm(f"{layer}.attention.output.LayerNorm", states + mixed, 1e-12)
            inner = _gelu(self._linear(f"{layer}.intermediate.dense", states))
            outer = self._linear(f"{layer}.output.dense", inner)
            states = self._norm(f"{layer}.output.LayerNorm", states + outer, 1e-12)
        return states

    def _search(self, prompt: Prompt, states: Floats, request: PlanRequest) -> _Beam:
        read = (self._linear(f"layers.{number}.tokens", states) for number in range(DECODER_LAYERS))
        tokens = [np.split(both, 2, -1) for both in read]
        pointed, copied = self._linear("pointed", states), self._linear("copied", states)
        beams, done = [_Beam(0.0, (START,))], [_Beam(-np.inf, (START, END))]
        cache = np.zeros((DECODER_LAYERS, 2, 1, 0, SIZE), np.float32)
        while beams and len(beams[0].actions) < LONGEST and done[-1].score < beams[0].score:
            logs, cache = self._step([beam.actions for beam in beams], cache, tokens, pointed, copied)
            masks = [prompt.allowed(beam.actions[1:], request.specs) for beam in beams]
            scores = np.where(masks, logs, -np.inf) + np.array([[beam.score] for beam in beams])
            best = [divmod(int(place), scores.shape[1]) for place in np.argsort(-scores, axis=None)[:BEAM]]
            made = [
                (row, _Beam(float(scores[row, action]), (*beams[row].actions, action)))
                for row, action in best
                if np.isfinite(scores[row, action])
            ]
            done = sorted(
                [*done, *(beam for _, beam in made if beam.actions[-1] == END)], key=lambda beam: beam.score
            )
            cache = cache[:, :, [row for row, beam in made if beam.actions[-1] != END]]
            beams = [beam for _, beam in made if beam.actions[-1] != END]
        return done[-1]

    def _step(
        self,
        written: Sequence[tuple[int, ...]],
        cache: Floats,
        tokens: Sequence[Any],
        pointed: Floats,
        copied: Floats,
    ) -> tuple[Floats, Floats]:
        """Log-probabilities of the next action; keys and values (layers, 2, beams, actions, 384)."""
        weights, grown = self._weights, []
        table = np.concatenate([weights["actions.weight"], copied])
        x = table[[actions[-1] for actions in written]] + weights["places.weight"][len(written[0]) - 1]
        for number in range(DECODER_LAYERS):
            layer = f"layers.{number}"
            query, key, value = np.split(self._linear(f"{layer}.own", self._norm(f"{layer}.norm1", x)), 3, -1)
            own = np.concatenate([cache[number], np.stack([key, value])[:, :, None]], 2)
            grown.append(own)
            pairs = zip(query, own[0], own[1], strict=True)
            mixed = np.concatenate([_attend(q[None], k, v, DECODER_HEADS) for q, k, v in pairs])
            x = x + self._linear(f"{layer}.own_out", mixed)
            query = self._linear(f"{layer}.query", self._norm(f"{layer}.norm2", x))
            x = x + self._linear(f"{layer}.tokens_out", _attend(query, *tokens[number], DECODER_HEADS))
            inner = self._linear(f"{layer}.inner", self._norm(f"{layer}.norm3", x))
            x = x + self._linear(f"{layer}.outer", _gelu(inner))
        x = self._norm("norm", x)
        pointers = self._linear("pointer", x) @ pointed.T / np.float32(SIZE**0.5)
        logits = np.concatenate([self._linear("symbols", x), pointers], -1)
        logits -= logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), np.stack(grown)

    def _linear(self, name: str, x: Floats) -> Floats:
        return x @ self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]

    def _norm(self, name: str, x: Floats, epsilon: float = 1e-5) -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(epsilon))
        return scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _attend(query: Floats, key: Floats, value: Floats, heads: int) -> Floats:
    q, k, v = (x.reshape(len(x), heads, -1).swapaxes(0, 1) for x in (query, key, value))
    scores = q @ k.swapaxes(1, 2) / np.float32(q.shape[-1] ** 0.5)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = scores / scores.sum(-1, keepdims=True) @ v
    return mixed.swapaxes(0, 1).reshape(query.shape)


def _gelu(x: Floats) -> Floats:
    return (
        x
        * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x**3)))
        * np.float32(0.5)
    )
