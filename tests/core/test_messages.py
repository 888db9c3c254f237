"""The fixed texts of reports, in English and Chinese."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from jarvis_agent.core.messages import CHINESE, ENGLISH, phrases
from jarvis_agent.core.tasks.registry import TASKS

TESTS = Path(__file__).parents[1]


def test_reports_are_in_chinese_for_chinese_requests_and_else_in_english() -> None:
    assert phrases("描述 a.jpg") is CHINESE
    for request in ("Describe a.jpg", "この画像は何ですか", ""):
        assert phrases(request) is ENGLISH


def test_both_languages_have_the_same_placeholders() -> None:
    english, chinese = asdict(ENGLISH), asdict(CHINESE)
    texts = {name: (text, chinese[name]) for name, text in english.items() if isinstance(text, str)}
    for table in ("statements", "nouns"):
        assert english[table].keys() == chinese[table].keys()
        texts |= {name: (text, chinese[table][name]) for name, text in english[table].items()}
    for name, pair in texts.items():
        fields = [{field for _, field, *_ in string.Formatter().parse(text)} - {None} for text in pair]
        assert fields[0] == fields[1], name


def test_tasks_that_have_their_own_sentence_or_noun_exist() -> None:
    kinds = {kind for spec in TASKS.values() for kind in spec.outputs}
    assert ENGLISH.statements.keys() <= TASKS.keys() | {"reading", "lines"}
    assert ENGLISH.nouns.keys() - TASKS.keys() == kinds | {"file", "any"}


def test_notes_and_reasons_are_translated_and_the_words_of_users_and_libraries_are_not() -> None:
    for text, expected in (
        ("no task uses “a text.jpg”", "没有任务用到“a text.jpg”"),
        (
            "“Pay”: refund takes several arguments (id, sum), which a language model must fill in; x/y: gone",
            "“Pay”: refund 有多个参数（id, sum），需要语言模型来填写; x/y: gone",
        ),
        (
            "text-to-speech is left out: it depends on summarization, which is left out",
            "省略了 text-to-speech：它依赖被省略的 summarization",
        ),
        (
            "this plan is a guess: “a; b: c” may mean something else",
            "这个计划是猜测：“a; b: c”可能是别的意思",
        ),
        ("“Hello; you” asks for nothing that a task does", "“Hello; you”没有要求任何任务能做的事"),
        (
            "only the beginning and the end of the long request were read; put texts into files",
            "请求太长，只读了开头和结尾；请把文字放进文件",
        ),
        (
            "all 2 candidates failed: a/b: it is not on this machine, and offline mode is on; "
            "c/d: OSError: [Errno 2] No such file or directory: 'x {0}'",
            "2 个候选模型都失败了：a/b: 它不在这台机器上，而现在是离线模式; "
            "c/d: OSError: [Errno 2] No such file or directory: 'x {0}'",
        ),
        ("RuntimeError: the model failed: no memory", "RuntimeError: the model failed: no memory"),
    ):
        assert CHINESE.translated(text) == expected
        assert ENGLISH.translated(text) == text


def test_the_translated_sentences_are_those_that_the_code_says() -> None:
    known = {said for path in (TESTS.parent / "jarvis_agent").rglob("*.py") for said in _literals(path)}
    descriptions = {arg.description for spec in TASKS.values() for arg in spec.inputs}
    for sentence in CHINESE.sentences:
        for piece in re.split(r"[^\w{]*{\w+}[^\w{]*", sentence):
            words = piece.strip(" .:;()'`\"“”")
            assert any(words in said for said in known | descriptions), sentence


def _literals(path: Path) -> Iterator[str]:
    """The texts in a module; adjacent ones are one text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
