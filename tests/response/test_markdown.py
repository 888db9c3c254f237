"""Answers as Markdown: texts that were read are shown letter by letter."""

import re
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from jarvis_agent.core.types import Resource, Task, TaskResult
from jarvis_agent.response.markdown import to_markdown

MARKDOWN = MarkdownIt("commonmark")


def result(text: str, output: Any = None) -> TaskResult:
    part = Resource(kind="text", text=text)
    return TaskResult(task=Task(task="image-to-text", id=0), status="ok", resources=[part], output=output)


def shown(markdown: str) -> str:
    """What a page that takes HTML shows of Markdown, without white space."""
    page = re.sub(r"<[^>]*>", "", MARKDOWN.render(markdown))
    for entity, letter in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        page = page.replace(entity, letter)
    return "".join(page.split())


def test_the_path_of_a_result_is_left_for_its_url() -> None:
    path = "/home/my_name/outputs/0-canny_map.png"
    made = Resource(kind="image", path=Path(path))
    task, output = Task(task="canny-control", id=0), {"path": path, "width": 8}
    edges = TaskResult(task=task, status="ok", resources=[made], output=output)
    answer = f"Here is the canny edge image: {path}"
    assert to_markdown(answer, [edges]) == answer


def test_what_an_error_quotes_of_a_picture_is_no_link() -> None:
    read = "no line of the text fits the question: [click](http://example.org)"
    failed = TaskResult(task=Task(task="document-question-answering", id=0), status="failed", error=read)
    assert "<a " not in MARKDOWN.render(to_markdown(f"It failed: {read}", [failed]))


@pytest.mark.parametrize(
    "text",
    [
        "#include <iostream>",
        "def __init__(self, *args, **kwargs):",
        "<b>x</b> and <script>y</script>",
        "[a](javascript:x) ![b](http://c.d/e.png)",
        "| a | b |\n|---|---|",
        "# Title\n- one\n+ two\n1. three\n> four\n===",
        "AT&amp;T ~~gone~~ `code` a\\b $x_1$",
        "use `ls` and <tag>",
    ],
)
def test_a_text_that_was_read_is_shown_as_it_is(text: str) -> None:
    answer = f"The text reads:\n{text}"
    assert shown(to_markdown(answer, [result(text)])) == "".join(answer.split())
    listed = f"- The text in a.png reads: {text.splitlines()[0]}\n- It is **small**."
    page = MARKDOWN.render(to_markdown(listed, [result(text)]))
    assert page.startswith("<ul>")
    assert "<strong>small</strong>" in page


def test_our_own_markdown_code_and_paths_are_left_alone() -> None:
    read = [result("a_b_c", {"lines": ["**bold**", "*"]})]
    same = "**Two** files in /tmp/a_b_c/x.png:\n- `a_b_c`\n```\na_b_c\n```\n* [link](u_v_w)"
    assert to_markdown(same, read) == same
    assert to_markdown("It says **bold**: a_b_c", read) == r"It says \*\*bold\*\*: a\_b\_c"
    assert to_markdown("It says a_b_c", []) == "It says a_b_c"
    assert to_markdown("It _says_ a_b_c", read) == r"It _says_ a\_b\_c"
