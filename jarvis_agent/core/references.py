"""References: `<resource>-3` in an argument stands for what task 3 makes. Only this module spells them.

`<resource>-3[2]` is the second of its results. The executor writes this, where a task runs once for each.

refs_in({"text": "Compare <resource>-0 with <resource>-2"})            # [0, 2]
substitute("Read: <resource>-0", {0: "hello"}.__getitem__)             # "Read: hello"
normalise_references("Read: <GENERATED>_0")                            # "Read: <resource>-0"
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import zip_longest
from typing import Any

from jarvis_agent.core.text import map_texts

_REF = re.compile(r"<resource>-([0-9]{1,10})(?:\[([0-9]{1,3})\])?")

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
_NAMELESS = re.compile(r"<(?:resource|generated)\b[a-z_-]*>(?:-<?[a-z_]*id>?)?", re.IGNORECASE)
_BETWEEN = re.compile(r"[,;&+]|\band\b", re.IGNORECASE)


def ref(task_id: int, place: int = 0) -> str:
    """The reference to what task `task_id` makes; with a place, counted from 1, to one of its results."""
    return f"<resource>-{task_id}[{place}]" if place else f"<resource>-{task_id}"


def refs_in(value: Any) -> list[int]:
    """Ids of the tasks that a nested value refers to, in order, each once."""
    if isinstance(value, str):
        return list(dict.fromkeys(int(match[1]) for match in _REF.finditer(value)))
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return list(dict.fromkeys(n for part in parts for n in refs_in(part)))


def split_refs(text: str) -> list[str | tuple[int, int]]:
    """The parts of a text: the words between its references, and each as its id and place (0: none).

    A text that is only a reference, with space around it, is one part.
    """
    if _REF.fullmatch(text.strip()):
        text = text.strip()
    words = _REF.split(text)[:: _REF.groups + 1]
    refs = ((int(match[1]), int(match[2] or 0)) for match in _REF.finditer(text))
    return [part for pair in zip_longest(words, refs, fillvalue="") for part in pair if part]


def substitute(value: Any, lookup: Callable[[int], Any]) -> Any:
    """As `substitute_results`, by `lookup(id)`, whichever of the task's results a reference means."""
    return substitute_results(value, lambda task_id, place: lookup(task_id))


def substitute_results(value: Any, lookup: Callable[[int, int], Any]) -> Any:
    """`value` with each reference replaced by `lookup(id, place)`.

    A string that is only a reference becomes that value; inside a longer text it is converted to a string.
    """

    def change(text: str) -> Any:
        parts = [lookup(*part) if isinstance(part, tuple) else part for part in split_refs(text)]
        return parts[0] if len(parts) == 1 else "".join(map(str, parts))

    return map_texts(value, change)


def normalise_references(value: Any) -> Any:
    """`value` with the spellings of language models ("<GENERATED>-0", "<resource-0>") as `<resource>-N`."""
    return map_texts(value, partial(_LOOSE.sub, _normalised))


def is_nameless(text: str) -> bool:
    """Whether a text is a reference without a task id."""
    return _NAMELESS.fullmatch(text.strip()) is not None


def listed_refs(text: str) -> list[int]:
    """The ids if the text is only a list of references ("<resource>-0, <resource>-1"); otherwise []."""
    parts = [_REF.fullmatch(part.strip()) for part in _BETWEEN.split(text) if part.strip()]
    return [int(part[1]) for part in parts if part] if all(parts) else []


def _normalised(match: re.Match[str]) -> str:
    digits = next(group for group in match.groups() if group)
    # "<resource-1>2" must not become a reference to task 12.
    gap = " " if match.string[match.end() : match.end() + 1].isdecimal() else ""
    return ref(int(digits)) + gap
