"""What the words of a request say about how a task is meant, beyond the task itself.

    hints(Task(task="image-to-text", …, args={"image": "a.png"}), RunContext("Read a.png aloud"))    {"ocr": True}
    language_gap(["en", "de"], Task(…, args={"text": "Hello", "tgt_lang": "fr"}), spec)    "… and not fr"

The rules are patterns over plain English and Chinese; where they find nothing, nothing is assumed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePath
from typing import Any

from jarvis_agent.core.references import refs_in
from jarvis_agent.core.request import RunContext, mentions
from jarvis_agent.core.languages import find_language
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Task

_THING = (
    r"(?:text|words?|lines?|letters?|page|sign|label|poster|note|receipt|menu|book cover|handwriting|document"
    r"|scan|screenshot|(?:image|picture|photo)(?!\W{0,3}s?\s*(?:caption|description)))"
)
_FILE = r"[\w./\\~-]+\.[a-z][a-z0-9]{1,4}\b"
_FOR_TEXT = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\bocr\b|text recognition|光学字符",
        rf"\bread(?:ing)?\b(?:\s+(?:me|us|out|aloud|loud|to|the|this|that|my|all|any|what|is|in|on|of|from))*"
        rf"\s+(?:\w+\s+)?(?:{_THING}\b|{_FILE})",
        r"\bwhat(?:ever)?\b[^?!,;]{0,60}\b(?:says?|said|written|printed)\b",
        r"\b(?:what|which)\s+(?:text|words?|writing)\b",
        r"\b(?:text|words|writing|lettering|handwriting)\s+(?:in|on|from|inside|within|of)\b",
        r"\b(?:extract|recogni[sz]e|copy|get|detect|find|scan|transcribe)\b[^.?!,;]{0,30}"
        r"\b(?:text|words|writing)\b",
        rf"\btranscribe\s+(?:the\s+|this\s+|that\s+)?(?:\w+\s+)?(?:{_THING}\b|\S+\.(?:png|jpe?g|webp|tiff?|bmp|gif)\b)",
        r"(?<!用)(?<!用的)文字|写着|写了什么|写的是?什么|识别[^。，]{0,8}字",
    )
)
_PERHAPS = re.compile(
    r"\bread(?:ing)?\s+(?:it|them|this|that|its|their)\b|(?<!朗)(?<!阅)读(?!书|者|物)|念出|阅读图",
    re.IGNORECASE,
)
_DESCRIBES = re.compile(r"\bdescri|\bcaption|\bsummar|描述|说明|介绍", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|[。！？；\n]+")
_CLAUSE = re.compile(r",?\s+(?:and|then|but|also|while)\s+|[，、]|然后|并且|接着", re.IGNORECASE)

_HAN, _KANA, _HANGUL = (
    re.compile(r"[\u4e00-\u9fff]"),
    re.compile(r"[\u3040-\u30ff]"),
    re.compile(r"[\uac00-\ud7af]"),
)
_OF_LETTERS = {"zh", "ja", "ko"}


def hints(task: Task, brief: RunContext) -> dict[str, Any]:
    """What a backend should know: {"ocr": True} or {"ocr": False} for image-to-text, {} for other tasks.

    Text is asked for where the part of the request that names the image asks for it ("read", "what does it
    say", 写着, …). Without a request nothing is known, and the result is {}.
    """
    if task.task != "image-to-text" or not brief.request.strip():
        return {}
    return {"ocr": _asks_for_text(_about(task.args.get("image"), brief))}


def _asks_for_text(words: str) -> bool:
    if any(pattern.search(words) for pattern in _FOR_TEXT):
        return True
    return bool(_PERHAPS.search(words)) and not _DESCRIBES.search(words)


def _about(image: Any, brief: RunContext) -> str:
    """The part of a request that is about one image.

    For one that the request names, the clause that names it; for one that another task makes, the clauses
    that name no file. The whole request where that leaves nothing, or where the request names that file only.
    """
    request, known = brief.request, {file.name for file in brief.files}
    files = mentions(request, known.__contains__)
    named = _name_in(image, files)
    if named and len(files) == 1:
        return request
    parts = [clause for sentence in _SENTENCE.split(request) for clause in _clauses(sentence, files)]
    if named:
        return " ".join(part for part in parts if named in part) or request
    return " ".join(part for part in parts if not any(file in part for file in files)) or request


def _clauses(sentence: str, files: list[str]) -> list[str]:
    """A sentence, cut up so that what is said of one file stands apart; whole if a part is a bare name."""
    clauses = [clause for clause in _CLAUSE.split(sentence) if clause.strip()]
    for clause in clauses:
        rest = clause
        for file in files:
            rest = rest.replace(file, " ")
        if rest != clause and not re.search(r"\w{2,}", rest):
            return [sentence]
    return clauses


def _name_in(image: Any, files: list[str]) -> str | None:
    """The spelling by which the request names an image, or None."""
    if not isinstance(image, str) or refs_in(image):
        return None
    return next(
        (file for file in files if file == image or PurePath(file).name == PurePath(image).name), None
    )


def script(text: str) -> str | None:
    """The language that a text's letters tell: "zh", "ja" or "ko"; "" for other letters, None without any."""
    if _KANA.search(text):
        return "ja"
    if _HANGUL.search(text):
        return "ko"
    if _HAN.search(text):
        return "zh"
    return "" if re.search(r"[^\W\d_]", text) else None


def language_gap(known: Collection[str], task: Task, spec: TaskSpec) -> str | None:
    """Why a model that knows these languages can not do the task; None if it can, or if nothing is known.

    What it must know is told by the text in the task's arguments, and by `src_lang` and `tgt_lang`.
    """
    if not known:
        return None
    given = {arg.name: task.args.get(arg.name) for arg in spec.inputs if arg.kind == "text"}
    asked = [find_language(str(given.pop(name, None) or "")) for name in ("src_lang", "tgt_lang")]
    texts = [text for text in given.values() if isinstance(text, str) and not refs_in(text)]
    scripts = {found for text in texts if (found := script(text)) is not None}
    missing = ({language.code for language in asked if language} | scripts) - {"", *known}
    if missing:
        return f"its card names the languages {', '.join(known)}, and not {', '.join(sorted(missing))}"
    if scripts == {""} and set(known) <= _OF_LETTERS:
        return f"it knows only {', '.join(known)}"
    return None
