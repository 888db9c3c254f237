"""What a step says by itself: its question, its prompt, its labels, the languages it names.

    question("can you tell me what color the car in \\ue000 is")        # "what color the car is?"
    prompt("generate an image of a red fox in the snow")               # "a red fox in the snow"
    labels("sort it into sports, politics or science")                  # ["sports", "politics", "science"]
    languages("translate it from English to French")                # {"src_lang": ["en"], "tgt_lang": ["fr"]}

Every function takes a step's text with marks and gives None, or nothing, where the step does not say it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from jarvis_agent.offline.clauses import without_lead_in
from jarvis_agent.offline.masking import MARK
from jarvis_agent.selection.languages import LANGUAGES, find_language

_FILE_PHRASE = re.compile(
    rf"""
    ,?\s*
    (?:\b(?:in|on|of|from|at|for|inside|within|about|shown\ in|according\ to|based\ on|using)\s+)?
    (?:\b(?:the|this|my|an?)\s+)?
    (?:\b(?:attached|given|provided|following)\s+)?
    (?:\b(?:image|picture|photo|photograph|document|file|page|scan|video|audio|recording|clip)s?\s+)?
    (?:named\s+)?
    {MARK}(?:(?:,|\s+and|\s)*{MARK})*
    ,?
    """,
    re.IGNORECASE | re.VERBOSE,
)
_PLACE = re.compile(
    rf"\s*\b(?:in|on|of|from|at|within)\s+(?:(?:the|this|my)\s+)?(?:(?:image|picture|photo)\s+)?{MARK}",
    re.IGNORECASE,
)
_ANY_VARIATION = re.compile(r"\b(?:vari(?:ation|ant|ety)s?|similar|another (?:version|one))\b", re.IGNORECASE)

_QUESTION = re.compile(
    r"(?:^|(?<=\s))(?:(?:on|in|at|for|from|to|with|by|of|since|until|under)\s(?=wh(?:at|ich|om|ose)\b))?(?:what|who|whom|whose|where|when|which|why|how|"
    r"is|are|was|were|does|do|did|can|could|has|have)(?:'s|’s)?\s.+",
    re.IGNORECASE,
)
_HANGS = re.compile(r"\b(?:is|are|was|were|there|shown|seen)$", re.IGNORECASE)

_MADE = (
    r"(?:image|picture|photo|photograph|drawing|illustration|painting|portrait|logo|poster|wallpaper|sketch|watercolou?r|cartoon|collage|artwork|icon|landscape|"
    r"video|clip|movie|animation|film|scene|story|model|mesh|object|"
    r"music|song|melody|tune|jingle|soundtrack|sound effect|sound)"
)
_MAKES = (
    r"(?:generate|create|creating|make|making|draw|paint|produce|design|craft|render|film|compose|write|develop|"
    r"imagine|show|turn|want|need|like|love|give me)"
)
_PROMPTS = (
    re.compile(
        rf"(?:^(?:(?:an?|some) (?:[\w-]+ ){{0,4}}?|(?:the )?(?:\w+ )?)|\b{_MAKES}\b.{{0,120}}?)"
        rf"\b{_MADE}s?\b(?:\s+\w+)?\s+"
        r"(?:of|showing|depicting|about|titled|called|where|in which|that shows|"
        r"that represents|representing|inspired by|for|with)\s+(.+)",
        re.IGNORECASE,
    ),
    re.compile(
        r"^(?:draw|paint|sketch|illustrate|visuali[sz]e|film|animate|imagine|depict|design|show)(?:\s+me)?\s+"
        r"(?!(?:the |an? |some )?(?:\w+ )?(?:box(?:es)?|lines?|outlines?|masks?)\b)(.+)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"^(?:(?:i(?: would|['’]d)? )?{_MAKES}\s+(?:me )?)?((?:an?|some)\s+.{{1,200}}?\s+"
        r"(?:music|song|melody|tune|jingle|piece|beat|loop|ringtone|lullaby|sounds?|noises?))$",
        re.IGNORECASE,
    ),
    re.compile(
        rf"^{_MAKES}\s+(?:me )?(?:an? )?(?:3d|three-dimensional)\s+(?!{_MADE}|shape)(.+)$", re.IGNORECASE
    ),
    re.compile(
        rf"^(?:{_MAKES}|\w+)\s+(?:me )?((?:an?|the|some)\s+.{{1,300}}?)\s+"
        r"(?:as|in) (?:an? )?(?:3-?d|three.dimension).*$",
        re.IGNORECASE,
    ),
    re.compile(rf"^{_MAKES}\s+((?:an?|some)\s+(?!new\b).{{1,300}}?)\s+{_MADE}$", re.IGNORECASE),
)
_HEARD = re.compile(
    r"\b(?:sounds?|noises?|sound effects?|music|tune|song)\s+of\s+(.+?)"
    r"(?=\s+(?:to|under|over|on|onto|behind|in|into|with)\b|\W*$)",
    re.IGNORECASE,
)
_FOR_ME = re.compile(r",?\s+(?:(?:for|to) (?:me|us|my \w+)|please|thanks?(?: you)?)$", re.IGNORECASE)
_WITH_WHAT = re.compile(
    r"^(?:use|take|with) (?:it|that|this|them|the [\w ]{2,20}?),? (?:to|and|for) ", re.IGNORECASE
)
_DRAWN = re.compile(
    rf"(?:^|,\s+)"
    rf"(?:{_MAKES}|put|place|have|(?:it|the \w+|this|that) (?:should|must|ought to) (?:be|become|show))\s+"
    rf"(?:(?:it|this|that|them|{MARK})\s+(?:in)?to\s+)?(?:me\s+)?"
    rf"(?!(?:the|its?|this|that|{_MADE}|new)\b)(?:an? (?:new |real )?{_MADE} of )?(.+)$",
    re.IGNORECASE,
)
"""What is made where a control map is there, so that no picture need be spoken of."""
_PROMPT_END = re.compile(
    r"""
    ,?\s+(?:and\s+)?
    (?:
      (?:whose|(?:with\s+)?(?:her|his|its|their|the)(?:\s+same)?)\s+(?:\w+\s+)?(?:pose|outlines?|edges?|depth|lines)\b
      | in\ the\ same\ pose | (?:that\ |which\ )?follow(?:s|ing)\b | based\ on | using | from\ the
      | with\ the\ (?:same|pose|edges|outlines|depth) | like\ the\ one | as\ a\ response
      | (?:(?:standing|sitting|posed?|moving|looking|just|exactly)\ ){0,2}
        (?:like|with|from|over|along|on|in|to|out\ of)\ (?:it|that|this|them|there|these|those|me|him|her|us)
        (?:\ (?:pose|map|sketch|drawing|layout|image|lines?|edges?))?$
      | for\ (?:me|us)$
      | (?:with|in|of|following)\ (?:the|that|this|its)\ (?:same\ )?
        (?:layout|composition|arrangement|perspective|shape|stance|posture)$
    ).*
    """,
    re.IGNORECASE | re.VERBOSE,
)

_INLINE: dict[str, tuple[str, ...]] = {
    "translation": (
        r"translate\s+(.+?)\s+(?:from\s+\w+\s+)?(?:in)?to\s+\w+",
        r"how (?:do|would|can) (?:you|i|we) say\s+(.+?)\s+in\s+\w+",
        r"what is\s+(.+?)\s+in\s+\w+",
    ),
    "fill-mask": (
        r"(?:what is|which word is|guess|fill in|complete|find)\s+[^:]*:\s*(.+)",
        r"(?:complete|fill in)\s+(.+)",
    ),
    "text-to-speech": (r"(?:say|speak|pronounce)\s+(.+?)(?:\s+(?:aloud|out loud|with .*voice))?",),
}
"""By task: patterns of a step that holds its text without quotation marks."""

_TEXTS = (
    r"(?:texts?|sentences?|words?|paragraphs?|passage|article|caption|description|summary|answer|transcript|"
    r"transcription|translation|explanation|review|reply|response|slogan|quotes?|quotation|phrase|headline|lyrics|script|story|poem|result|output|message|letter|document|page|content|prompt|labels?|names?)"
)
_REFERENCE = re.compile(
    r"(?:it|this|that|these|those|them|both|all|everything|ones?$|"
    r"the (?:original|source|former|latter|whole|lot)\b|"
    rf"(?:the|this|that|these|those|its|my|an?|your|each|any|some)\s+(?:\w+\s+){{0,3}}(?:{_TEXTS}|it|one|version))\b",
    re.IGNORECASE,
)
_REFERS = re.compile(
    r"\b(?:it|this|them|these|those|both|"
    rf"(?:the|this|that|its|your|each|resulting|generated)\s+(?:[\w-]+\s+){{0,2}}?{_TEXTS}|"
    r"the\s+(?:detected|classified|identified|extracted|recogni[sz]ed|found|labell?ed)\s+\w+)\b",
    re.IGNORECASE,
)
QUERY = re.compile(
    r"\b(?:query|question|search(?:ed|ing)? for|look(?:ed|ing)? for|asks?|asked|asking|wants? to know|"
    r"(?<!these )(?<!the )(?<!following )answers?|relevan(?:t|ce) (?:to|for)|respect to)"
    r"\W+(?:\w+\W+){0,2}$",
    re.IGNORECASE,
)
"""What stands before a text that others are to be ranked by."""
_CUT_OUT = re.compile(
    r"\b(?:crop|cut)\s+(?:out\s+)?(?:the|an?|my)\s+(?!image|photo|picture|object|thing|found|detected|box)"
    r"(\w+(?: (?!out\b|from\b|in\b|of\b)\w+)?)\s+(?:out|from|in|of)\b",
    re.IGNORECASE,
)
_DRAWN_FROM = re.compile(
    rf"\b(?:from|based on|out of|using|with|of|for|by) (?:the|that|this|your|its) (?:\w+ )?{_TEXTS}s?\W*$",
    re.IGNORECASE,
)
_FOUND = re.compile(
    r"\b(?:found|detected|(?:that|the|its|this) (?:\w+ )?(?:box|object|thing|detection)|it|them|each|one)\b",
    re.IGNORECASE,
)
_REWRITING = re.compile(
    r"(?:re(?:write|phrase|ply|spond|word)|paraphrase|simplify|improve|correct|fix|explain|answer|expand|"
    r"convert|turn|make (?:it|this|that|them|the))\b",
    re.IGNORECASE,
)

_AMONG = r"\b(?:as|which of|into|between|among|from|one of|labels?|categories|classes|topics?|"
_LABELS = re.compile(
    rf"{_AMONG}whether (?:it|the \w+|this)? ?(?:is|are)(?: about)?)(?: either)?(?: one of)?"
    r"(?:\s+(?:the\s+)?(?:following\s+)?(?:labels|categories|classes|topics))?\s*:?\s+(.+)$",
    re.IGNORECASE,
)
_CHOICE = re.compile(
    r"(?:^|\b(?:whether|if)\s+)(?:is|are|does|do|did|would|could|can)?\b\s*"
    r"(?:it|this|that|they|there|the \w+)?"
    r"(?:\s*\b(?:is|are|shows?|depicts?|contains?|be|looks? (?:more )?like|resembles?))?"
    r"\s+(?:more (?:of|like) )?(an? [\w ,]+ or (?:more (?:of|like) )?an? [\w ]+?)\W*$",
    re.IGNORECASE,
)
_EITHER = re.compile(
    r"^(?:is|are|was|were|does|do|did|should|would|whether|if)\b.*?\s((?:(?!(?:is|are|the|an?)\b)[\w-]+,\s*)*"
    r"(?!(?:is|are|the|an?)\b)[\w-]+,?\s+or\s+[\w-]+)\W*$",
    re.IGNORECASE,
)
"""A question that ends with one word or another ("is it ripe, unripe or rotten")."""
_THING_SOUGHT = re.compile(
    r"^(?:find|locate|spot|where(?:\s+(?:is|are)|['’]s)|detect|point out|look for|search for|mark|pinpoint|"
    r"(?:draw|put) (?:\w+ )?box(?:es)? (?:a?round|on))\s+"
    r"(?:all |every |each |any |some )?(?:of )?(?:the |an? |my )?"
    r"((?!(?:in|on|at)\b)[\w'-]+(?: (?!(?:and|that|which|who|is|are|in|on|at)\b)[\w'-]+){0,2}?)"
    r"(?:\s+(?:in|on|at|from|within|of|here|there)\b.*)?\W*$",
    re.IGNORECASE,
)
_A_THING = r"(?:the|an?|all|any)\s+[\w -]{2,30}?"
_THINGS_SOUGHT = re.compile(
    r"^(?:find|locate|spot|detect|point out|look for|search for|mark|pinpoint|where are)\s+"
    rf"({_A_THING}(?:,\s*{_A_THING})*,?\s+(?:and|or)\s+{_A_THING})"
    r"(?:\s+(?:in|on|at|from|within|here|there)\b.*)?\W*$",
    re.IGNORECASE,
)
_LISTED = r"((?!it\b|this\b|that\b)[\w -]+(?:,\s*[\w -]+)*,?\s+or\s+[\w -]+?)\W*$"
_TOPICS = re.compile(
    rf"\b(?:shows?|depicts?|about|look like|belongs? (?:in|to)|falls? under|"
    rf"(?:tag|label|mark|file)\b.*?\b(?:with|under|by))\s+{_LISTED}",
    re.IGNORECASE,
)
_SOUGHT = re.compile(r"\b(?:look|search|check|scan)\b.{0,20}?\bfor\s+(.+?)\W*$", re.IGNORECASE)
_QUOTED_LABELS = re.compile(
    rf"{_AMONG}is)\b\W[^{MARK[1:-1]}]{{0,30}}?({MARK}(?:[\s,/]*(?:or|and)?\s*{MARK})+)", re.IGNORECASE
)
_BETWEEN_LABELS = re.compile(r"\s*,\s*(?:(?:or|and)\s+)?|\s+(?:or|and)\s+|\s*[/;]\s*|、|或", re.IGNORECASE)


def question(text: str, place: str = "it") -> str | None:
    """The question that a step asks, without the file it is about, which `place` stands for where it must."""
    clause = _FILE_PHRASE.sub("", without_lead_in(re.sub(rf"^.*{MARK}\s*,\s*", "", text) or text))
    match = _QUESTION.search(clause)
    if match is None:
        return None
    words = re.sub(r"\s+", " ", match.group()).strip(" .,;:!?")
    if _HANGS.search(words) and re.search(MARK, text):
        words = f"{words} in {place}"
    return f"{words}?" if not re.search(MARK, words) else None


def asked(text: str) -> str | None:
    """The question of a step that is an order ("find the total in \ue000")."""
    words = re.sub(r"\s+", " ", _FILE_PHRASE.sub("", without_lead_in(text))).strip(" .,:;")
    return words if len(words.split()) > 2 else None


def prompt(text: str) -> str | None:
    """What is to be seen in the picture or video that a step asks for."""
    clause = _WITH_WHAT.sub("", _FOR_ME.sub("", without_lead_in(text)))
    for pattern in _PROMPTS:
        match = pattern.search(clause)
        if match is None:
            continue
        found = _PROMPT_END.sub("", match.group(1)).strip(" .,;:!?")
        if found and not is_reference(found) and not re.search(MARK, found):
            return found
    return None


def drawn(text: str) -> str | None:
    """What is to be made of a control map ("draw a samurai standing like that", "make it a castle")."""
    if found := prompt(text):
        return found
    match = _DRAWN.search(_FILE_PHRASE.sub("", _WITH_WHAT.sub("", without_lead_in(text))))
    if match is None:
        return None
    words = _PROMPT_END.sub("", match.group(1).split(",")[0]).strip(" .,;:!?")
    return words if words and not is_reference(words) else None


def heard(text: str) -> str | None:
    """What is to be heard in what a step adds to something ("add a sound of wind to the clip")."""
    match = _HEARD.search(text)
    return match.group(1).strip(" .,;:!?") if match else None


def scene(text: str) -> str | None:
    """What is to happen in the video that a step makes of a file."""
    return prompt(re.sub(r"\s+", " ", _FILE_PHRASE.sub(" ", text)))


def instruction(text: str, noun: str = "the image") -> str | None:
    """What is to be done with a file (`noun`), in the step's own words; None where any variation will do."""
    clause = re.sub(rf"\s*\b(?:using|with|and)\s+(?:the |a )?mask\s*{MARK}", "", without_lead_in(text))
    clause = _PLACE.sub("", clause)
    clause = re.sub(r"\s+", " ", _FILE_PHRASE.sub(f" {noun} ", clause)).strip()
    return None if _ANY_VARIATION.search(clause) else clause


