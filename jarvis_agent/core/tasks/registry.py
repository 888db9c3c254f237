"""The registry of task types: `find_task("ASR")` is `TASKS["automatic-speech-recognition"]`.

Names are the Hub's. The paper's short names (image-cls, VQA, ASR, …) are aliases.
"""

import re
from difflib import get_close_matches
from functools import lru_cache
from typing import get_args

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.tasks.spec import ArgKind, Category, Modality, TaskSpec
from jarvis_agent.core.tasks.table import EXTRA_TASKS, HUB_TASKS, NOT_CALLABLE

TASKS: dict[str, TaskSpec] = {}
"""All task types by name."""

_OWNERS: dict[str, str] = {}
"""Names of task types by the canonical spellings of their names and aliases."""
_NAME = re.compile("[a-z0-9_-]{1,64}")
_INPUTS = tuple(name for kinds in get_args(ArgKind) for name in get_args(kinds))


@lru_cache(maxsize=1024)
def canonical(name: str) -> str:
    """A name in lower case with its words joined by dashes."""
    return re.sub(r"[\s_/]+", "-", name.strip().lower())


def register_task(spec: TaskSpec) -> TaskSpec:
    """Add a task type, or replace the one of the same name. Returns the spec.

    Raises:
        ValueError: the name, category or a kind is invalid, or an alias belongs to another task.
    """
    if not _NAME.fullmatch(spec.name):
        raise ValueError(f"the name of a task has up to 64 letters (a-z), digits, - and _, not {spec.name!r}")
    for what, names, known in (
        ("category", [spec.category], get_args(Category)),
        ("kind of input", [arg.kind for arg in spec.inputs], _INPUTS),
        ("kind of output", spec.outputs, get_args(Modality)),
    ):
        if strange := [name for name in names if name not in known]:
            raise ValueError(f"{spec.name}: {strange[0]!r} is no {what}; there are {', '.join(known)}")
    for alias in spec.aliases:
        owner = _OWNERS.get(canonical(alias))
        if owner not in (None, spec.name):
            raise ValueError(f"the alias {alias!r} of task {spec.name!r} belongs to {owner!r}")
    TASKS[spec.name] = spec
    _OWNERS.update({canonical(name): spec.name for name in (spec.name, *spec.aliases)})
    return spec


def find_task(name: str) -> TaskSpec | None:
    """The task type of a name or alias in any spelling, such as "Object Detection"; None if there is none."""
    return TASKS.get(name) or TASKS.get(_OWNERS.get(canonical(name), ""))


def known_task(name: str) -> TaskSpec:
    """The task type of a name or alias in any spelling.

    Raises:
        ConfigError: there is none (the message suggests similar names), or it cannot be run.
    """
    spec = find_task(name)
    if spec is None:
        if reason := NOT_CALLABLE.get(canonical(name)):
            raise ConfigError(f"the Hub's task type {canonical(name)} cannot be run: {reason}")
        close = ", ".join(get_close_matches(canonical(name), TASKS, n=3, cutoff=0.5))
        hint = f"close to it: {close}" if close else "`jarvis tasks` lists them all"
        raise ConfigError(f"there is no task {name!r}; {hint}")
    return spec


for _spec in (*HUB_TASKS, *EXTRA_TASKS):
    register_task(_spec)
