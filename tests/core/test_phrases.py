"""The fixed texts of reports, in English and Chinese."""

import ast
import string
from dataclasses import asdict
from pathlib import Path

from jarvis_agent.core.notes import Note, limit_of
from jarvis_agent.core.phrases import CHINESE, ENGLISH, phrases
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.selection.ranking import WEIGHTS

UNTRANSLATED = {"", "{reason}", "{reasons}"}
TESTS = Path(__file__).parents[1]


def test_reports_are_in_chinese_for_chinese_requests_and_else_in_english() -> None:
    for request in (
        "描述 a.jpg",
        "描述照片1.jpg",
        "照片.jpg",
        "OCR 一下 page.png",
        "用 YOLO 检测 照片/a.jpg",
    ):
        assert phrases(request) is CHINESE
    for request in (
        "Describe a.jpg",
        "この画像は何ですか",
        "",
        "Describe 照片.jpg",
        "What is in 照片/cat.jpg?",
        "How wide are the photos in 旅行照片?",
        "Was ist auf 我的照片.jpg?",
    ):
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


def test_a_note_is_translated_with_its_values_and_the_words_of_users_and_libraries_are_not() -> None:
    absent = Note("it is not on this machine, and offline mode is on")
    failed = Note("OSError", detail="[Errno 2] No such file or directory: 'x {0}'", advice="look")
    both = (("a/b", absent), ("c/d", failed))
    reasons = [Note("{model}: {reason}", model=model, reason=reason) for model, reason in both]
    for note, english, chinese in (
        (
            Note("no task uses {file}", file="“a {x}.jpg”"),
            "no task uses “a {x}.jpg”",
            "没有任务用到“a {x}.jpg”",
        ),
        (
            Note("all {number} candidates failed: {reasons}", number=2, reasons=reasons),
            "all 2 candidates failed: a/b: it is not on this machine, and offline mode is on; "
            "c/d: OSError: [Errno 2] No such file or directory: 'x {0}'. What helps: look",
            "2 个候选模型都失败了：a/b：它不在这台机器上，而现在是离线模式；"
            "c/d：OSError: [Errno 2] No such file or directory: 'x {0}'。可以这样解决：look",
        ),
        (
            Note("its {number:,} bytes are more than may be downloaded", number=5000, advice=limit_of("X")),
            "its 5,000 bytes are more than may be downloaded. What helps: X sets this limit",
            "它有 5,000 字节，超过了允许下载的大小。可以这样解决：这个上限由 X 设置",
        ),
        (Note("no words for {this}", this="it"), "no words for it", "no words for it"),
        ("no note", "no note", "no note"),
    ):
        assert note == english == ENGLISH.translated(note)
        assert CHINESE.translated(note) == chinese


def test_every_template_of_a_note_is_translated_and_every_translation_is_of_a_template() -> None:
    modules = [ast.parse(path.read_text("utf-8")) for path in (TESTS.parent / "jarvis_agent").rglob("*.py")]
    nodes = [node for module in modules for node in ast.walk(module)]
    literals = {node.value for node in nodes if isinstance(node, ast.Constant)}
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    notes = [call.args[0] for call in calls if getattr(call.func, "id", "") == "Note"]
    templates = {node.value for node in notes if isinstance(node, ast.Constant)}
    templates |= {f"largest lead: {factor}" for factor in WEIGHTS}
    assert templates - CHINESE.sentences.keys() - UNTRANSLATED == set()
    assert CHINESE.sentences.keys() - literals - templates == set()
    for english, chinese in CHINESE.sentences.items():
        assert sorted(_fields(english)) == sorted(_fields(chinese))


def _fields(template: str) -> list[tuple[str, str]]:
    """The names of the values in a template, with their formats."""
    parsed = string.Formatter().parse(template)
    return [(name, form or "") for _, name, form, _ in parsed if name is not None]
