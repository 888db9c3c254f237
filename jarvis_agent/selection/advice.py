"""Advice: the error for a task without a model, and what would make more models available."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec

from jarvis_agent.core.errors import NoCandidateError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.selection.sources.recommended import recommended

HELP = " What helps: "
"""Separates the reason in the message of a NoCandidateError from the advice."""

LISTS_ALL = "; `jarvis models {task}` lists all"
"""Advice outside that command."""

_MAX_REASONS = 4
_INSTALL_COMMAND = re.compile(r"pip install [^;()\n]+")
_INSTALL_LOCAL = 'pip install "langchain-hugginggpt[local]"'


def no_candidate_error(spec: TaskSpec, settings: Settings, rejected: dict[str, str]) -> NoCandidateError:
    """Return the error for a task without a model. `rejected` are the reasons by model and source."""
    reasons = [f"{source}: {reason}" for source, reason in rejected.items()] or ["no source lists any"]
    more = [f"and {len(reasons) - _MAX_REASONS} more"] if len(reasons) > _MAX_REASONS else []
    known = recommended(spec)
    suggestion = f"; a model to start with is {known.id}" if known else ""
    return NoCandidateError(
        f"no model can do {spec.name} here ({'; '.join(reasons[:_MAX_REASONS] + more)})."
        f"{HELP}{advice(settings, rejected)}{LISTS_ALL.format(task=spec.name)}{suggestion}",
        rejected,
    )


def advice(settings: Settings, rejected: Mapping[str, str]) -> str:
    """Return what would make more models available, given why models and sources were rejected."""
    commands = (command for reason in rejected.values() for command in _INSTALL_COMMAND.findall(reason))
    found = list(dict.fromkeys(command.strip() for command in commands))
    if _INSTALL_LOCAL not in found and (find_spec("torch") is None or find_spec("transformers") is None):
        found.append(f"{_INSTALL_LOCAL} runs models of the Hub on this machine")
    if settings.offline:
        found.append("without JARVIS_OFFLINE and HF_HUB_OFFLINE models can be found on the Hub")
    elif f"source {HubSource.name}" in rejected:
        found.append("with a network (see HTTPS_PROXY, HF_ENDPOINT) models can be found on the Hub")
    elif settings.token is None:
        found.append("with HF_TOKEN set, hosted models can be used")
    return "; ".join(found) or "RegisteredSource adds your own models"
