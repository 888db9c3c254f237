"""Where a file comes from: what stands in the metadata of everything that an expert made.

    provenance(call)     # {"task": "text-to-image", "model": "org/sd", "prompt": "a cat", "seed": "0"}

In PNG each entry is a text chunk, in GLB each is one of the asset's extras. WAV and MP4 know titles, artists
and comments alone: there the comment is the whole as JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from jarvis_agent.core.redaction import redact

if TYPE_CHECKING:
    from jarvis_agent.backends.base import Call

LONGEST_PROMPT = 2_000
"""Characters of a prompt that are kept."""

LONGEST_COMMENT = 2_000
"""Bytes of a comment: libsndfile does not show one of more than 2,045 in a WAV file."""


def provenance(call: Call) -> dict[str, str]:
    """Task, model, prompt (if there was one, without keys) and seed of a call; every format can hold it."""
    prompt = call.inputs.get("text")
    # Files are handed on; what their makers told the agent in confidence is not.
    known = {
        "task": call.spec.name,
        "model": call.candidate.id,
        "prompt": redact(prompt)[:LONGEST_PROMPT] if isinstance(prompt, str) else "",
        "seed": str(call.settings.seed),
    }
    return {name: _clean(value) for name, value in known.items() if value}


def tags(call: Call) -> dict[str, str]:
    """The same for sounds and videos: {"title", "artist", "comment"}."""
    known = provenance(call)
    return {"title": known["task"], "artist": known["model"], "comment": _comment(known)}


def _comment(known: dict[str, str]) -> str:
    """The provenance as JSON of at most LONGEST_COMMENT bytes; what is too much is cut off the prompt."""
    while True:
        comment = json.dumps(known, ensure_ascii=False)
        surplus = len(comment.encode()) - LONGEST_COMMENT
        prompt = known.get("prompt", "")
        if surplus <= 0 or not prompt:
            return comment
        # A character takes up to six bytes in JSON.
        known = {**known, "prompt": prompt[: -(surplus // 6 + 1)]}


def _clean(value: str) -> str:
    """Without what UTF-8 has no form for, and without NUL, which ends a text in most formats."""
    return value.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
