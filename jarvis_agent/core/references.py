"""References: `<resource>-3` in an argument stands for what task 3 makes. Only this module spells them.

refs_in({"text": "Compare <resource>-0 with <resource>-2"})            # [0, 2]
substitute("Read: <resource>-0", {0: "hello"}.__getitem__)             # "Read: hello"
normalise_references("Read: <GENERATED>_0")                            # "Read: <resource>-0"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from jarvis_agent.core.text import map_texts

_REF = re.compile(r"<resource>-([0-9]{1,9})")

# Every repetition is bounded, so that reading stays linear whatever the text.
_NAMES = "resource|generated|node|task|output|result|image|text|audio|video"
_GAP = r"\s{0,3}"
_NUMBER = r"(?:task|node|id|[-_]){0,6}([0-9]{1,9})(?![0-9])"
_FIELD = (
    r"(?:\.(?:[a-z]{1,12}_)?(?:text|output|result|image|audio|video|answer|caption|label)s?"
    r"(?![\w-]|\.\w)"
    r"|\[[\"']?\w{1,30}[\"']?\])*"
)
_LOOSE = re.compile(
    # <resource>-0  <GENERATED>_0  <resource>-<task_0>  <resource>-0.text  <resource>-0["text"]
    rf"<{_GAP}(?:{_NAMES})s?{_GAP}>(?:{_GAP}[-_:]{_GAP})?<?{_NUMBER}>?{_FIELD}"
    # <resource-0>  <node 0>
    rf"|<{_GAP}(?:{_NAMES})s?{_GAP}[-_:# ]{_GAP}{_NUMBER}{_GAP}>"
    # <task0>
    rf"|<(?:resource|generated|node|task){_NUMBER}>"
    # resource-0, but not resource-0.jpg
    rf"|(?<![\w./\\<-])(?:resource|generated)[-_]{_NUMBER}(?![\w/\\-]|\.\w)",
    re.IGNORECASE,
)
# What prompts call a reference, copied as it stands: <resource>  <resource-dep_id>  <resource>-task_id
_NAMELESS = re.compile(
    r"<(?:resource|generated)(?:[-_](?:dep|task)_?id)?>(?:-<?(?:dep|task)_?id>?)?", re.IGNORECASE
)
_IN_WORDS = re.compile(
    r"(?:the )?(?:output|result|text|image|audio|video|answer|caption)s? (?:of|from) "
    r"(?:task|node)[ _#-]{0,2}([0-9]{1,9})",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"[,;&+]|\band\b", re.IGNORECASE)


def ref(task_id: int) -> str:
    """The reference to what task `task_id` makes."""
    return f"<resource>-{task_id}"


def refs_in(value: Any) -> list[int]:
    """Ids of the tasks that a nested value refers to, in order, each once."""
    if isinstance(value, str):
        return list(dict.fromkeys(int(n) for n in _REF.findall(value)))
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return list(dict.fromkeys(n for part in parts for n in refs_in(part)))


def substitute(value: Any, lookup: Callable[[int], Any]) -> Any:
    """`value` with each reference replaced by `lookup(id)`.

    A string that is only a reference becomes that value; inside a longer text it is converted to a string.
    """

    def change(text: str) -> Any:
        whole = whole_ref(text)
        if whole is not None:
            return lookup(whole)
        return _REF.sub(lambda match: str(lookup(int(match[1]))), text)

    return map_texts(value, change)


def normalise_references(value: Any) -> Any:
    """`value` with the spellings of language models ("<GENERATED>-0", "<resource-0>") as `<resource>-N`."""

    def change(text: str) -> str:
        described = _IN_WORDS.fullmatch(text.strip(" .{}<>"))
        return ref(int(described[1])) if described else _LOOSE.sub(_normalised, text)

    return map_texts(value, change)


def is_nameless(text: str) -> bool:
    """Whether a text is a reference without a task id."""
    return _NAMELESS.fullmatch(text.strip()) is not None


def whole_ref(text: str) -> int | None:
    """The id if the text is only a reference."""
    match = _REF.fullmatch(text.strip())
    return int(match[1]) if match else None


def listed_refs(text: str) -> list[int]:
    """The ids if the text is only a list of references ("<resource>-0, <resource>-1"); otherwise []."""
    ids = [whole_ref(part) for part in _BETWEEN.split(text) if part.strip()]
    return [i for i in ids if i is not None] if None not in ids else []


def _normalised(match: re.Match[str]) -> str:
    digits = next(group for group in match.groups() if group)
    # "<resource-1>2" must not become a reference to task 12.
    gap = " " if match.string[match.end() : match.end() + 1].isdecimal() else ""
    return ref(int(digits)) + gap
