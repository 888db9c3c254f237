"""A described workflow is cut into clauses that each speak of one tool, or of none.

    clauses(mark("Enhance and transcribe \\ue000 after denoising, then I want a summary.", files).text)
    # [Clause("Enhance \\ue000"), Clause("transcribe \\ue000"), Clause("after denoising", is_back=True, …), …]

Too many clauses do less harm than too few: what is left without a meaning of its own is taken for no tool,
but of two tools in one clause only one would be found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from jarvis_agent.planning.offline.marks import MARK
from jarvis_agent.planning.offline.workflow.tools import names, verbs


def _forms(verb: str) -> list[str]:
    stem = verb[:-1] if verb.endswith("e") and verb != "be" else verb
    doubled = f"{verb}{verb[-1]}ing" if re.search(r"[^aeiou][aeiou][gtnpbm]$", verb) else f"{stem}ing"
    return [verb, f"{stem}ing", doubled]


_VERB = (
    rf"(?:use(?! of\b)\b|(?:{'|'.join(dict.fromkeys(form for verb in verbs() for form in _forms(verb)))})\b)"
)
_MADE = (
    r"(?:summary|translation|description|caption|transcription|transcript|answer|response|reply|depth|"
    r"segmentation|classification|video|image|picture|audio|speech|similarity|conversation|dialogue|version|"
    r"paraphrase|story|text|paragraph|sentence|labels?|category|emotion|class)"
)
_DONE = (
    r"(?:classified|translated|modified|edited|transcribed|converted|enhanced|summari[sz]ed|segmented|detected|"
    r"estimated|extracted|changed|compared|labell?ed)"
)
_ADVERB = (
    r"(?:(?:also|then|next|finally|lastly|first|afterwards?|after that|later|subsequently|eventually|please|"
    r"kindly|help me|to|simply|just|instead|immediately|automatically|correctly|further|now|it|if possible|"
    r"using that|"
    r"(?:can|could|would) you)\b,?\s+){0,4}"
)
_JOIN = (
    r"(?:\s*[,;:–—]\s*|\s+)(?:(?:and|but|then|plus|as well as|along with|together with|in addition to|"
    r"followed by|while|also|or)\b,?\s+){1,3}"
)
SPEAKER = r"(?:i|we|(?:(?:the|a|our|my) )?user)"
"""Who wants something: the user, who may speak of himself in the third person."""
_WISH = (
    rf"{SPEAKER}(?:['’](?:d|ll)| would| will)?(?: also| then| really| just| still| finally)*\s+"
    r"(?:likes?|wants?|needs?|wish(?:es)?|have|has)\b"
)
_LAST = r"(?:also |then |finally |lastly )?"
_CUTS = (
    rf"(?<!\bi)(?<!\bwe)(?<!\buser){_JOIN}(?={_ADVERB}{_VERB})",
    rf"\s*[,;:–—]\s*(?={_ADVERB}{_VERB})",
    rf"{_JOIN}(?=(?:would like|['’]d like|want|need|wish)\b)",
    rf"(?:\s*,\s*|\s+)(?:(?:and|but|so|that|which|where|for which|then)\s+){{0,2}}(?={_WISH})",
    r"\s+(?:that|which)\s+(?=(?:needs?|should|must|has|have)\s+(?:to be|been)\b)",
    rf"\s*,?\s+(?:and|as well as|along with|followed by|plus|or)\s+{_LAST}"
    rf"(?=(?:an?|its|their)\s+(?:[\w-]+\s+){{0,3}}{_MADE}\b)",
    rf"\s*,\s*(?:and\s+)?(?:then |finally )?(?=an?\s+(?:[\w-]+\s+){{0,3}}{_MADE}\b)",
    rf"(?:{_JOIN}|\s*,\s*){_LAST}(?=(?:{'|'.join(names())})\b)",
    r"\s*,\s*(?:and\s+)?(?=(?:its|their)\s+(?:depths?|class(?:es)?|categor(?:y|ies)|emotions?)\b)",
    rf"\s*,?\s+and\s+{_LAST}(?=the\s+(?:similarity|answer|depth|class|category|emotion)\b)",
    rf"\s*,?\s+and\s+{_LAST}(?=(?:the|its|their)\s+(?:[\w'’-]+\s+|{MARK}\s+){{1,5}}?(?:to be\s+)?{_DONE}\b)",
    rf"(?:{_JOIN}|\s*,\s*){_LAST}(?={_DONE}\b(?!\s+(?:text|image|picture|audio|version|content|answer|objects?)\b))",
    rf"{_JOIN}(?=(?:what|how|who|where|when|which|why|whether)\b)",
    r"(?:\s*,)?\s+(?=(?:before|after|upon|by(?: first)?|followed by)\s+(?:first\s+)?"
    rf"(?:{_VERB}|(?:the )?\w*(?:tion|ment|ing|sis)\b))",
    rf"(?<=[^,;.]{{4}})\s+to\s+(?={_VERB})",
)
_CUT = re.compile("|".join(_CUTS), re.IGNORECASE)
_SENTENCE = re.compile(
    rf"(?<=[.!?;])\s+|(?<=[.!?]{MARK})\s+|(?<={MARK})\s+(?=[A-Z])|\n+|(?<=\))\s*\.?\s+(?=[A-Z])"
)
_ITEM = re.compile(r"(?:(?<=\s)|^)\(?\d{1,2}[.)]\s+")
_BACK = re.compile(
    r"^\W*(?:(?:and|then|finally|next|also)\s+)*(?:after|once|upon|based on|using|with|from|following|given|"
    r"when|according to|as)\b(?!\s+(?:that|this)\b,?\s+\w+\s+(?:the|an?)\b)",
    re.IGNORECASE,
)
_LATER = re.compile(r"^\W*(?:after|once|following)\b", re.IGNORECASE)
_ALONE = re.compile(
    rf"^\W*{_ADVERB}(?:(?:{_WISH}|want|need|would like)\s+(?:you\s+)?to\s+)?{_ADVERB}({_VERB})[\s,.;:]*$",
    re.IGNORECASE,
)
_GENERIC = re.compile(
    r"\b(?:analy[sz]|process|examin|identif|detect|find|label|recogni[sz]|read|check|know|determin|locat|help|work|us(?:e|ing)|"
    r"understand|get|extract|measur|compar|creat|generat|mak|provid|produc|learn|look|start|continu|engag|tak|giv|obtain|"
    r"evaluat|assess|mark|tag|return|show|calculat|pick|retriev)\w*\W*$",
    re.IGNORECASE,
)
"""Verbs that say little: with the verb after them they make one clause ("identify and label the objects")."""
_LED = re.compile(rf"^{_ADVERB}{_VERB}(?:\s+and)?\s+(?P<rest>.+)$", re.IGNORECASE)
_USING = re.compile(
    rf"^\W*{_ADVERB}(?:(?:{_WISH}|want|need|would like)\s+(?:you\s+)?to\s+)?{_ADVERB}(?:use|utili[sz]e)\b"
    r"(?!.*\b(?:detection|estimation|recognition|editing|tool|model)\b)",
    re.IGNORECASE,
)
"""A clause that only leads to its purpose ("use the summary to create a video")."""


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of a request.

    Attributes:
        text: its words, with marks for files and quoted texts.
        is_back: whether it points back to something ("after editing the image") rather than asking for it.
        is_before: whether what it speaks of comes before the clause ahead of it ("…, after segmenting it").
        sentence: the number of its sentence.
    """

    text: str
    is_back: bool = False
    is_before: bool = False
    sentence: int = 0


