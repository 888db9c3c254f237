"""The language model's single choice among candidates: what it is asked for, and how its reply is read.

    chosen, why = read_choice('{"id": "facebook/detr-resnet-50", "reason": "it finds zebras"}', candidates)

The id is looked up in the list, whatever the model wrote: an id that is not there is no choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jarvis_agent.llm.json_stream import JsonReader
from jarvis_agent.backends.hub.model_card import brief_text
from jarvis_agent.core.types import Candidate

Choice = tuple[Candidate | None, str]
"""The chosen candidate with the reason for it; or None with what is wrong with the reply."""

_LONGEST_REASON = 400
_LONGEST_NAME = 80


def choice_schema(candidates: Sequence[Candidate]) -> dict[str, Any]:
    """The JSON schema of the reply: one of the ids, and a reason."""
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string", "enum": [candidate.id for candidate in candidates]},
            "reason": {"type": "string"},
        },
        "required": ["id", "reason"],
        "additionalProperties": False,
    }


def read_choice(said: str, candidates: Sequence[Candidate]) -> Choice:
    """What a reply chooses.

    An id counts in any case of its letters and without its organisation, if it means one candidate only.
    Where there is no JSON, a text that names one candidate alone counts.
    """
    name, reason = _as_json(said)
    if name is None:
        meant = [candidate for candidate in candidates if candidate.id.lower() in said.lower()]
        name, reason = (meant[0].id if len(meant) == 1 else said), said
    chosen = _by_name(name.strip(), candidates)
    if chosen is not None:
        return chosen, brief_text(reason, _LONGEST_REASON) or "the language model chose it"
    if not name.strip():
        return None, "the language model named no model"
    return None, f"the language model named {brief_text(name, _LONGEST_NAME)!r}, which is not in the list"


def _as_json(said: str) -> tuple[str | None, str]:
    reader = JsonReader()
    for found in [*reader.feed(said), *reader.close()]:
        if isinstance(found.value, dict) and isinstance(found.value.get("id"), str):
            return found.value["id"], str(found.value.get("reason") or "")
    return None, ""


def _by_name(name: str, candidates: Sequence[Candidate]) -> Candidate | None:
    spellings = [
        (name, [candidate.id for candidate in candidates]),
        (name.lower(), [candidate.id.lower() for candidate in candidates]),
        (_last(name), [_last(candidate.id) for candidate in candidates]),
    ]
    for wanted, known in spellings:
        if known.count(wanted) == 1:
            return candidates[known.index(wanted)]
    return None


def _last(name: str) -> str:
    return name.lower().rpartition("/")[2]
