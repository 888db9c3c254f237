"""Tools and the classes of clauses that speak of them.

family(spec)     # "translation"; for the tools that answer questions "question"
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.planning.offline.wordings import DATA

TEMPLATES = DATA / "clauses.json"

QUESTION = "question"
"""One class for all tools that answer questions: which one is meant hangs on what there is to ask about."""


def family(spec: TaskSpec) -> str:
    """The class of a tool, by its name."""
    slug = re.sub(r"[\s_]+", "-", spec.name.strip().lower())
    return QUESTION if slug.endswith("question-answering") else slug


def is_workflow_kit(specs: Mapping[str, TaskSpec], known: frozenset[str]) -> bool:
    """Whether most tools are of known classes, and say which kinds they take and make.

    Such a kit is not the Hub's table of tasks with its conventions: a tool is described by its kinds alone.
    """
    fitting = [
        spec
        for spec in specs.values()
        if family(spec) in known and all(arg.kind != "any" for arg in spec.inputs)
    ]
    return all(spec.category == "tool" for spec in specs.values()) and 2 * len(fitting) > len(specs)


@lru_cache(maxsize=1)
def language() -> Mapping[str, Any]:
    """What data/clauses.json holds."""
    held: Mapping[str, Any] = json.loads(TEMPLATES.read_text(encoding="utf-8"))
    return held


def names() -> list[str]:
    """Patterns of the tools' names, as a clause may have them ("object detection")."""
    return [name.replace("-", "[- ]") for name in language()["tasks"] if "-" in name]


def verbs() -> list[str]:
    """The verbs with which a clause begins that asks for something."""
    return str(language()["verbs"]).split()


def called() -> Mapping[str, str]:
    """By class: a pattern of the words by which a clause names what such a tool made."""
    found: Mapping[str, str] = language()["called"]
    return found
