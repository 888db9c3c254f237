"""Tools and the classes of clauses that speak of them.

family(spec)     # "translation"; for the tools that answer questions "question"
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from jarvis_agent.tools.spec import TaskSpec

QUESTION = "question"
"""One class for all tools that answer questions: which one is meant hangs on what there is to ask about."""


def family(spec: TaskSpec) -> str:
    """The class of a tool, by its name."""
    slug = re.sub(r"[\s_]+", "-", spec.name.strip().lower())
    return QUESTION if slug.endswith("question-answering") else slug


def is_workflow_kit(specs: Mapping[str, TaskSpec], known: frozenset[str]) -> bool:
    """Whether all tools are of known classes, and each says what kinds it takes and makes.

    Such a kit is not the Hub's table of tasks with its conventions: there a tool is described by its kinds alone.
    """
    return bool(specs) and all(
        spec.category == "tool" and family(spec) in known and all(arg.kind != "any" for arg in spec.inputs)
        for spec in specs.values()
    )