def inline_text(text: str, task: str) -> str | None:
    """A text that stands in the step without quotation marks ("translate good morning into German")."""
    clause = without_lead_in(text)
    for pattern in _INLINE.get(task, ()):
        match = re.fullmatch(pattern, clause, re.IGNORECASE)
        if match and not is_reference(match.group(1)) and not re.search(MARK, match.group(1)):
            return match.group(1).strip()
    return None


def refers_to_text(text: str) -> bool:
    """Whether the words of a step point to a text somewhere ("a story about it", "from the caption")."""
    return bool(_REFERS.search(text))


def refers_to_found(text: str) -> bool:
    """Whether the words of a step point to something that was found before ("the largest object")."""
    return bool(_FOUND.search(text))


def cut_out(text: str) -> str | None:
    """What a step wants cut out of an image ("crop the red car out of it"); None if it names nothing."""
    match = _CUT_OUT.search(text)
    return match.group(1).lower() if match else None


def subject(text: str) -> str:
    """What a step is about: its words after the last preposition ("the weather in Paris"), or all of them."""
    clause = without_lead_in(text)
    match = re.search(r".*\b(?:in|at|for|of|on|about|from|to|with)\s+(.+)$", clause, re.IGNORECASE)
    return match.group(1) if match else clause


def is_rewriting(text: str) -> bool:
    """Whether a step asks for a text to be worked on, so that the text alone would not say what is wanted."""
    return bool(_REWRITING.match(without_lead_in(text)))