def clauses(text: str) -> list[Clause]:
    """The clauses of a marked text, in its order."""
    found: list[Clause] = []
    for number, sentence in enumerate(_SENTENCE.split(_ITEM.sub("; ", text))):
        pieces = [piece.strip(" ,;:-–") for piece in _pieces(sentence)]
        pieces = _with_objects([piece for piece in pieces if re.search(rf"\w|{MARK}", piece)])
        for place, piece in enumerate(pieces):
            is_back = bool(_BACK.match(piece))
            is_before = place > 0 and bool(_LATER.match(piece))
            found.append(Clause(piece, is_back, is_before, number))
    return found


def _pieces(sentence: str) -> list[str]:
    """A sentence in pieces; what only leads to its purpose, or sums up what follows, goes with it."""
    pieces: list[str] = []
    start = 0
    for cut in _CUT.finditer(sentence):
        before = sentence[start : cut.start()]
        if cut.group().strip() == "to" and not _USING.match(before):
            continue
        pieces.append(before)
        start = cut.end()
    return [*pieces, sentence[start:]]


def _with_objects(pieces: list[str]) -> list[str]:
    """Verbs that stand alone ("enhance and transcribe the recording") get the object of the next piece."""
    done: list[str] = []
    for piece in reversed(pieces):
        rest = _LED.match(done[-1]) if done else None
        if rest is None or not _ALONE.match(piece):
            done.append(piece)
        elif _GENERIC.search(piece):
            done[-1] = f"{piece} and {done[-1]}"
        else:
            done.append(f"{piece} {rest['rest']}")
    return done[::-1]
