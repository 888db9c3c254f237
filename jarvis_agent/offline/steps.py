"""A request is split into steps: clauses that each ask for something.

    split("First describe \\ue000, then translate the caption to French. Also detect the objects in it.")
    # [Step("describe \\ue000"), Step("translate the caption to French"), Step("detect the objects in it")]

A clause asks for something if it begins with a verb of action or a question word. One that does not ("Based
on \\ue000, …") belongs to the clause after it, and a whole sentence of that kind ("I have an image \\ue000.")
is the context of the step after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from jarvis_agent.offline.marks import MARK

_ACTIONS = (
    "add adjust analyse analyze animate annotate answer apply arrange assess assign brainstorm "
    "brighten build calculate caption categorise categorize change check choose clarify classify "
    "clean color colorize colour colourise colourize compare complete compose compute condense "
    "construct continue convert copy count craft create crop cut decide denoise depict derive "
    "describe design detect determine develop differentiate display do draft draw dub edit embed "
    "employ encode enhance estimate evaluate examine execute explain extract fill film filter find "
    "finish forecast generate get give guess hear highlight identify illustrate imagine improve infer "
    "inspect interpret isolate label let list listen locate look make mark match measure modify name "
    "narrate obtain order outline paint paraphrase perform pick pinpoint play point predict prepare "
    "process produce project pronounce provide pull put rank read recite recognise recognize record "
    "reduce remove render rephrase replace reply report rerank rescale resize restore restyle "
    "retrieve return rewrite run say scale score segment separate shorten show shrink sketch sort "
    "speak split spot state sum summarise summarize synthesise synthesize tag take tell title "
    "transcribe transform translate transliterate turn type upscale use verify visualise visualize "
    "vocalize voice write"
).replace(" ", "|")
_QUESTIONS = "what|what's|whats|how|which|who|who's|whose|whom|where|where's|when|why"
_AUXILIARIES = "is|are|was|were|does|do|did|can|could|has|have|will|would|should"

_BEFORE = r"[\s\"'(*,.:;–-]*"
_OPENERS = (
    r"(?:(?:please|kindly|now|first(?:ly)?|second(?:ly)?|third(?:ly)?|then|next|also|separately|"
    r"in addition|additionally|besides|furthermore|moreover|meanwhile|"
    r"finally|lastly|afterwards|"
    r"after that|hi|hello|hey|ok(?:ay)?|so|just|and|jarvis|(?:can|could|would|will) you(?: please| kindly)?|"
    r"help me(?: to)?|let us|let's|let me(?: know)?|i am (?:looking|trying) to|i want to|to|"
    r"(?:i|we)(?: would|'d|’d)?(?: really)? (?:like|love|want|need|wish|have)(?: you)? to"
    r"(?: know| see| hear(?= (?:what|how|who|if|whether)\b))?|"
    r"you (?:should|must|need to)|your task is to|"
    r"tell me(?= (?:what|how|which|who|whose|where|when|why|if|whether|the)\b))[,:]?\s+){0,6}"
)
_WISH = r"i(?: would|'d|’d)? (?:need|want|like|love)\s+(?!to\b|you\b)"
_START = re.compile(
    rf"^{_BEFORE}(?:tell me\b|{_OPENERS}(?!look at\b|here is\b)"
    rf"(?:(?:{_ACTIONS}|{_QUESTIONS}|{_AUXILIARIES})\b|{_WISH}))",
    re.IGNORECASE,
)
_LEAD_IN = re.compile(rf"^{_BEFORE}{_OPENERS}", re.IGNORECASE)
_INTRO = re.compile(
    r"(?:i|we|there|here|this|these|the|an?|my|based|using|from|with|in|for|given|according|after|on|at|by|"
    r"considering|following)\b",
    re.IGNORECASE,
)
_SETTING = re.compile(rf"{_BEFORE}{_OPENERS}(?:use|take)\b(?!.*\bout\b)", re.IGNORECASE)

_SENTENCE = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+")
_THEN = r",?\s+(?:and\s+)?(?:then|after that|afterwards|after which|finally|lastly)\b,?\s+"
_AND = (
    r"(?:\s*,\s*|\s+)(?:(?:and|also|plus|as well as|but|while)\s+){1,3}(?:(?:also|next|please|finally)\s+)?"
)
_BEFORE_THAT = r"\s*,?\s+before\s+(?:you\s+)?"
_CUT = re.compile(
    rf"{_THEN}|{_BEFORE_THAT}(?=(?:\w+ing|{_ACTIONS})\b)|\s*:\s+(?={_OPENERS}(?:{_ACTIONS})\b)|{_AND}(?={_OPENERS}(?:{_ACTIONS}|{_QUESTIONS})\b)"
    rf"|\s*,\s*(?={_OPENERS}(?:{_ACTIONS}|what|how|tell)\b)"
    rf"|\s*,?\s+before\s+(?:you\s+)?(?=(?:{_ACTIONS})\b)",
    re.IGNORECASE,
)
_SEEN = re.compile(
    rf"(?<=\band )what (?:you (?:can )?see|is (?:shown|seen)|can be seen) (?:in|on) (?={MARK}[^.!?]*,)",
    re.IGNORECASE,
)
_ANOTHER = re.compile(
    r"\s*,?\s+and\s+(?=(?:the|its)\s+(?:depth|edge|normal|pose|segmentation|line|hed|canny)\s+(?:\w+\s+)?(?:map|image)\b"
    r"|an?\s+(?:(?:depth|edge|normal|pose|segmentation|line|seg|hed|canny)\b.{0,12}?\b(?:map|image)|"
    r"scribble|caption|description|summary|translation|transcript(?:ion)?)\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Step:
    """A clause that asks for something.

    Attributes:
        text: its words, with marks for files and quoted texts.
        context: sentences around it that ask for nothing but may name what it is about.
        told: the clause as the user wrote it, where `text` puts it in other words.
    """

    text: str
    context: str = ""
    told: str = ""


def split(text: str) -> list[Step]:
    """The steps of a marked text, in its order. Where no clause asks for anything, each sentence is one."""
    text = _SEEN.sub("the description of ", text)
    sentences = [sentence.strip() for sentence in _SENTENCE.split(text) if sentence.strip(" \t.,;!?-–")]
    clauses = [_clauses(sentence) for sentence in sentences]
    if not any(asks for sentence in clauses for _, asks in sentence):
        return [Step(sentence) for sentence in sentences]
    steps: list[Step] = []
    waiting: list[str] = []
    for clause, asks in (item for sentence in clauses for item in sentence):
        if not asks:
            waiting.append(clause)
            continue
        steps.append(Step(clause, " ".join(waiting)))
        waiting = []
    if waiting:
        steps[-1] = replace(steps[-1], context=" ".join([steps[-1].context, *waiting]).strip())
    return steps


def without_lead_in(text: str) -> str:
    """A clause without "please", "can you", "then" and the like before it, and without its full stop."""
    return _LEAD_IN.sub("", text).strip().rstrip(".,;!?。！？；").strip()


def _clauses(sentence: str) -> list[tuple[str, bool]]:
    """The clauses of a sentence, each with whether it asks for something."""
    pieces = [piece.strip() for piece in _CUT.split(sentence) if without_lead_in(f"{piece} ")]
    if not pieces:
        return [(sentence, False)]
    clauses: list[str] = []
    opening = ""
    for place, piece in enumerate(pieces):
        if place + 1 < len(pieces) and _is_opening(piece, is_first=place == 0):
            opening = f"{piece}, "
            continue
        clauses += _with_verb(f"{opening}{piece}")
        opening = ""
    if len(clauses) == 1:
        return [(clauses[0], len(pieces) > 1 or bool(_START.search(sentence)))]
    return [(_with_object(clause, clauses[place + 1 :]), True) for place, clause in enumerate(clauses)]


def _with_verb(clause: str) -> list[str]:
    """The results that one verb asks for, each with the verb ("make a caption of \ue000 and a depth map")."""
    verb = without_lead_in(clause).partition(" ")[0]
    first, *others = _ANOTHER.split(clause)
    return [first, *(f"{verb} {other}" for other in others)]


def _is_opening(piece: str, *, is_first: bool) -> bool:
    """Whether a piece of a sentence only leads to the one after it ("Based on \ue000")."""
    if _SETTING.match(piece):
        return True
    return not _START.search(piece) and bool(_INTRO.match(piece) or (is_first and re.search(MARK, piece)))


def _with_object(clause: str, following: list[str]) -> str:
    """A bare verb ("classify and describe \ue000") with the files that the next clause names."""
    if not following or not re.fullmatch(_ACTIONS, clause, re.IGNORECASE):
        return clause
    return " ".join([clause, *re.findall(MARK, following[0])])
