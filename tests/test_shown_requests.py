"""Every request that the project shows as an example is planned right without a language model.

The page's examples run with the starter models, in each language. The code and the commands of the README and
the documentation run in test_docs.py, the scripts in test_examples.py, the notebooks in test_notebook.py.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_blocks import blocks_of

from jarvis_agent import JarvisAgent, OfflinePlanner, Plan, Settings
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.phrases import CHINESE, ENGLISH
from jarvis_agent.core.types import Resource
from jarvis_agent.media.detect import kind_by_name

pytestmark = pytest.mark.starter

ROOT = Path(__file__).parent.parent
RUN_ELSEWHERE = {"python", "console", "powershell"}
"""The languages of blocks that test_docs.py runs."""

_START = r'(?:\bjarvis(?: ask)? |\b(?:invoke|stream|plan|of)\(|"input": )'
_CALL = re.compile(rf'{_START}"(?P<request>[^"\n…]* [^"\n…]+)"(?P<rest>.*)')
_FILE = re.compile(r'(?:--file |"files": \["?)([\w./-]+\.\w+)')
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”')


Shown = Iterator[tuple[str, list[str]]]
"""Requests with the names of their files."""


def calls_in(text: str) -> Shown:
    """Requests in commands and code, with their files; those that are a part of a chat have none."""
    for call in _CALL.finditer(text):
        if files := _FILE.findall(call["rest"]) or mentions(call["request"]):
            yield call["request"], files


def shown_in_pages() -> Shown:
    """Requests in the prose of pages, which name a file, and in blocks that are not run."""
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("[en]*s/*.md")):
        prose = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        quoted = ("".join(found) for found in _QUOTED.findall(" ".join(prose.split())))
        yield from ((text, files) for text in quoted if " " in text and (files := mentions(text)))
        for block in blocks_of(page):
            if block.lang not in RUN_ELSEWHERE:
                yield from calls_in(block.code)


def shown_in_the_program() -> Shown:
    """Requests in help texts, messages and docstrings."""
    for top in ("jarvis_agent", "tools"):
        for file in (ROOT / top).rglob("*.py"):
            yield from calls_in(file.read_text("utf-8"))
    examples = (*ENGLISH.examples[1:], *CHINESE.examples[1:])
    yield from ((request, mentions(request)) for request in examples)


PLANNER = OfflinePlanner(settings=Settings(offline=True))
READ_AND_TRANSCRIBE = ["image-to-text", "text-to-speech", "automatic-speech-recognition"]

TASKS_OF: dict[str, list[str]] = {
    "Describe the image photo.jpg": ["image-to-text"],
    "描述图片 photo.jpg": ["image-to-text"],
    "Read the text in page.png aloud, then transcribe the recording": READ_AND_TRANSCRIBE,
    "朗读 page.png 里的文字，然后把录音转成文字": READ_AND_TRANSCRIBE,
    "Summarize report.pdf and read it aloud": ["summarization", "text-to-speech"],
    "Describe cat.jpg and read the caption aloud": ["image-to-text", "text-to-speech"],
    "Describe a.jpg": ["image-to-text"],
    "Describe it": ["image-to-text"],
    "What is in a.jpg?": ["image-classification"],
    "What is in cat.jpg?": ["image-classification"],
    "What animal is in examples/cat.jpg?": ["image-classification"],
    "Transcribe meeting.m4a": ["automatic-speech-recognition"],
    "What animal is in this picture?": ["image-classification"],
    "How many objects are in examples/street.jpg?": ["object-detection"],
    "How many cats are in a.jpg?": ["object-detection"],
    "How many cats are there?": ["object-detection"],
    "Find the zebras in z.jpg": ["object-detection"],
    "How many cats are in cat.jpg?": ["object-detection"],
    "Transcribe a.wav": ["automatic-speech-recognition"],
    "Transcribe speech.wav": ["automatic-speech-recognition"],
}
"""The tasks of each request, in their order."""


def plan(request: str, files: list[str]) -> Plan:
    """The plan of a request whose files exist."""
    known = [Resource(kind=kind_by_name(name), path=ROOT / name, name=name) for name in files]
    return PLANNER.invoke({"input": request, "files": known})


def test_every_shown_request_is_planned_as_it_says() -> None:
    shown = dict([*shown_in_pages(), *shown_in_the_program()])
    planned = {text: plan(text, files) for text, files in shown.items()}
    assert {text: [task.task for task in made.tasks] for text, made in planned.items()} == TASKS_OF
    assert not {text: made.removed for text, made in planned.items() if made.removed}


PAGE_TASKS = {
    "example_look": ["image-classification", "canny-control"],
    "example_read": READ_AND_TRANSCRIBE,
    "example_hear": ["automatic-speech-recognition"],
    "example_speak": ["text-to-speech"],
}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JarvisAgent]:
    """An agent without a language model; it keeps its models loaded for all examples."""
    settings = Settings(offline=True, output_dir=tmp_path_factory.mktemp("outputs"))
    with JarvisAgent("none", settings=settings) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh-CN"])
@pytest.mark.parametrize("name", PAGE_TASKS)
def test_an_example_of_the_page_does_all_that_it_says(agent: JarvisAgent, name: str, language: str) -> None:
    page = pytest.importorskip("jarvis_agent.interfaces.ui.page")
    assert PAGE_TASKS.keys() == page._EXAMPLE_TASKS.keys()
    file, tasks = page._EXAMPLE_TASKS[name]
    assert tasks == set(PAGE_TASKS[name])
    files = [str(ROOT / "examples" / file)] if file else []
    run = agent.invoke({"input": page.views.TEXTS[language][name], "files": files})
    assert [task.task for task in run.plan.tasks] == PAGE_TASKS[name]
    assert run.plan.notes == []
    assert {result.status for result in run.results} == {"ok"}, run.answer