def is_reference(words: str) -> bool:
    """Whether the words point to a text rather than being one ("it", "the caption")."""
    return bool(_REFERENCE.match(words.strip()))


def labels(text: str) -> list[str]:
    """The labels that a step lists; a list of fewer than two is none."""
    words = _FILE_PHRASE.sub(" ", without_lead_in(text)).strip()
    match = _LABELS.search(words)
    if match is not None:
        return split_labels(match.group(1))
    choice = _CHOICE.search(words) or _TOPICS.search(words) or _EITHER.search(words) or _SOUGHT.search(words)
    return (
        [re.sub(r"^(?:more (?:of|like) )?an? ", "", label) for label in split_labels(choice.group(1))]
        if choice
        else []
    )


def thing_sought(text: str) -> str | None:
    """The kind of thing that a step looks for in a picture ("where are the fire hoses"), in the singular."""
    words = re.sub(r"\s+", " ", _FILE_PHRASE.sub(" ", without_lead_in(text))).strip()
    match = _THING_SOUGHT.search(words)
    if match is None or is_reference(match.group(1)):
        return None
    return re.sub(r"(?<=[^s])s$", "", match.group(1).strip().lower())


def things_sought(text: str) -> list[str]:
    """The kinds of things that a step looks for, if there are several ("mark the hammer and the saw")."""
    words = re.sub(r"\s+", " ", _FILE_PHRASE.sub(" ", without_lead_in(text))).strip()
    match = _THINGS_SOUGHT.match(words)
    return (
        [re.sub(r"^(?:the|an?|all|any)\s+", "", thing) for thing in split_labels(match.group(1))]
        if match
        else []
    )


def offers_choice(text: str) -> bool:
    """Whether a step asks which of several things something is ("is it a cat or a dog")."""
    words = _FILE_PHRASE.sub(" ", without_lead_in(text)).strip()
    choice = _CHOICE.search(words) or _TOPICS.search(words)
    several = _EITHER.search(words)
    if several is not None and len(split_labels(several.group(1))) > 2:
        return True
    return choice is not None and len(split_labels(choice.group(1))) > 1


def drawn_from_text(text: str) -> bool:
    """Whether what a step wants made is what a text says ("something new from that caption")."""
    return bool(_DRAWN_FROM.search(text))


def quoted_labels(text: str) -> list[str]:
    """The marks of labels that stand in quotation marks ('as "cat" or "dog"')."""
    match = _QUOTED_LABELS.search(text)
    return re.findall(MARK, match.group(1)) if match else []


def split_labels(text: str) -> list[str]:
    """A list in words as a list: "sports, politics or science"."""
    found = [label.strip(" .:\"'“”") for label in _BETWEEN_LABELS.split(text)]
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
