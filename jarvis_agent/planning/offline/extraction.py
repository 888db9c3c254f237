"""Slot values that a step states itself: a question, a prompt, labels, languages, numbers.

    question("can you tell me what color the car in \\ue000 is")        # "what color the car is?"
    prompt("generate an image of a red fox in the snow")               # "a red fox in the snow"
    labels("sort it into sports, politics or science")                  # ["sports", "politics", "science"]
    languages("translate it from English to French")                # {"src_lang": ["en"], "tgt_lang": ["fr"]}
    amount("width", "resize \\ue000 to 640x480")                      # 640

Each function takes the text of a step, with marks, and returns None or nothing if the step does not state it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from jarvis_agent.core.languages import LANGUAGES, find_language
from jarvis_agent.planning.offline.clauses import without_lead_in
from jarvis_agent.planning.offline.masking import MARK
from jarvis_agent.planning.offline.patterns import Patterns, patterns

_RE = Patterns("extraction")
_PROMPTS = patterns("extraction.PROMPTS")
_NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8, "ten": 10, "twelve": 12}

QUERY = _RE.QUERY
"""Words before the text that others are ranked by."""
REFERS_TO_TEXT = _RE.REFERS
"""Words that refer to a text ("a story about it", "from the caption")."""
REFERS_TO_FOUND = _RE.FOUND
"""Words that refer to a detection ("the largest object")."""
BASED_ON_TEXT = _RE.DRAWN_FROM
"""Words that make a text the prompt ("something new from that caption")."""


def question(text: str, place: str = "it") -> str | None:
    """The question of a step, without its file.

    Args:
        place: what stands for the file where the question needs it ("what is in it?", "who wrote it?").
    """
    clause = without_lead_in(re.sub(rf"^.*{MARK}\s*,\s*", "", text) or text)
    is_one = len(re.findall(MARK, text)) == 1
    clause = _RE.FILE_PHRASE.sub(lambda phrase: _as_noun(phrase, place) if is_one else "", clause)
    match = _RE.QUESTION.search(clause)
    if match is None:
        return None
    words = re.sub(r"\s+", " ", match.group()).strip(" .,;:!?")
    if _RE.HANGS.search(words) and re.search(MARK, text):
        words = f"{words} in {place}"
    return f"{words}?" if not re.search(MARK, words) else None


def _as_noun(phrase: re.Match[str], noun: str) -> str:
    """The noun for a file that is a part of the sentence ("who wrote \ue000"), else nothing."""
    return "" if phrase["place"] or "," in phrase.group() else f" {noun}"


def asked(text: str) -> str | None:
    """The question of a step that is an order ("find the total in \ue000")."""
    words = _without_files(text, "").strip(".,:; ")
    return words if len(words.split()) > 2 else None


def prompt(text: str) -> str | None:
    """What the requested picture, video or sound is of."""
    clause = _RE.WITH_WHAT.sub("", _RE.FOR_ME.sub("", without_lead_in(text)))
    for form in _PROMPTS:
        match = form.search(clause)
        found = _RE.PROMPT_END.sub("", match.group(1)).strip(" .,;:!?") if match else ""
        if found and not is_reference(found) and not re.search(MARK, found):
            return found
    return None


def drawn(text: str) -> str | None:
    """What is to be made with a control map ("draw a samurai standing like that", "make it a castle")."""
    if found := prompt(text):
        return found
    match = _RE.DRAWN.search(_RE.FILE_PHRASE.sub("", _RE.WITH_WHAT.sub("", without_lead_in(text))))
    if match is None:
        return None
    words = _RE.PROMPT_END.sub("", match.group(1).split(",")[0]).strip(" .,;:!?")
    return words if words and not is_reference(words) else None


def heard(text: str) -> str | None:
    """The sound that a step adds to something ("add a sound of wind to the clip")."""
    match = _RE.HEARD.search(text)
    return match.group(1).strip(" .,;:!?") if match else None


def scene(text: str) -> str | None:
    """What happens in the video that a step makes from a file."""
    return prompt(re.sub(r"\s+", " ", _RE.FILE_PHRASE.sub(" ", text)))


def instruction(text: str, noun: str = "the image") -> str | None:
    """How a file, called `noun`, is to be changed; None where any variation will do."""
    clause = re.sub(rf"\s*\b(?:using|with|and)\s+(?:the |a )?mask\s*{MARK}", "", without_lead_in(text))
    clause = _RE.PLACE.sub("", clause)
    clause = re.sub(r"\s+", " ", _RE.FILE_PHRASE.sub(f" {noun} ", clause)).strip()
    return None if _RE.ANY_VARIATION.search(clause) else clause


def inline_text(text: str, task: str) -> str | None:
    """A text without quotation marks ("translate good morning into German")."""
    clause = without_lead_in(text)
    for form in patterns(f"inline_texts.{task}"):
        match = form.fullmatch(clause)
        if match and not is_reference(match.group(1)) and not re.search(MARK, match.group(1)):
            return match.group(1).strip()
    return None


def cut_out(text: str) -> str | None:
    """The thing to be cut out of an image ("crop the red car out of it")."""
    match = _RE.CUT_OUT.search(text)
    return match.group(1).lower() if match else None


def is_rewriting(text: str) -> bool:
    """Whether a step changes a text, so that the text alone is no prompt."""
    return bool(_RE.REWRITING.match(without_lead_in(text)))


def is_reference(words: str) -> bool:
    """Whether the words refer to a text instead of being one ("it", "the caption")."""
    return bool(_RE.REFERENCE.match(words.strip()))


def labels(text: str) -> list[str]:
    """The labels that a step lists: two or more, or none."""
    words = _RE.FILE_PHRASE.sub(" ", without_lead_in(text)).strip()
    if match := _RE.LABELS.search(words):
        return split_labels(match.group(1))
    forms = (_RE.CHOICE, _RE.TOPICS, _RE.EITHER, _RE.SOUGHT)
    choice = next((match for form in forms if (match := form.search(words))), None)
    listed = split_labels(choice.group(1)) if choice else []
    return [re.sub(r"^(?:more (?:of|like) )?an? ", "", label) for label in listed]


def thing_sought(text: str) -> str | None:
    """What a step looks for in a picture, in the singular ("where are the fire hoses": "fire hose")."""
    match = _RE.THING_SOUGHT.search(_without_files(text))
    if match is None or is_reference(match.group(1)):
        return None
    return re.sub(r"(?<=[^s])s$", "", match.group(1).strip().lower())


def things_sought(text: str) -> list[str]:
    """What a step looks for if it names several things ("mark the hammer and the saw")."""
    match = _RE.THINGS_SOUGHT.match(_without_files(text))
    listed = split_labels(match.group(1)) if match else []
    return [re.sub(r"^(?:the|an?|all|any)\s+", "", thing) for thing in listed]


def offers_choice(text: str) -> bool:
    """Whether a step asks which of several things something is ("is it a cat or a dog")."""
    words = _RE.FILE_PHRASE.sub(" ", without_lead_in(text)).strip()
    several = _RE.EITHER.search(words)
    if several is not None and len(split_labels(several.group(1))) > 2:
        return True
    choice = _RE.CHOICE.search(words) or _RE.TOPICS.search(words)
    return choice is not None and len(split_labels(choice.group(1))) > 1


def quoted_labels(text: str) -> list[str]:
    """The marks of quoted labels ('as "cat" or "dog"')."""
    match = _RE.QUOTED_LABELS.search(text)
    return re.findall(MARK, match.group(1)) if match else []


def split_labels(text: str) -> list[str]:
    """The items of a list in words ("sports, politics or science"); none if there is only one."""
    found = [label.strip(" .:\"'“”") for label in _RE.BETWEEN_LABELS.split(text)]
    found = [label for label in found if label and not re.search(MARK, label)]
    return found if len(found) > 1 else []


def language_phrase(text: str) -> str | None:
    """The words that name a target language ("in French")."""
    match = re.search(rf"\b(?:to|into|in)\s+{_language()}\b", text, re.IGNORECASE)
    return match.group() if match else None


def languages(text: str) -> dict[str, list[str]]:
    """ISO 639-1 codes of the languages that a step names: `src_lang` after "from", else `tgt_lang`."""
    found: dict[str, list[str]] = {}
    between = r"(?:\s*,\s*(?:and\s+)?|\s+(?:and|as well as|plus|or)\s+)(?:also\s+)?(?:(?:in)?to\s+|in\s+)?"
    listed = rf"{_language()}(?:{between}{_language()})*"
    for match in re.finditer(rf"\b(from|to|into|in|both)\s+({listed})\b", text, re.IGNORECASE):
        codes = [_code(name) for name in re.findall(rf"\b{_language()}\b", match[2], re.IGNORECASE)]
        found["src_lang" if match[1].lower() == "from" else "tgt_lang"] = codes
    version = re.search(rf"\b({_language()})\s+(?:translation|version|words?|for)\b", text, re.IGNORECASE)
    return found if "tgt_lang" in found or not version else {**found, "tgt_lang": [_code(version[1])]}


def amount(name: str, text: str) -> int | list[int] | None:
    """The number, or the numbers, that a step states for an argument."""
    if name in ("count", "horizon"):
        text = re.sub(r"\w+", lambda word: str(_NUMBERS.get(word[0].lower(), word[0])), text)
    for form in patterns(f"quantities.{name}"):
        if found := form.search(text):
            numbers = [int(group) for group in found.groups()]
            return numbers[0] if len(numbers) == 1 else numbers
    return None


def _without_files(text: str, instead: str = " ") -> str:
    words = _RE.FILE_PHRASE.sub(instead, without_lead_in(text))
    return re.sub(r"\s+", " ", words).strip()


@lru_cache(maxsize=1)
def _language() -> str:
    """Pattern of a language's English name."""
    return f"(?:{'|'.join(language.name for language in LANGUAGES)})"


def _code(name: str) -> str:
    language = find_language(name)
    return language.code if language else name
