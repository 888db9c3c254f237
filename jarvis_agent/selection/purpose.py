"""What the words of a request say about a task beyond its type and arguments.

    purpose_of(task, spec, RunContext("Is there pneumonia in the chest X-ray scan.png?"))
    # Purpose(text="Is there pneumonia in the chest X-ray?", words=("pneumonia", "chest", "ray"))
    purpose_of(task, spec, RunContext("What is in cat.jpg?"))      # Purpose(): any model will do
    task_hints(Task(task="image-to-text", id=0, args={"text": "read"}), context)       # {"ocr": True}
    missing_language(["en"], text_to_speech_task, spec)            # "its card names the languages en, …"

The words of a purpose neither are general nor belong to the task type. They may be sent to the Hub, so what
the user gives as data is not among them: text arguments, labels, numbers, what is quoted or follows a colon,
names of files.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePath
from typing import Any, NamedTuple

from jarvis_agent.backends.languages import LANGUAGES, find_language
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.file_mentions import mentions, split_names
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import detect_script, excerpt
from jarvis_agent.core.types import Task
from jarvis_agent.planning.examples import CJK
from jarvis_agent.planning.retrieval import WORD

_FUNCTION_WORDS = """
    a about all also am an and any are as at be been but by can could did do does each every for from get
    give had has have he her him his how i if in into is it its just let like may me more most my need
    needed needs new not of on one only or other our out over own please should so some such than that the
    their them then there these they this those to too two under up us very want wants was we were what
    when where which who whom whose will with would you your api app application base based build company
    create design develop dataset find fine finetuned generate help huggingface identify large make model
    models pretrained project provide small system trained tuned transformers use used using
"""
_GENERAL_WORDS = """
    after ai analyze apply before between check come contain customer data describe determine different
    down example figure file good great here implement improve include information input know list look
    many name now number off output people picture photo possible plan prepare process product program read
    result run save say see service set show solution specific take tell thank thing today tool try turn
    understand user various version via way word work write animal audio background body car cat child
    colour color dog face human image kind man object person place recording room scene sentence song
    sound speech street text type video voice woman
    article email english letter message note paragraph report story
"""

FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words that are not compared with cards: of any sentence, of any request, or of any card."""

GENERAL_WORDS = FUNCTION_WORDS | frozenset(_GENERAL_WORDS.split())
"""Words that make no purpose: of many requests, or of what every general model knows."""

_STEM = 6
_LANGUAGE_ARGS = {"src_lang", "tgt_lang"}
_DATA = re.compile(
    r"""["“„][^"”“]*["”“]|«[^»]*»|「[^」]*」|『[^』]*』|(?<!\w)'[^']*'(?!\w)|:\s.*|：.*""", re.DOTALL
)
_NOT_LATIN = re.compile(r"[^\x00-\u024f]+")
_NAMES = {language.name.lower(): language.code for language in LANGUAGES if len(language.name) > 3}
_LANGUAGE_NAMES = {language.code: language.name for language in LANGUAGES}
_NAMES |= {"mandarin": "zh", "cantonese": "zh"}


class Purpose(NamedTuple):
    """What a request says about one task.

    Attributes:
        text: its clause; "" if it has no words of its own.
        words: the words of its own, in lower case, which may be sent to the Hub.
        languages: ISO 639-1 codes of the languages that are named. Cards are in English, so a purpose needs
            another one, or words.
        private: words that stay here: labels, quoted, after a colon, of a prompt or of a question on a file.
    """

    text: str = ""
    words: tuple[str, ...] = ()
    languages: frozenset[str] = frozenset()
    private: tuple[str, ...] = ()


NO_PURPOSE = Purpose()


