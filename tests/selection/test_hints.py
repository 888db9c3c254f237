"""What the words of a request say about a task beyond its arguments."""

from typing import Any

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.text import detect_script
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.selection.purpose import missing_language, task_hints

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
    ("Lies mir den Text aus page.png vor.", "page.png"),
    ("Lis-moi le texte de page.png", "page.png"),
    ("Léeme el texto de page.png", "page.png"),
    ("Прочитай текст на page.png", "page.png"),
    ("page.png のテキストを読んで", "page.png"),
    ("Read the text in page.png and summarise it", "page.png"),
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
    ("Describe example2.jpg in a sentence and read the text in it.", "example2.jpg"),
    ("Beschreibe cat.jpg und lies es vor", "cat.jpg"),
]


def hinted(request: str, image: Any, *files: str, **args: Any) -> dict[str, Any]:
    context = RunContext(request=request, files=tuple(Resource(kind="image", name=name) for name in files))
    return task_hints(Task(task="image-to-text", id=0, args={"image": image, **args}), context)


def test_the_request_decides_between_text_and_description() -> None:
    asked: list[tuple[str, Any, bool]] = [(request, image, True) for request, image in READ]
    asked += [(request, image, False) for request, image in DESCRIBE]
    whole = "Read the text in these pictures"
    asked += [(whole, image, True) for image in (None, ["a.png", "b.png"], {"path": "a.png"})]
    wrong = [(request, image) for request, image, ocr in asked if hinted(request, image) != {"ocr": ocr}]
    assert wrong == []


def test_the_argument_of_the_task_takes_precedence_over_the_request() -> None:
    """Each task decides for itself; "read" is not translated."""
    texts = {
        "read": True,
        " READ ": True,
        "read the text": True,
        "a caption": False,
        "What does it say?": False,
    }
    for request in ("", "Describe a.png", "Lies mir den Text vor", "读一下图片"):
        assert {text: hinted(request, "a.png", text=text)["ocr"] for text in texts} == texts


def test_of_a_long_request_only_the_ends_are_read() -> None:
    filler = "Some words. " * 1_000
    requests = [f"Read a.png. {filler}", f"{filler}. Read a.png", f"{filler}Read a.png. {filler}"]
    assert [hinted(request, "a.png")["ocr"] for request in requests] == [True, True, False]
    assert not hinted("", "a.png", text=f"{filler}read{filler}")["ocr"]


def test_a_request_says_which_feelings_and_which_length_are_asked_for() -> None:
    def asked(task: str, request: str, text: str = "<resource>-0") -> dict[str, Any]:
        return task_hints(Task(task=task, id=0, args={"text": text}), RunContext(request=request))

    for request, text, labels in (
        ("Is the review 'So sad' positive or negative?", "So sad", ["positive", "negative"]),
        ("Transcribe it and tell me if she is happy or upset", "<resource>-0", ["happy", "upset"]),
        ("“太差了”是好评还是差评？", "太差了", ["好评", "差评"]),
        ("What is the mood of this?", "Fine", ["positive", "negative"]),
        ("Ist das positiv?", "Gut", ["positive", "negative"]),
        ("这条评论的情绪怎么样？", "很好", ["正面", "负面"]),
        ("Is “I am happy, not sad” spam?", "I am happy, not sad", []),
        ("这是垃圾邮件吗？", "很好", []),
    ):
        assert asked("text-classification", request, text) == {"labels": labels}, request
    assert asked("text-classification", "") == {}
    for request, length in (
        ("Summarize a.txt in one sentence.", "in one sentence"),
        ("Summarise it in at most 50 words", "in at most 50 words"),
        ("in three short sentences, please", "in three short sentences"),
        ("用一句话总结", "一句话"),
        ("总结成50字以内", "50字以内"),
    ):
        assert asked("summarization", request) == {"length": length}, request
    for request in ("Summarize the first sentence", "总结第三段"):
        assert asked("summarization", request) == {}, request


def test_without_a_request_and_for_other_tasks_there_are_no_hints() -> None:
    assert hinted("", "a.png") == {}
    other = Task(task="image-classification", id=0)
    assert task_hints(other, RunContext(request="Read the text in a.png")) == {}


def test_file_names_are_found_without_a_space_before_them() -> None:
    files = ("照片1.jpg", "照片2.jpg")
    request = "描述照片1.jpg，读出照片2.jpg里的文字"
    assert [hinted(request, file, *files) for file in files] == [{"ocr": False}, {"ocr": True}]


def test_the_script_of_a_text_gives_its_language() -> None:
    scripts = {"你好": "zh", "こんにちは世界": "ja", "안녕": "ko", "Hello": "", "1 !?": None, "": None}
    assert {text: detect_script(text) for text in scripts} == scripts


LANGUAGES: list[tuple[list[str], str, dict[str, Any], str | None]] = [
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
]


def test_a_model_must_know_the_languages_of_its_texts() -> None:
    for known, task, args, missing in LANGUAGES:
        found = missing_language(known, Task(task=task, id=0, args=args), TASKS[task])
        assert found is None if missing is None else str(found).endswith(missing), (known, task, args)


def test_a_purpose_names_the_language_of_sound() -> None:
    speech, image = TASKS["text-to-speech"], TASKS["image-classification"]
    args, german = {"text": "<resource>-0"}, "a German voice"
    asked = Task(task="text-to-speech", id=1, dep=[0], args=args, purpose=german)
    assert str(missing_language(["en"], asked, speech)).endswith("de")
    assert missing_language(["en", "de"], asked, speech) is None
    signs = Task(task="image-classification", id=1, args={"image": "a.png"}, purpose="German road signs")
    assert missing_language(["en"], signs, image) is None
