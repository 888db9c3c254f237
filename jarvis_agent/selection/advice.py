"""Advice: the error for a task without a model, and what would make more models available.

It and docs/tasks.md name well-known models of recommended.csv, which the selector does not prefer. Some are
larger than `Settings.max_download`, and some have no safetensors.
"""

import csv
from collections.abc import Mapping, Set
from functools import cache
from importlib.resources import files
from importlib.util import find_spec

from jarvis_agent.core.errors import NoCandidateError, install_command
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.selection.sources.hub import HubSource

NO_CANDIDATE = "no model can do {task} here ({reasons})"
WITHOUT_REASONS = "no model can do {task} here"
LISTS_ALL = "`jarvis models {task}` lists all"
"""Advice outside that command."""

_MAX_REASONS = 4
_INSTALL_LOCAL = install_command("local")


def no_candidate_error(
    spec: TaskSpec, settings: Settings, rejected: dict[str, str], languages: Set[str] = frozenset()
) -> NoCandidateError:
    """Return the error for a task, given why models and sources were rejected, and the languages it needs."""
    why = "{source}: {reason}"
    reasons = [Note(why, source=source, reason=reason) for source, reason in rejected.items()]
    if (more := len(reasons) - _MAX_REASONS) > 0:
        reasons[_MAX_REASONS:] = [Note("and {number} more", number=more)]
    helps = [*advice(settings, rejected), Note(LISTS_ALL, task=spec.name)]
    if model := recommended(spec, languages):
        helps.append(Note("a model to start with is {model}", model=model))
    return NoCandidateError(
        NO_CANDIDATE,
        rejected,
        task=spec.name,
        reasons=reasons or [Note("no source lists any")],
        advice=helps,
    )


def advice(settings: Settings, rejected: Mapping[str, str]) -> list[str]:
    """Return what would make more models available, given why models and sources were rejected."""
    commands = (text for reason in rejected.values() for text in Note.of(reason).advice)
    helps = [text for text in dict.fromkeys(commands) if text.startswith("pip install")]
    if _INSTALL_LOCAL not in helps and (find_spec("torch") is None or find_spec("transformers") is None):
        helps.append(Note("{command} runs models of the Hub on this machine", command=_INSTALL_LOCAL))
    if source_key(HubSource.name) in rejected:  # whose reason says what helps
        return helps
    if settings.offline:
        helps.append(Note("without JARVIS_OFFLINE and HF_HUB_OFFLINE models can be found on the Hub"))
    elif settings.token is None:
        helps.append(Note("with HF_TOKEN set, hosted models can be used"))
        helps.append(Note("free accounts have no credits for them"))
        helps.append(Note("Spaces (JARVIS_SPACES=search) need none"))
    return helps or [Note("RegisteredSource adds your own models")]


def source_key(name: str) -> Note:
    """The key of a source's error among the reasons by model and source."""
    return Note("source {name}", name=name)


@cache
def recommended_models() -> list[dict[str, str]]:
    """Return the rows of recommended.csv: small, free models of the tasks that have some."""
    text = files(__package__).joinpath("recommended.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def recommended(spec: TaskSpec, languages: Set[str] = frozenset()) -> str | None:
    """Return the id of a model for a task, or for the task whose models it shares.

    It reads these languages, or writes them if it is a translator; for most tasks, the row has none.
    """
    for row in recommended_models():
        known = row["languages"].split()
        if row["task"] == (spec.models_of or spec.name) and (not known or languages <= set(known)):
            return row["model"]
    return None
