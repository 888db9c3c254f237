"""What the words of a request say about how a task is meant."""

from typing import Any

import pytest

from jarvis_agent.core.request import RunContext
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.selection.hints import detect_script, missing_language, task_hints

DEMO = (
    "Read the text in examples/page.png aloud, then transcribe the recording. "
    "Also tell me what animal is in examples/cat.jpg and make a canny edge image of it."
)
POSE = (
    "Please generate an image where a girl is reading a book, and her pose is the same as the boy in the "
    "image example.jpg, then please describe the new image with your voice."
)
TWO = "In a.jpg, what's written on the wall, and in b.jpg, what is the animal?"
MADE = "Read the text in page.png aloud and generate an image of a cat; describe the generated image"

READ = [
    ("Help me read the image example.jpg.", "example.jpg"),
    (DEMO, "examples/page.png"),
    (TWO, "a.jpg"),
    ("Read page.png and describe cat.jpg", "page.png"),
    ("Read a.jpg and b.jpg", "b.jpg"),
    ("Read the text on both a.jpg and b.jpg", "/home/me/b.jpg"),
    ("Here is page.png. Read it to me.", "page.png"),
    ("Read out loud what is in page.png", "page.png"),
    ("What does it say? page.png", "page.png"),
    ("What does the sign in a.jpg say?", "a.jpg"),
    ("What text is in page.png?", "page.png"),
    ("Transcribe the page scan.png", "scan.png"),
    ("extract all the text from invoice.png", "invoice.png"),
    ("Can you get me the words on this poster? p.jpg", "p.jpg"),
    ("OCR this", "x.png"),
    ("Make a canny image of page.png and read its text", "<resource>-0"),
    ("读一下图片 example.jpg", "example.jpg"),
    ("a.jpg 上写着什么？", "a.jpg"),
    ("识别 a.jpg 中的文字", "a.jpg"),
]
DESCRIBE = [
    ("In e2.jpg, what's the animal and what's it doing?", "e2.jpg"),
    ("Describe this picture", "a.jpg"),
    ("Describe this picture in as much detail as possible. example.jpg", "example.jpg"),
    (DEMO, "examples/cat.jpg"),
    (POSE, "<resource>-1"),
    (TWO, "b.jpg"),
    (MADE, "<resource>-2"),
    ("Read page.png and describe cat.jpg", "cat.jpg"),
    ("Based on the pose of example1.jpg and the description of example2.jpg, make an image.", "example2.jpg"),
    ("Describe cat.jpg and read it aloud", "cat.jpg"),
    ("Describe the image and read the image description aloud. a.jpg", "a.jpg"),
    ("read the caption of cat.jpg aloud", "cat.jpg"),
    ("transcribe speech.wav and describe a.png", "a.png"),
    ("A boy is reading a newspaper in p.jpg, right?", "p.jpg"),
    ("Given images A: a.jpg, B: b.jpg, C: c.jpg, how many zebras are there in these pictures?", "b.jpg"),
    ("Make an image of a cat with the text hello on it, then describe it", "<resource>-0"),
    ("请描述 a.jpg 并朗读出来", "a.jpg"),
    ("用文字描述 a.jpg", "a.jpg"),
    ("图里有什么动物 a.jpg", "a.jpg"),
]


@pytest.mark.parametrize(("request_", "image"), READ)
def test_text_is_to_be_read(request_: str, image: str) -> None:
    assert wanted(request_, image) == {"ocr": True}


@pytest.mark.parametrize(("request_", "image"), DESCRIBE)
def test_a_description_is_wanted(request_: str, image: str) -> None:
    assert wanted(request_, image) == {"ocr": False}


def wanted(request: str, image: Any) -> dict[str, Any]:
    return task_hints(Task(task="image-to-text", id=0, args={"image": image}), RunContext(request=request))


def test_other_tasks_have_no_hints() -> None:
    assert (
        task_hints(Task(task="image-classification", id=0), RunContext(request="Read the text in a.png"))
        == {}
    )


def test_without_a_request_nothing_is_known() -> None:
    assert wanted("", "a.png") == {}


@pytest.mark.parametrize("image", [None, ["a.png", "b.png"], {"path": "a.png"}])
def test_an_image_of_another_form_is_about_the_whole_request(image: Any) -> None:
    assert wanted("Read the text in these pictures", image) == {"ocr": True}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("你好", "zh"),
        ("こんにちは世界", "ja"),
        ("안녕", "ko"),
        ("Hello", ""),
        ("Привет", ""),
        ("123 !?", None),
        ("", None),
    ],
)
def test_letters_tell_the_language(text: str, language: str | None) -> None:
    assert detect_script(text) == language


@pytest.mark.parametrize(
    ("known", "task", "args", "missing"),
    [
        (["en"], "text-to-speech", {"text": "你好，世界"}, "zh"),
        (["en", "zh"], "text-to-speech", {"text": "你好，世界"}, None),
        (["zh"], "text-to-speech", {"text": "Hello"}, "it knows only zh"),
        (["zh"], "text-to-speech", {"text": "<resource>-0"}, None),
        ([], "text-to-speech", {"text": "你好"}, None),
        (["en"], "text-to-speech", {}, None),
        (["en", "de"], "translation", {"text": "Hello", "tgt_lang": "French"}, "fr"),
        (["en", "fr"], "translation", {"text": "Hello", "src_lang": "en", "tgt_lang": "fr"}, None),
        (["en", "fr"], "translation", {"text": "你好", "tgt_lang": "fr"}, "zh"),
        (["en", "fr"], "translation", {"text": "Hello", "tgt_lang": "Klingon"}, None),
        (["en"], "image-classification", {"image": "你好.png"}, None),
        (["en"], "visual-question-answering", {"image": "a.png", "text": "这是什么？"}, "zh"),
    ],
)
def test_a_model_must_know_the_languages_of_its_texts(
    known: list[str], task: str, args: dict[str, Any], missing: str | None
) -> None:
    gap = missing_language(known, Task(task=task, id=0, args=args), TASKS[task])
    assert gap is None if missing is None else gap is not None and gap.endswith(missing)


def test_a_name_that_runs_on_from_chinese_words_is_known_from_the_files_of_the_request():
    files = tuple(Resource(kind="image", name=f"照片{i}.jpg") for i in (1, 2))
    brief = RunContext("描述照片1.jpg，读出照片2.jpg里的文字", files)
    asked = [task_hints(Task(task="image-to-text", id=0, args={"image": f.name}), brief) for f in files]
    assert asked == [{"ocr": False}, {"ocr": True}]