def purpose_of(task: Task, spec: TaskSpec, context: RunContext) -> Purpose:
    """Return the purpose of a task: what its planner wrote, its clause of the request, labels and languages.

    Other text arguments are data, but for a prompt for a picture and a question on a file, which are private.
    Words in other scripts than the Latin one are left out, but for names of languages: cards are in English.
    """
    media = next((task.args.get(arg.name) for arg in spec.inputs if arg.kind not in ("text", "data")), None)
    names = {file.name for file in context.files}

    def without_files(text: str) -> str:
        return " ".join(split_names(text, [*names, *mentions(text)])[::2])

    texts = {arg.name: _text(task.args.get(arg.name)) for arg in spec.inputs if arg.kind in ("text", "data")}
    options = " ".join(texts.pop(name) for name in sorted(_LANGUAGE_ARGS & texts.keys()))
    values = [without_files(value) for value in texts.values() if value]
    clause = without_files(words_about(media, context.request, names))
    asked = f"{task.purpose} {_without(values, clause)} {options}"
    languages = languages_in(asked)
    named = (_LANGUAGE_NAMES[code] for code in sorted(languages - {"en"}) if CJK.search(asked))
    asked = f"{' '.join(named)} {asked}"
    is_instruction = media is not None or spec.outputs[:1] in (("image",), ("video",), ("3d",))
    told = " ".join(values) if is_instruction else texts.get("labels", "")
    text = " ".join(_NOT_LATIN.sub(" ", f"{asked} {told}").split())
    words = purpose_words(_NOT_LATIN.sub(" ", _DATA.sub(" ", asked)), spec)
    words = tuple(word for word in words if not word.isdecimal())
    private = tuple(word for word in purpose_words(text, spec) if word not in words)
    return Purpose(text if words or languages - {"en"} or private else "", words, languages, private)


def _without(values: Collection[str], request: str) -> str:
    """Return a request without these texts, or without their words where the planner has changed them."""
    for value in sorted(values, key=len, reverse=True):
        if " " in value and value in request:
            request = request.replace(value, " ")
        elif data := set(map(re.escape, WORD.findall(value))):
            request = re.sub(rf"\b(?:{'|'.join(data)})\b", " ", request, flags=re.IGNORECASE)
    return request


def purpose_words(text: str, spec: TaskSpec) -> tuple[str, ...]:
    """Return the words of a text that are neither general nor part of the task type's description."""
    own = " ".join((spec.name, *spec.aliases, spec.description, *(arg.kind for arg in spec.inputs)))
    known = {stem(word) for word in WORD.findall(own.lower())} | _GENERAL_STEMS
    words = dict.fromkeys(WORD.findall(text.lower()))
    return tuple(word for word in words if len(word) > 1 and stem(word) not in known)


def languages_in(text: str) -> frozenset[str]:
    """Return the ISO 639-1 codes of the languages that a text names in English or Chinese."""
    found = {_NAMES[word] for word in WORD.findall(text.lower()) if word in _NAMES}
    if CJK.search(text):
        found |= {one.code for one in LANGUAGES if any(name in text for name in one.spellings[1:])}
    return frozenset(found)


def stem(word: str) -> str:
    """The first letters of a word, so that its forms are equal ("detect", "detection")."""
    return word.removesuffix("s")[:_STEM]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) and not refs_in(value) else ""


_GENERAL_STEMS = frozenset(map(stem, GENERAL_WORDS))


