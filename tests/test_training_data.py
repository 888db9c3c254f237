"""The hand-written requests in training/ keep the rules of their notation, and the checker sees breaches."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import notation
import pytest

from jarvis_agent.core.types import Task
from jarvis_agent.evaluation.requests import judge

VOICES = sorted(notation.FILES.rglob("*.txt"))


def read(tmp_path: Path, text: str) -> list[notation.Record]:
    (tmp_path / "voice.txt").write_text(text, encoding="utf-8")
    return notation.read_records(tmp_path / "voice.txt")


@pytest.mark.parametrize("file", VOICES, ids=lambda file: file.stem)
def test_a_voice_keeps_the_rules(file: Path) -> None:
    for record in notation.read_records(file):
        asked = record.as_request("zh" if file.stem.startswith("zh_") else "en")
        assert judge(asked, record.plans[0]).exact


def test_no_request_is_written_twice() -> None:
    records = [record for file in VOICES for record in file.read_text("utf-8").split("\n\n")]
    same = Counter("\n".join(re.findall(r"^[>+] .*", record.casefold(), re.M)) for record in records)
    assert [request for request, times in same.items() if request.startswith("> ") and times > 1] == []


def test_a_record_has_files_references_lists_and_what_is_left_out(tmp_path: Path) -> None:
    (record,) = read(
        tmp_path,
        """
        > is it a cat or a dog in pet.jpg? say it in French
        > and mail it to Ana
        + voice.ogg
        zero-shot-image-classification pet.jpg | cat / dog
        translation #0 | French
        - mail it to Ana
        """.replace("        ", ""),
    )
    assert record.request == "is it a cat or a dog in pet.jpg? say it in French\nand mail it to Ana"
    assert (record.files, record.left_out) == (["voice.ogg", "pet.jpg"], ["mail it to Ana"])
    assert record.kind == "sequential"
    assert record.plans == [
        [
            Task(
                task="zero-shot-image-classification",
                id=0,
                args={"image": "pet.jpg", "labels": ["cat", "dog"]},
            ),
            Task(task="translation", id=1, dep=[0], args={"text": "<resource>-0", "tgt_lang": "French"}),
        ]
    ]


@pytest.mark.parametrize(
    ("text", "args"),
    [
        (
            "> mark the dog in a.jpg, tell me what breed it is, cut it out, how large is that?\n"
            "zero-shot-object-detection a.jpg | dog\nvisual-question-answering #0 | what breed it is\n"
            "crop-image a.jpg | #0\nmedia-info #2\n",
            [
                {"image": "a.jpg", "labels": ["dog"]},
                {"image": "<resource>-0", "text": "what breed it is"},
                {"image": "a.jpg", "box": "<resource>-0"},
                {"file": "<resource>-2"},
            ],
        ),
        (
            "> keep the left half of a.jpg, mirrored and without colour; b.wav as a small file\n"
            "crop-image a.jpg | left half\nedit-image #0 | greyscale=1 | flip=horizontal\n"
            "extract-audio b.wav | mp3\n",
            [
                {"image": "a.jpg", "box": "left half"},
                {"image": "<resource>-0", "greyscale": 1, "flip": "horizontal"},
                {"video": "b.wav", "format": "mp3"},
            ],
        ),
        (
            "> type a.wav and b.wav\nautomatic-speech-recognition a.wav\nautomatic-speech-recognition b.wav\n"
            "= Call me.\n= The key is lost.\n\n"
            ">> answer the second, but be kind\ntext-generation answer … kind ^1#1\n",
            [{"text": "answer kind The key is lost."}],
        ),
    ],
    ids=["results", "parts and edits", "an answer of an earlier turn"],
)
def test_words_and_results_become_arguments(tmp_path: Path, text: str, args: list[dict[str, Any]]) -> None:
    assert [task.args for task in read(tmp_path, text)[-1].plans[0]] == args


def test_a_follow_up_takes_files_and_answers_of_earlier_turns(tmp_path: Path) -> None:
    *_, drawn, said = read(
        tmp_path,
        "> draw a barn\ntext-to-image a barn\n\n"
        ">> describe it\nimage-to-text ^1\n= A red barn on a hill.\n\n"
        ">> the edges of the drawing\ncanny-control ^2\n\n"
        ">> and the description in Dutch\ntranslation ^2 | Dutch\n",
    )
    assert drawn.plans[0][0].args == {"image": "/outputs/1/text-to-image-0.png"}
    assert said.plans[0][0].args == {"text": "A red barn on a hill.", "tgt_lang": "Dutch"}
    files = [["/outputs/1/text-to-image-0.png"], [], ["/outputs/3/canny-control-0.png"]]
    assert [turn.files for turn in said.as_request("en").turns] == files


def test_interchangeable_task_types_and_a_missing_source_language_are_right(tmp_path: Path) -> None:
    (record,) = read(
        tmp_path,
        "> does the sign in a.jpg forbid dogs? its German is too hard, in Dutch please\n"
        "visual-question-answering a.jpg | forbid dogs\ntranslation #0 | Dutch | src_lang=German\n",
    )
    question, translation = record.plans[0]
    other = question.model_copy(update={"task": "image-text-to-text"})
    shorter = translation.model_copy(update={"args": {"text": "<resource>-0", "tgt_lang": "Dutch"}})
    asked = record.as_request("en")
    assert judge(asked, [question, translation]).exact
    assert judge(asked, [other, shorter]).exact
    assert not judge(asked, [question.model_copy(update={"task": "image-to-text"}), translation]).exact


def test_a_text_of_an_earlier_turn_needs_its_answer(tmp_path: Path) -> None:
    with pytest.raises(notation.NotationError, match="needs its answer"):
        read(tmp_path, "> type a.wav\nautomatic-speech-recognition a.wav\n\n>> speak it\ntext-to-speech ^1\n")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("paint-image a.jpg", "no task type"),
        ("image-to-text b.jpg", "no file of the record"),
        ("automatic-speech-recognition a.jpg", "takes audio"),
        ("image-to-text a.jpg | sing it", "'sing it' is not in the request"),
        ("object-detection a.jpg | a.jpg", "all are given"),
        ("zero-shot-object-detection a.jpg", "labels missing"),
        ("crop-image a.jpg | right half", "'right half' is not in the request"),
        ("resize-image a.jpg | wide", "takes a number"),
        ("edit-image a.jpg | flip=diagonal", "'diagonal' is not in the request"),
        ("text-to-speech #0", "no such task"),
        ("text-to-speech ^1", "0 turns before"),
        ("depth-estimation a.jpg\ntext-to-speech #0", "makes image"),
        ("- the weather", "is not in the request"),
        ("none\nobject-detection a.jpg", "`none`"),
        ("object-detection a.jpg\nor\nnone", "stands alone"),
        ("", "has a request"),
        ("or\nobject-detection a.jpg", "has a request"),
        ("object-detection a.jpg\n= one\n= two", "one answer"),
        ("+ photo\nobject-detection a.jpg", "kind of the file"),
    ],
)
def test_a_breach_is_told_with_its_place(tmp_path: Path, plan: str, message: str) -> None:
    with pytest.raises(notation.NotationError, match=r"voice\.txt:\d") as error:
        read(tmp_path, f"> left of the dog in a.jpg\n{plan}\n")
    assert message in str(error.value)


def test_a_follow_up_needs_a_turn_before_it(tmp_path: Path) -> None:
    with pytest.raises(notation.NotationError, match="record before it"):
        read(tmp_path, ">> and now?\nnone\n")
