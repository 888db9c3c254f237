"""Hints: what the words of a request say about a task beyond its arguments.

    task_hints(image_to_text_task, RunContext("Read a.png"))     # {"ocr": True}
    missing_language(["en"], text_to_speech_task, spec)          # "its card names the languages en, …"

The rules are patterns, mainly for English and Chinese. Without a match nothing is assumed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.languages import detect_script, find_language
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Task
from jarvis_agent.planning.reading import asks_for_text, words_about

_OWN_SCRIPTS = {"zh", "ja", "ko"}


def task_hints(task: Task, context: RunContext) -> dict[str, Any]:
    """Return the hints for a backend: {"ocr": bool} for image-to-text, {} for other tasks.

    The task's argument `text` decides if it has one: "read" asks for the image's text, a question does not.
    Else the request decides. Without a request the result is {}.
    """
    if task.task != "image-to-text":
        return {}
    if asked := str(task.args.get("text") or "").strip():
        return {"ocr": asked.lower() == "read" or (asked[-1] not in "?？" and asks_for_text(asked))}
    names = {file.name for file in context.files}
    words = words_about(task.args.get("image"), context.request, names)
    return {"ocr": asks_for_text(words)} if words.strip() else {}


def missing_language(known: Collection[str], task: Task, spec: TaskSpec) -> str | None:
    """Return why a model with these languages cannot do the task; None if it can, or if it names none.

    The required languages follow from the text arguments, `src_lang` and `tgt_lang`.
    """
    if not known:
        return None
    given = {arg.name: task.args.get(arg.name) for arg in spec.inputs if arg.kind == "text"}
    asked = [find_language(str(given.pop(name, None) or "")) for name in ("src_lang", "tgt_lang")]
    texts = [text for text in given.values() if isinstance(text, str) and not refs_in(text)]
    scripts = {found for text in texts if (found := detect_script(text)) is not None}
    missing = ({language.code for language in asked if language} | scripts) - {"", *known}
    if missing:
        return f"its card names the languages {', '.join(known)}, and not {', '.join(sorted(missing))}"
    if scripts == {""} and set(known) <= _OWN_SCRIPTS:
        return f"it knows only {', '.join(known)}"
    return None