_ASKS_FOR_TEXT = re.compile(
    r"\b(?:ocr|read(?:ing)?|(?:text|words|writing)\s+(?:in|on|from|of)|what(?:ever)?\b[^?!,;]{0,60}\b(?:says?|written))\b"
    r"|\b(?:extract|recogni[sz]e|transcribe|what|which)\b[^.?!,;]{0,30}\b(?:text|words|page)\b"
    r"|(?<!用)文字|写着|写了什么|(?<!朗)(?<!阅)读(?!书)"
    r"|\b(?:lies|lis|lisez|lee|léeme|leia|leggi)\b|прочита|読ん|読み|읽어",
    re.IGNORECASE,
)
_ASKS_FOR_DESCRIPTION = re.compile(
    r"\b(?:descri|caption|reading an?\b|beschreib|décri)|描述|説明|설명", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|[。！？；\n]+")
_CLAUSE = re.compile(r",?\s+(?:and|then|but|also|while)\s+|[，、]|然后|并且|接着", re.IGNORECASE)


def words_about(image: Any, request: str, known: Collection[str]) -> str:
    """Return the part of a request about one image; `known` are names of its files.

    For an image that the request names: the clause with its name. For the result of another task: the clauses
    without a file name. If that is empty, or the request names a single file: the whole request. Of a long
    request only the first and last characters are read.
    """
    request = excerpt(request)
    files = list(dict.fromkeys(split_names(request, [*known, *mentions(request)])[1::2]))
    named = _name_in(image, files)
    if named and len(files) == 1:
        return request
    parts = [clause for sentence in _SENTENCE.split(request) for clause in _clauses(sentence, files)]
    if named:
        return " ".join(part for part in parts if named in part) or request
    return " ".join(part for part in parts if not any(file in part for file in files)) or request


def _clauses(sentence: str, files: list[str]) -> list[str]:
    """Return the clauses of a sentence; the whole sentence if a clause consists of a file name only."""
    clauses = [clause for clause in _CLAUSE.split(sentence) if clause.strip()]
    for clause in clauses:
        rest = clause
        for file in files:
            rest = rest.replace(file, " ")
        if rest != clause and not re.search(r"\w{2,}", rest):
            return [sentence]
    return clauses


def _name_in(image: Any, files: list[str]) -> str | None:
    """Return the spelling with which the request names an image, or None."""
    if not isinstance(image, str) or refs_in(image):
        return None
    return next(
        (file for file in files if file == image or PurePath(file).name == PurePath(image).name), None
    )


_OWN_SCRIPTS = {"zh", "ja", "ko"}


_FEELING = re.compile(
    r"\b(positive|negative|neutral|happy|unhappy|sad|upset|angry|satisfied|dissatisfied)\b"
    r"|(正面|负面|积极|消极|中性|好评|中评|差评|褒义|贬义|满意)"
    r"|\b(?:sentiment|mood|posit|negat)|情感|情绪|态度",
    re.IGNORECASE,
)
_LENGTH = re.compile(
    r"\bin\s+(?:at most\s+|no more than\s+|about\s+)?(?:an?|one|two|three|four|five|ten|\d+)(?:\s+\w+)?"
    r"\s+(?:sentence|word|line|bullet|paragraph)s?(?:\s+points?)?\b"
    r"|(?<!第)[一二两三四五六七八九十百\d]+个?(?:句|字|段|行)(?:话|以内|之内)*",
    re.IGNORECASE,
)


def task_hints(task: Task, context: RunContext) -> dict[str, Any]:
    """Return the hints for a backend, which follow from a request; {} without one and for other tasks.

    image-to-text        {"ocr": bool}. The task's argument `text` decides if it has one: "read" asks for the
                         image's text, a question does not. Else the request decides, by patterns.
    text-classification  {"labels": [str]}, the words for feelings that are asked for ("happy", "sad"); for
                         sentiment in general a pair of opposites; [] if something else is asked for.
    summarization        {"length": str}, the length as the request has it ("in one sentence").
    """
    asked = str(task.args.get("text") or "").strip()
    if task.task != "image-to-text":
        request = excerpt(context.request.replace(asked, " ") if asked else context.request)
        if task.task == "summarization" and (length := _LENGTH.search(request)):
            return {"length": length[0]}
        return (
            {"labels": _feelings(request)} if task.task == "text-classification" and request.strip() else {}
        )
    if asked:
        return {"ocr": asked[-1] not in "?？" and _asks_for_text(asked)}
    names = {file.name for file in context.files}
    words = words_about(task.args.get("image"), context.request, names)
    return {"ocr": _asks_for_text(words)} if words.strip() else {}


def _feelings(request: str) -> list[str]:
    found = list(_FEELING.finditer(request))
    named = list(dict.fromkeys(word.lower() for match in found for word in match.groups() if word))
    if len(named) < 2 and found:
        return ["正面", "负面"] if CJK.search(request) else ["positive", "negative"]
    return named


def _asks_for_text(words: str) -> bool:
    """Whether these words ask for the text of an image ("read", "what does it say", 写着, ...)."""
    words = excerpt(words)
    return bool(_ASKS_FOR_TEXT.search(words)) and not _ASKS_FOR_DESCRIPTION.search(words)


def missing_language(known: Collection[str], task: Task, spec: TaskSpec) -> str | None:
    """Return why a model with these languages cannot do the task; None if it can, or if it names none.

    The required languages follow from the text arguments, `src_lang` and `tgt_lang`, and for sound from the
    purpose.
    """
    if not known:
        return None
    given = {arg.name: task.args.get(arg.name) for arg in spec.inputs if arg.kind == "text"}
    asked = [find_language(str(given.pop(name, None) or "")) for name in ("src_lang", "tgt_lang")]
    texts = [text for text in given.values() if isinstance(text, str) and not refs_in(text)]
    scripts = {found for text in texts if (found := detect_script(text)) is not None}
    is_sound = "audio" in (*spec.outputs, *(arg.kind for arg in spec.inputs))
    spoken = languages_in(task.purpose) if is_sound else frozenset[str]()
    missing = ({language.code for language in asked if language} | scripts | spoken) - {"", *known}
    if missing:
        return f"its card names the languages {', '.join(known)}, and not {', '.join(sorted(missing))}"
    if scripts == {""} and set(known) <= _OWN_SCRIPTS:
        return f"it knows only {', '.join(known)}"
    return None
