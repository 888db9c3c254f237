"""What is asked for again: "the same for b.jpg", "and in Italian?".

spelt_out(RunContext("and in Italian?", turns=(ChatTurn("translate 'hello' into French", "Bonjour"),)))
# RunContext("translate 'hello' into Italian")
repeated("Caption \\ue000. Do the same with \\ue001.", marked)      # "Caption \\ue000. Caption \\ue001."
"""

from __future__ import annotations

import mimetypes
import re
from dataclasses import replace
from functools import lru_cache

from jarvis_agent.core.languages import LANGUAGES
from jarvis_agent.core.request import RunContext, mentions
from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.planning.offline.chinese_rules import load_rules
from jarvis_agent.planning.offline.lengths import MOST_READ
from jarvis_agent.planning.offline.marks import MARK, Mark, Marked, mark
from jarvis_agent.planning.offline.steps import MOST_STEPS

MOST_REPEATS = 20
"""Earlier turns of which each may be the last one done again."""

_LEAD = (
    r"\W*(?:(?:and|now|ok(?:ay)?|then|great|nice|cool|good|thanks|please|perfect|or|also|so|"
    r"(?:can|could|would) you)\b\W*)*"
)
_END = r"\W*(?:(?:too|as well|also|again|please|now|thanks|instead)\b\W*)*$"
_SAME = (
    r"(?:(?:do|make|run|repeat|try|apply)\s+)?(?:(?:exactly |just )?the same|same|that|this|it)"
    r"(?:\s+(?:thing|again|task|steps?))*\s+(?:again\s+)?(?:for|with|to|on)\s+"
)
_FILES = rf"(?P<files>(?:(?:the|my|this)\s+(?:\w+\s+)?)?{MARK}(?:(?:[\s,、和]|\band\s)+{MARK})*)"
_ASKED_AGAIN = (
    re.compile(rf"^{_LEAD}{_SAME}{_FILES}{_END}", re.IGNORECASE),
    re.compile(rf"^{_LEAD}(?:what|how)\s+about\s+{_FILES}{_END}", re.IGNORECASE),
    re.compile(
        rf"^\W*(?:那|那么|再|然后|还有|对|给|把|用)*\s*{_FILES}\s*(?:也|同样|再|照样|照着)+(?:给我|帮我|要)*"
        r"(?:来|做|弄|处理|搞|整)?(?:一[遍次下份]|一样的?|同样的?(?:处理|操作)?)?[\W呢吧啊呀]*$"
    ),
    re.compile(rf"^\W*(?:那|那么|还有)*(?:[这那]张图?片?)?\s*{_FILES}\s*呢\W*$"),
)
_WITHIN = re.compile(
    r"(?:[.!?;]|,(?:\s+(?:and|then))?|\s+and(?:\s+then)?)\s+(?:please\s+|then\s+)?"
    rf"(?:(?:do|repeat)\s+)?the same(?:\s+thing)?\s+(?:again\s+)?(?:for|with|to|on)\s+{_FILES}",
    re.IGNORECASE,
)


def spelt_out(brief: RunContext) -> RunContext:
    """A request that wants the last one done again, to another file or language, with all that it hints at.

    The turn that it repeats is no longer among the turns then, so that nothing of it is taken for "it".
    """
    if not brief.turns or not _is_hint(brief):
        return brief
    *earlier, last = brief.turns
    before = spelt_out(RunContext(last.request, files=last.resources, turns=tuple(earlier[-MOST_REPEATS:])))
    if request := _with_language(brief.request, before.request):
        files = (*brief.files, *before.files)
        return replace(brief, request=request, files=files, turns=tuple(earlier))
    request = _with_files(brief, before.request)
    return replace(brief, request=request, turns=tuple(earlier)) if request else brief


def _is_hint(brief: RunContext) -> bool:
    """Whether a request may be one that only says for what the last one is to be done again."""
    if len(brief.request) > MOST_READ:
        return False
    return any(hint.match(brief.request) for _, hint in _languages()) or _other_files(brief) is not None


def repeated(text: str, marked: Marked) -> str:
    """A marked text in which the steps that are to be done again stand twice."""
    match = _WITHIN.search(text)
    if match is None:
        return text
    before = text[: match.start()]
    files = re.findall(MARK, match["files"])
    kind = marked.marks[files[0]].kind
    known = [c for c in re.findall(MARK, before) if marked.marks[c].is_file and marked.marks[c].kind == kind]
    if not known:
        return text
    again = f"{before}. {_about_others(before, list(dict.fromkeys(known)), files)}{text[match.end() :]}"
    return again if len(again) <= 2 * MOST_READ else text


def _about_others(text: str, names: list[str], others: list[str]) -> str:
    """A text that speaks of other files where it speaks of those of these names."""
    first, *more = names
    for name in more:
        text = re.sub(rf"(?:[\s,、和]|\band\s)*{re.escape(name)}", "", text)
    return text.replace(first, " and ".join(others), MOST_STEPS)


def _other_files(brief: RunContext) -> list[Mark] | None:
    """The files of a request that names only those to which the last one is to be done again; else None."""
    marked = mark(brief.request, brief.files)
    match = next((match for asks in _ASKED_AGAIN if (match := asks.match(marked.text))), None)
    return marked.within(match["files"]) if match else None


def _with_files(brief: RunContext, request: str) -> str | None:
    """The last request about the files that this one names."""
    files = _other_files(brief)
    if files is None:
        return None
    names = [name for name in mentions(request) if _is_like(name, files[0].kind)]
    values = [mark.value for mark in files]
    return _about_others(request, names, values) if names else f"{request} {' and '.join(values)}"


def _is_like(name: str, kind: str) -> bool:
    """Whether a file is of a kind, by its ending."""
    guessed = (mimetypes.guess_type(name)[0] or "text").partition("/")[0]
    return guessed == kind or (guessed not in MEDIA and kind not in MEDIA)


def _with_language(asked: str, request: str) -> str | None:
    """The last request with another language, where this one names nothing else."""
    for names, hint in _languages():
        match = hint.match(asked)
        known = list(re.finditer(names, request, re.IGNORECASE))
        if match and known:
            return f"{request[: known[-1].start()]}{match['language']}{request[known[-1].end() :]}"
    return None


@lru_cache(maxsize=1)
def _languages() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Names of languages in English and in Chinese, and requests that hold nothing else."""
    english = rf"\b(?:{'|'.join(language.name for language in LANGUAGES)})\b"
    chinese = load_rules().language
    return (
        (
            english,
            re.compile(
                rf"^{_LEAD}(?:(?:what|how) about\s+)?(?:(?:do\s+)?the same\s+)?"
                rf"(?:in(?:to)?\s+|to\s+)?(?P<language>{english}){_END}",
                re.IGNORECASE,
            ),
        ),
        (
            chinese,
            re.compile(
                rf"^\W*(?:那|那么|换|再|来|个|用|翻?成|要|还有)*(?P<language>{chinese})"
                r"(?:的|版|怎么[说讲写])*[\W呢吧啊呀]*$"
            ),
        ),
    )
