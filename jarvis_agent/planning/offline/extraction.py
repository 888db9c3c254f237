"""Slot values that a step states itself: a question, a prompt, labels, languages, numbers.

    question("can you tell me what color the car in \\ue000 is")        # "what color the car is?"
    prompt("generate an image of a red fox in the snow")               # "a red fox in the snow"
    labels("sort it into sports, politics or science")                  # ["sports", "politics", "science"]
    languages("translate it from English to French")                # {"src_lang": ["en"], "tgt_lang": ["fr"]}
    amount("width", "resize \\ue000 to 640x480")                      # 640

Every function takes a step's text with marks and gives None, or nothing, where the step does not say it.
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
QUERY = _RE.QUERY
"""What stands before a text that others are to be ranked by."""

_NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "eight": 8, "ten": 10, "twelve": 12}


def question(text: str, place: str = "it") -> str | None:
    """The question that a step asks, without the file it is about, which `place` stands for where it must."""
    clause = _RE.FILE_PHRASE.sub("", without_lead_in(re.sub(rf"^.*{MARK}\s*,\s*", "", text) or text))
    match = _RE.QUESTION.search(clause)
    if match is None:
        return None
    words = re.sub(r"\s+", " ", match.group()).strip(" .,;:!?")
    if _RE.HANGS.search(words) and re.search(MARK, text):
        words = f"{words} in {place}"
    return f"{words}?" if not re.search(MARK, words) else None


def asked(text: str) -> str | None:
    """The question of a step that is an order ("find the total in \ue000")."""
    words = re.sub(r"\s+", " ", _RE.FILE_PHRASE.sub("", without_lead_in(text))).strip(" .,:;")
    return words if len(words.split()) > 2 else None


def prompt(text: str) -> str | None:
    """What is to be seen in the picture or video that a step asks for."""
    clause = _RE.WITH_WHAT.sub("", _RE.FOR_ME.sub("", without_lead_in(text)))
    for form in _PROMPTS:
        match = form.search(clause)
        if match is None:
            continue
        found = _RE.PROMPT_END.sub("", match.group(1)).strip(" .,;:!?")
        if found and not is_reference(found) and not re.search(MARK, found):
            return found
    return None


def drawn(text: str) -> str | None:
    """What is to be made of a control map ("draw a samurai standing like that", "make it a castle")."""
    if found := prompt(text):
        return found
    match = _RE.DRAWN.search(_RE.FILE_PHRASE.sub("", _RE.WITH_WHAT.sub("", without_lead_in(text))))
    if match is None:
        return None
    words = _RE.PROMPT_END.sub("", match.group(1).split(",")[0]).strip(" .,;:!?")
    return words if words and not is_reference(words) else None


def heard(text: str) -> str | None:
    """What is to be heard in what a step adds to something ("add a sound of wind to the clip")."""
    match = _RE.HEARD.search(text)
    return match.group(1).strip(" .,;:!?") if match else None


def scene(text: str) -> str | None:
    """What is to happen in the video that a step makes of a file."""
    return prompt(re.sub(r"\s+", " ", _RE.FILE_PHRASE.sub(" ", text)))


def instruction(text: str, noun: str = "the image") -> str | None:
    """What is to be done with a file (`noun`), in the step's own words; None where any variation will do."""
    clause = re.sub(rf"\s*\b(?:using|with|and)\s+(?:the |a )?mask\s*{MARK}", "", without_lead_in(text))
    clause = _RE.PLACE.sub("", clause)
    clause = re.sub(r"\s+", " ", _RE.FILE_PHRASE.sub(f" {noun} ", clause)).strip()
    return None if _RE.ANY_VARIATION.search(clause) else clause


def inline_text(text: str, task: str) -> str | None:
    """A text that stands in the step without quotation marks ("translate good morning into German")."""
    clause = without_lead_in(text)
    for form in patterns(f"inline_texts.{task}"):
        match = form.fullmatch(clause)
        if match and not is_reference(match.group(1)) and not re.search(MARK, match.group(1)):
            return match.group(1).strip()
    return None


def refers_to_text(text: str) -> bool:
    """Whether the words of a step point to a text somewhere ("a story about it", "from the caption")."""
    return bool(_RE.REFERS.search(text))


def refers_to_found(text: str) -> bool:
    """Whether the words of a step point to something that was found before ("the largest object")."""
    return bool(_RE.FOUND.search(text))


def cut_out(text: str) -> str | None:
    """What a step wants cut out of an image ("crop the red car out of it"); None if it names nothing."""
    match = _RE.CUT_OUT.search(text)
    return match.group(1).lower() if match else None


def is_rewriting(text: str) -> bool:
    """Whether a step asks for a text to be worked on, so that the text alone would not say what is wanted."""
    return bool(_RE.REWRITING.match(without_lead_in(text)))


def is_reference(words: str) -> bool:
    """Whether the words point to a text rather than being one ("it", "the caption")."""
    return bool(_RE.REFERENCE.match(words.strip()))


