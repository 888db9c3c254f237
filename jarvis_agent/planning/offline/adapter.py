"""Plans by a small language model of this machine, with an adapter that taught it to write them.

writer = load_writer(Settings())       # the model with the adapter if it is installed, else the network
writer.write(PlanRequest.of("Describe cat.jpg in French"), offered=TASKS)      # a NetworkPlan

The model is the smallest one of `jarvis setup`. It writes plans in text (`plan_text`), and llama.cpp lets it
write nothing else. Nothing is downloaded.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from jarvis_agent.core.errors import ExpertError, PlanError
from jarvis_agent.core.settings import Settings
from jarvis_agent.llm.budget import DEFAULT_WINDOW
from jarvis_agent.llm.chat_model import GGUF, local_files
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline.network import NetworkPlan, PointerNetwork, load_network
from jarvis_agent.planning.offline.plan_text import PlanText
from jarvis_agent.planning.offline.sequences import TokenizedRequest, lacks_file

if TYPE_CHECKING:
    from jarvis_agent.llm.llama_cpp import LlamaCpp

ADAPTER = Path(__file__).parent / "data" / "adapter.gguf"
BASE, BASE_SIZE = (
    "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    491_400_064,
)
"""The file of the Hub that the adapter was trained for, and its bytes."""

MOST = 300
"""Tokens of a plan."""


class PlanWriter(Protocol):
    """What writes the plans of the offline planner."""

    @property
    def known_tasks(self) -> Set[str]:
        """The task types that it plans."""

    def write(self, request: PlanRequest, offered: Collection[str]) -> NetworkPlan:
        """The likeliest plan that uses only the offered task types."""


def load_writer(settings: Settings) -> PlanWriter:
    """The adapter's model if it is on this machine, else the network. Raises as `load_network`."""
    network = load_network(settings)
    base = base_path(settings)
    if base is None:
        return network
    from jarvis_agent.llm.llama_cpp import LlamaCpp

    layers = 0 if settings.device == "cpu" else -1
    window = settings.context_window or DEFAULT_WINDOW  # as of the language model, which is in memory once
    return AdaptedModel(network, LlamaCpp.of(base, window, layers, ADAPTER))


def base_path(settings: Settings) -> Path | None:
    """The file of the adapter's model if it is the user's language model or in the Hub's cache.

    None if it is not, or cannot be used: without llama.cpp or the adapter, or if the user wants no model.
    """
    paths = local_files(settings, GGUF + BASE) if ADAPTER.is_file() else []
    return next(filter(is_base, paths), None)


def is_adapted(model: Any) -> bool:
    """Whether a chat model is the adapter's, which plans better with it than by prompts."""
    path = getattr(model, "path", None)
    return isinstance(path, Path) and ADAPTER.is_file() and is_base(path)


def is_base(path: Path) -> bool:
    """Whether a file is the adapter's model."""
    return path.name == BASE.partition(":")[2] and path.stat().st_size == BASE_SIZE


class AdaptedModel:
    """Writes plans by the model and by the network, and takes the likelier one. Thread-safe.

    A plan that both write is as likely as that not both are wrong; another one, as that the other is wrong.
    """

    def __init__(self, network: PointerNetwork, model: LlamaCpp) -> None:
        """Load nothing before the first plan."""
        self._network, self._model = network, model
        self.known_tasks = network.known_tasks

    def write(self, request: PlanRequest, offered: Collection[str]) -> NetworkPlan:
        """The likeliest plan that uses only the offered task types; the network's if the model fails."""
        other = self._network.write(request, offered)
        if any(map(lacks_file, other.tasks)):  # the model did not learn to plan without files
            return other
        try:
            own = self._write(request, offered)
        except (PlanError, ExpertError, UnicodeDecodeError):
            return other
        if own.tasks == other.tasks:
            return replace(own, probability=1 - (1 - own.probability) * (1 - other.probability))
        lesser, best = sorted((other, own), key=lambda plan: plan.probability)
        return replace(best, probability=best.probability * (1 - lesser.probability))

    def _write(self, request: PlanRequest, offered: Collection[str]) -> NetworkPlan:
        tokens = TokenizedRequest(self._network.vocabulary, request)
        text = PlanText(tokens)
        said = self._model.complete(text.prompt, text.grammar(offered), MOST)
        tasks, left_out = tokens.plan_of(text.read(b"".join(part for part, _ in said).decode(), offered))
        likely, line = [1.0] * len(tasks), 0
        for part, score in said:
            if line < len(tasks):
                likely[line] *= math.exp(score)
            line += part.count(b"\n")
        return NetworkPlan(tasks, left_out, likely, math.exp(sum(score for _, score in said)), tokens.unread)
