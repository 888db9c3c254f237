"""Arguments of a user's tools. Nothing is guessed.

    tool_argument(spec, spec.inputs[0], supply)     # ["4711"] for `order_id` and "refund order 4711"

An argument is a file, a quoted text, or a value after the argument's name in the step. A single required
argument for free text may also be the step's own words.
"""

from __future__ import annotations

import re
from typing import Any

from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.tasks.spec import ARG_ALIASES, Arg, TaskSpec
from jarvis_agent.planning.offline import extraction
from jarvis_agent.planning.offline.clauses import without_lead_in
from jarvis_agent.planning.offline.sources import StepInputs

_FREE_TEXT = frozenset({name for name, canon in ARG_ALIASES.items() if canon == "text"}) | {
    "text", "content", "message", "instruction", "request", "search", "q", "topic", "description", "task",
}  # fmt: skip
"""Names of arguments that can hold any words."""
_IDENTIFIER = re.compile(
    r"(?:^|_)(?:id|ids|number|no|code|key|to|email|address|phone|url|path|file|date|time|amount|price|count)$"
)
"""Names of arguments that hold one exact value."""
_PROPER_NAME = re.compile(r"\b(?:in|for|of|at|about|to)\s+((?:[A-Z][\w'’-]*)(?:\s+[A-Z][\w'’-]*){0,3})\W*$")


def tool_argument(spec: TaskSpec, arg: Arg, supply: StepInputs) -> list[Any]:
    """The values of an argument; none for an optional one that the step does not give.

    Raises:
        PlanError: the argument is required, and the step does not give its value.
    """
    if named := _named(arg, supply):
        return named
    if not arg.required:
        return []
    if len(spec.required) > 1:
        names = ", ".join(spec.required)
        raise PlanError(f"{spec.name} takes several arguments ({names}), which a language model must fill in")
    if left := supply.left:
        return [supply.take(left)] if arg.many else supply.take(left[:1])
    name = arg.name.lower()
    is_reference = extraction.REFERS_TO_TEXT.search(supply.text) and not _IDENTIFIER.search(name)
    if is_reference and (values := supply.values_elsewhere("text")):
        return values
    if name in _FREE_TEXT:
        return [supply.restored(without_lead_in(supply.text))]
    proper = _PROPER_NAME.search(supply.text)
    if proper and not _IDENTIFIER.search(name):
        return [proper[1]]
    raise PlanError(f"{spec.name} needs {arg.name}, which a language model must fill in")


def _named(arg: Arg, supply: StepInputs) -> list[Any]:
    """The value that stands after the argument's name: a file, or a word with a digit ("order 4711")."""
    if masked := supply.take_after(arg.name):
        return masked
    word = re.escape(arg.name.split("_")[0])
    found = re.search(
        rf"\b{word}\s*(?:id|number|no\.?|#|:|=)?\s*#?([\w-]*\d[\w-]*)", supply.text, re.IGNORECASE
    )
    return [found[1]] if found and _IDENTIFIER.search(arg.name.lower()) else []
