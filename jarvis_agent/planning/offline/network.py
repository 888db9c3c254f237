"""The network that writes plans: a small transformer in numpy, without torch.

MiniLM's encoder, trained further, reads the request; a decoder of three layers writes the plan as actions, of
which many point into the request (`sequences`). This is the pointer network of Rongali et al., "Don't Parse,
Generate! A Sequence to Sequence Architecture for Task-Oriented Semantic Parsing", 2020. The words are those
of MiniLM; all other weights are in planner.npz of the package with the weights, in 8 bits.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jarvis_agent.backends.starter.backend import MINILM, STARTERS, StarterModel, fetch_weights
from jarvis_agent.backends.starter.embeddings import map_words, word_vectors
from jarvis_agent.core.concurrency import check_cancelled
from jarvis_agent.core.errors import ConfigError, MissingExtraError, TransientError
from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import PREFERENCES, Preference, Task
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline.sequences import END, LEFT, MARKERS, START, TokenizedRequest, Vocabulary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

PLANNER = StarterModel(
    id="the planner's network",
    tasks=(),
    reader="",
    description="Writes plans of the Hub's tasks.",
    license="mit, apache-2.0",
    author="the authors of langchain-hugginggpt",
    source="planning.md#without-a-language-model",
    package="jarvis_agent_weights",
    folder="",
    # The training prints the digest and the size.
    files={"planner.npz": "3cf2f90308887254f2684b15bf8db5a2e3c57a696094466d11933eae180608ee"},
    size=24_416_203,
    needs=("numpy", "threadpoolctl", "tokenizers"),
)

SIZE, LAYERS, HEADS, DECODER_LAYERS, DECODER_HEADS = 384, 6, 12, 3, 6
LIKELY = math.log(0.5)
"""A preference below this is left out, and the plan is noted as a guess."""
SMOOTHED = 0.05
"""Share of the probability that training gives to other actions than the right one. A sure action lacks as
much, which must not make long plans unsure."""
BEAM, LONGEST = 4, 150
"""Plans that are compared while they are written, and actions of a plan at most."""


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """The likeliest plan of a request."""

    tasks: list[Task]
    left_out: list[str]
    """Words of the request that it leaves out, as no task does what they ask for."""
    probabilities: list[float]
    """Of each task, given those before it."""
    probability: float
    unread: str = ""
    """The middle of a long request, which the network did not read."""
    doubt: tuple[int, str] = (0, "")
    """The least likely part: the number of a task, and the name of an argument or "" for the task itself; the
    number of tasks for what follows them."""
    preference: Preference | None = None


class _Beam(NamedTuple):
    score: float
    actions: tuple[int, ...]
    scores: tuple[float, ...]


_LOAD_LOCK, _BLAS_LOCK = fork_safe(threading.Lock()), fork_safe(threading.Lock())


@lru_cache(maxsize=1)
def _blas() -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError as error:
        raise MissingExtraError("planning without an LLM", "starter") from error
    return ThreadpoolController().select(user_api="blas")


def open_network(settings: Settings, weights: Path | None = None) -> PointerNetwork:
    """The network, loaded once in a process; `weights` are those of another than the packaged one.

    Raises MissingExtraError, or ConfigError if installed weights have a wrong checksum.
    """
    try:
        folder = fetch_weights(STARTERS[MINILM], settings).parent
        weights = weights or fetch_weights(PLANNER, settings)
    except (MissingExtraError, TransientError) as error:
        raise MissingExtraError(f"{error}. Planning without an LLM", "starter") from error
    with _LOAD_LOCK:
        return _cached_network(weights, folder)


def read_weights(weights: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Floats], dict[str, list[str]]]:
    """The weights of a file, factors of those in 8 bits, and what rows stand for (symbols, …)."""
    import numpy as np

    with np.load(weights, allow_pickle=False) as saved:
        about = json.loads(bytes(saved["about"]))
        names = [name for name in saved.files if name != "about" and not name.endswith(".scale")]
        arrays = {name: saved[name] for name in names}
        scales = {name: saved[f"{name}.scale"] for name in names if arrays[name].dtype == np.int8}
    return arrays, scales, about


class PointerNetwork:
    """Writes plans of the Hub's task types, as far as the weights know them (`known_tasks`). Thread-safe."""

    def __init__(self, weights: Path, minilm: Path) -> None:
        """Read the weights (24 MB) and MiniLM's tokenizer.json, and open its words.npy."""
        try:
            import numpy as np
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError("planning without an LLM", "starter") from error
        tokenizer = Tokenizer.from_file(str(minilm / "tokenizer.json"))
        self._words = map_words(minilm / "words.npy")
        arrays, scales, about = read_weights(weights)
        self._weights: dict[str, NDArray[Any]] = {}
        self._scales: dict[str, Floats] = {}
        for name, array in arrays.items():
            is_table = "embeddings" in name or name.split(".")[0] in ("rows", "actions", "places")
            is_product = array.ndim == 2 and not is_table
            # Products with transposed matrices are faster.
            self._weights[name] = np.ascontiguousarray(array.T) if is_product else array
            if name in scales:
                self._scales[name] = scales[name].T if is_product else scales[name]
            if not name.startswith(("encoder.", "rows.")):  # these are used for every action of a plan
                self._weights[name] = self._whole(name)
                self._scales.pop(name, None)
        if about["markers"] != MARKERS:
            raise ConfigError(f"{weights} was trained for other markers; `make planner` trains it again")
        self.vocabulary = Vocabulary(tokenizer, about["chinese"], about["symbols"])
        self.known_tasks = self.vocabulary.tasks

    def write(self, request: PlanRequest, offered: Collection[str]) -> NetworkPlan:
        """The likeliest plan that uses only the offered task types."""
        tokens = TokenizedRequest(self.vocabulary, request)
        # On a busy machine small products are many times slower on several threads. Two limits that overlap
        # would not restore the number of threads.
        with _BLAS_LOCK, _blas().limit(limits=1):
            best = self._search(tokens, self._encode(tokens), offered)
        tasks, preference, left_out = tokens.plan_of(best.actions)
        shares = [0.0] * len(tasks)
        task, name, doubts = -1, "", list[tuple[float, int, str]]()
        scores = [min(0.0, score - math.log(1 - SMOOTHED)) for score in best.scores]
        for action, score in zip(best.actions, scores, strict=True):
            symbol = self.vocabulary.symbols[action] if action < len(self.vocabulary.symbols) else ""
            if action in (LEFT, END) or symbol in PREFERENCES:
                doubts.append((score, len(tasks), ""))
                preference = preference if score > LIKELY or preference == "local" else None
                break
            if symbol in self.vocabulary.tasks:
                task, name = task + 1, ""
            elif symbol.endswith("="):
                name = symbol[:-1]
            shares[task] += score
            doubts.append((score, task, name))
        likely = [math.exp(share) for share in shares]
        doubt = min(doubts)[1:]
        return NetworkPlan(tasks, left_out, likely, math.exp(sum(scores)), tokens.unread, doubt, preference)

    def _encode(self, request: TokenizedRequest) -> Floats:
        """The state of each token (tokens, 384)."""
        words, rows = request.arrays()
        states = word_vectors(self._words, words) + self._whole("rows.weight", rows).sum(1)
        states = states + self._whole("encoder.embeddings.position_embeddings.weight", slice(len(words)))
        states = states + self._whole("encoder.embeddings.token_type_embeddings.weight", 0)
        states = self._norm("encoder.embeddings.LayerNorm", states, 1e-12)
        for number in range(LAYERS):
            layer = f"encoder.encoder.layer.{number}"
            query, key, value = (
                self._linear(f"{layer}.attention.self.{part}", states) for part in ("query", "key", "value")
            )
            mixed = self._linear(f"{layer}.attention.output.dense", _attend(query, key, value, HEADS))
            states = self._norm(f"{layer}.attention.output.LayerNorm", states + mixed, 1e-12)
            inner = gelu(self._linear(f"{layer}.intermediate.dense", states))
            outer = self._linear(f"{layer}.output.dense", inner)
            states = self._norm(f"{layer}.output.LayerNorm", states + outer, 1e-12)
        return states

    def _search(self, request: TokenizedRequest, states: Floats, offered: Collection[str]) -> _Beam:
        """Beam search. Actions that are not allowed keep their share of the probability."""
        import numpy as np

        read = (self._linear(f"layers.{number}.tokens", states) for number in range(DECODER_LAYERS))
        tokens = [np.split(both, 2, -1) for both in read]
        pointed, copied = self._linear("pointed", states), self._linear("copied", states)
        beams, done = [_Beam(0.0, (), ())], _Beam(-np.inf, (END,), (-np.inf,))
        cache = np.zeros((DECODER_LAYERS, 2, 1, 0, SIZE), np.float32)
        for _ in range(LONGEST):
            check_cancelled()
            last = [beam.actions[-1] if beam.actions else START for beam in beams]
            logs, cache = self._step(last, cache, tokens, pointed, copied)
            masks = [request.allowed(beam.actions, offered) for beam in beams]
            logs = np.where(masks, logs, -np.inf)
            scores = logs + np.array([[beam.score] for beam in beams])
            best = (divmod(int(place), scores.shape[1]) for place in np.argsort(-scores, axis=None)[:BEAM])
            rows, grown = [], []
            for row, action in best:
                actions, own = (*beams[row].actions, action), (*beams[row].scores, float(logs[row, action]))
                longer = _Beam(float(scores[row, action]), actions, own)
                if longer.score <= done.score:
                    continue
                if action == END:
                    done = longer
                else:
                    rows.append(row)
                    grown.append(longer)
            if not grown:
                break
            beams, cache = grown, cache[:, :, rows]
        return done

    def _step(
        self, last: Sequence[int], cache: Floats, tokens: Sequence[Any], pointed: Floats, copied: Floats
    ) -> tuple[Floats, Floats]:
        """Log-probabilities of what follows the last action of each beam, and the longer cache.

        It has the keys and values (layers, 2, beams, actions, 384) of the actions so far.
        """
        import numpy as np

        weights, grown = self._weights, []
        table = np.concatenate([weights["actions.weight"], copied])
        x = table[list(last)] + weights["places.weight"][cache.shape[3]]
        for number in range(DECODER_LAYERS):
            layer = f"layers.{number}"
            query, key, value = np.split(self._linear(f"{layer}.own", self._norm(f"{layer}.norm1", x)), 3, -1)
            own = np.concatenate([cache[number], np.stack([key, value])[:, :, None]], 2)
            grown.append(own)
            pairs = zip(query, own[0], own[1], strict=True)
            mixed = np.concatenate([_attend(q[None], k, v) for q, k, v in pairs])
            x = x + self._linear(f"{layer}.own_out", mixed)
            query = self._linear(f"{layer}.query", self._norm(f"{layer}.norm2", x))
            x = x + self._linear(f"{layer}.tokens_out", _attend(query, *tokens[number]))
            inner = self._linear(f"{layer}.inner", self._norm(f"{layer}.norm3", x))
            x = x + self._linear(f"{layer}.outer", gelu(inner))
        x = self._norm("norm", x)
        pointers = self._linear("pointer", x) @ pointed.T / np.float32(SIZE**0.5)
        logits = np.concatenate([self._linear("symbols", x), pointers], -1)
        logits -= logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), np.stack(grown)

    def _whole(self, name: str, rows: Any = ...) -> Floats:
        """Weights, or rows of them, as floats."""
        array: Floats = self._weights[name][rows]
        return array * self._scales[name][rows] if name in self._scales else array

    def _linear(self, name: str, x: Floats) -> Floats:
        product: Floats = x @ self._whole(f"{name}.weight") + self._weights[f"{name}.bias"]
        return product

    def _norm(self, name: str, x: Floats, epsilon: float = 1e-5) -> Floats:
        import numpy as np

        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(epsilon))
        normed: Floats = scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return normed


_cached_network = lru_cache(maxsize=1)(PointerNetwork)


def gelu(x: Floats) -> Floats:
    """x·Φ(x) by the tanh approximation (Hendrycks and Gimpel, 2016)."""
    import numpy as np

    inner: Floats = np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x * x * x)
    activated: Floats = x * (1 + np.tanh(inner)) * np.float32(0.5)
    return activated


def _attend(query: Floats, key: Floats, value: Floats, heads: int = DECODER_HEADS) -> Floats:
    import numpy as np

    q, k, v = (x.reshape(len(x), heads, -1).swapaxes(0, 1) for x in (query, key, value))
    scores = q @ k.swapaxes(1, 2) / np.float32(q.shape[-1] ** 0.5)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed: Floats = scores / scores.sum(-1, keepdims=True) @ v
    return mixed.swapaxes(0, 1).reshape(query.shape)