def labels(text: str) -> list[str]:
    """The labels that a step lists; a list of fewer than two is none."""
    words = _RE.FILE_PHRASE.sub(" ", without_lead_in(text)).strip()
    match = _RE.LABELS.search(words)
    if match is not None:
        return split_labels(match.group(1))
    choice = (
        _RE.CHOICE.search(words)
        or _RE.TOPICS.search(words)
        or _RE.EITHER.search(words)
        or _RE.SOUGHT.search(words)
    )
    return (
        [re.sub(r"^(?:more (?:of|like) )?an? ", "", label) for label in split_labels(choice.group(1))]
        if choice
        else []
    )


def thing_sought(text: str) -> str | None:
    """The kind of thing that a step looks for in a picture ("where are the fire hoses"), in the singular."""
    words = re.sub(r"\s+", " ", _RE.FILE_PHRASE.sub(" ", without_lead_in(text))).strip()
    match = _RE.THING_SOUGHT.search(words)
    if match is None or is_reference(match.group(1)):
        return None
    return re.sub(r"(?<=[^s])s$", "", match.group(1).strip().lower())


def things_sought(text: str) -> list[str]:
    """The kinds of things that a step looks for, if there are several ("mark the hammer and the saw")."""
    words = re.sub(r"\s+", " ", _RE.FILE_PHRASE.sub(" ", without_lead_in(text))).strip()
    match = _RE.THINGS_SOUGHT.match(words)
    listed = split_labels(match.group(1)) if match else []
    return [re.sub(r"^(?:the|an?|all|any)\s+", "", thing) for thing in listed]


def offers_choice(text: str) -> bool:
    """Whether a step asks which of several things something is ("is it a cat or a dog")."""
    words = _RE.FILE_PHRASE.sub(" ", without_lead_in(text)).strip()
    choice = _RE.CHOICE.search(words) or _RE.TOPICS.search(words)
    several = _RE.EITHER.search(words)
    if several is not None and len(split_labels(several.group(1))) > 2:
        return True
    return choice is not None and len(split_labels(choice.group(1))) > 1


def drawn_from_text(text: str) -> bool:
    """Whether what a step wants made is what a text says ("something new from that caption")."""
    return bool(_RE.DRAWN_FROM.search(text))


def quoted_labels(text: str) -> list[str]:
    """The marks of labels that stand in quotation marks ('as "cat" or "dog"')."""
    match = _RE.QUOTED_LABELS.search(text)
    return re.findall(MARK, match.group(1)) if match else []


def split_labels(text: str) -> list[str]:
    """A list in words as a list: "sports, politics or science"."""
    found = [label.strip(" .:\"'“”") for label in _RE.BETWEEN_LABELS.split(text)]
    found = [label for label in found if label and not re.search(MARK, label)]
    return found if len(found) > 1 else []


def language_phrase(text: str) -> str | None:
    """The words of a step that name a target language ("in French")."""
    match = re.search(rf"\b(?:to|into|in)\s+{_language()}\b", text, re.IGNORECASE)
    return match.group() if match else None


def languages(text: str) -> dict[str, list[str]]:
    """ISO 639-1 codes of the languages that a step names: `tgt_lang` after "to" or "in", else `src_lang`.

    There are several for "into French, German and Spanish".
    """
    found: dict[str, list[str]] = {}
    between = r"(?:\s*,\s*(?:and\s+)?|\s+(?:and|as well as|plus|or)\s+)(?:also\s+)?(?:(?:in)?to\s+|in\s+)?"
    listed = rf"{_language()}(?:{between}{_language()})*"
    for match in re.finditer(rf"\b(from|to|into|in|both)\s+({listed})\b", text, re.IGNORECASE):
        codes = [_code(name) for name in re.findall(rf"\b{_language()}\b", match[2], re.IGNORECASE)]
        found["src_lang" if match[1].lower() == "from" else "tgt_lang"] = codes
    version = re.search(rf"\b({_language()})\s+(?:translation|version|words?|for)\b", text, re.IGNORECASE)
    return found if "tgt_lang" in found or not version else {**found, "tgt_lang": [_code(version[1])]}


@lru_cache(maxsize=1)
def _language() -> str:
    """Pattern of a language's English name."""
    return f"(?:{'|'.join(language.name for language in LANGUAGES)})"


def _code(name: str) -> str:
    language = find_language(name)
    return language.code if language else name


def amount(name: str, text: str) -> int | list[int] | None:
    """The number, or the list of numbers, that a step gives for an argument; None if it gives none."""
    if name in ("count", "horizon"):
        text = re.sub(r"\w+", lambda word: str(_NUMBERS.get(word[0].lower(), word[0])), text)
    for form in patterns(f"quantities.{name}"):
        if found := form.search(text):
            numbers = [int(group) for group in found.groups()]
            return numbers[0] if len(numbers) == 1 else numbers
    return None
