"""Whether an answer contains a result, and whether it mentions a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jarvis_agent.core.types import Resource, Task, TaskResult
from jarvis_agent.response.answer_checker import contains_result, mentions_failure


def result(
    task: str, text: str | None = None, output: Any = None, kind: Any = "text", file: str = ""
) -> TaskResult:
    made = [Resource(kind="image", path=Path(file))] if file else []
    made += [Resource(kind=kind, text=text)] if text is not None else []
    return TaskResult(task=Task(task=task, id=0), status="ok", output=output, resources=made)


def scored(task: str, name: str = "label", **scores: float) -> TaskResult:
    summary = ", ".join(f"{label.replace('_', ' ')} ({score:.2f})" for label, score in scores.items())
    rows = [{name: label.replace("_", " "), "score": score} for label, score in scores.items()]
    return result(task, summary, rows, "data")


BOX = {"xmin": 0, "ymin": 0, "xmax": 1, "ymax": 1}
BOXES = [{"label": label, "score": 0.9, "box": BOX} for label in ("zebra", "zebra", "zebra", "tree")]
ZEBRAS = result("object-detection", "4 objects: 3 zebras, 1 tree", BOXES, "data", "/out/boxes.png")
CAPTION = result("image-to-text", "a cat sitting on a couch next to a remote control")
CAT = scored("image-classification", Egyptian_cat=0.613, tabby=0.2)
MOOD = scored("text-classification", POSITIVE=0.98)
WORD = scored("fill-mask", "token_str", paris=0.91, lyon=0.02)
SPOKEN = result(
    "automatic-speech-recognition",
    "Good morning everyone, and welcome to the quarterly meeting. Today we will discuss the budget for next "
    "year, and the new office in Lisbon.",
)
SPOKEN_ZH = result("automatic-speech-recognition", "大家早上好，欢迎参加季度会议。今天我们讨论明年的预算。")
GREETING_ZH = result("automatic-speech-recognition", "大家早上好。")
TWO = result("visual-question-answering", "two")
YES = result("visual-question-answering", "yes")
GERMAN = result("translation", "Guten Morgen, wie geht es dir heute?")
CHINESE = result("translation", "早上好，你今天怎么样？")
PRICES = result("tabular-regression", "2 rows: from 1234.5 to 2345.678", [1234.5, 2345.678], "data")
TIMES = result(
    "voice-activity-detection",
    "12.3 s of speech in 4 stretches: 0.0-1.2 s, 2.0-5.1 s, 6.0-8.0 s, 9.0-12.0 s",
    [],
    "data",
)
PICTURE = result("text-to-image", None, {"path": "/out/1.png"}, file="/out/1.png")
WEATHER = result("weather", '{"temp": 21.4, "city": "Paris", "humidity": 60, "wind": 3}')
NAMES = result("token-classification", "Angela Merkel (PER), Berlin (LOC)", [], "data")
VECTOR = result("feature-extraction", "a vector of 384 numbers", [0.1] * 384, "data")
BLANK = result("image-to-text", "")

GOOD = [
    (ZEBRAS, "There are three zebras in the picture."),
    (ZEBRAS, "I see one tree and several zebras."),
    (ZEBRAS, "图片中有3只斑马。"),
    (ZEBRAS, "Auf dem Bild sind drei Zebras und ein Baum zu sehen."),
    (ZEBRAS, "The boxes are drawn in http://host/files/boxes.png."),
    (CAPTION, "The picture shows a cat on a couch, with a remote control next to it."),
    (CAPTION, "A cat sits on the couch beside a remote."),
    (CAPTION, "这张图片里有一只猫坐在沙发上，旁边有一个遥控器。"),
    (CAPTION, "Das Bild zeigt eine Katze, die auf einem Sofa neben einer Fernbedienung sitzt."),
    (CAT, "It is most likely an Egyptian cat (61 %)."),
    (CAT, "This is a cat."),
    (CAT, "图中是一只埃及猫，置信度为61%。"),
    (CAT, "Es ist eine ägyptische Katze."),
    (MOOD, "The text sounds positive, with 98% confidence."),
    (MOOD, "这段话的情感是正面的。"),
    (WORD, "The missing word is probably Paris."),
    (
        SPOKEN,
        "It says: “Good morning everyone, and welcome to the quarterly meeting. Today we will discuss…”",
    ),
    (
        SPOKEN,
        "It welcomes everyone to the quarterly meeting about next year's budget and a new office in Lisbon.",
    ),
    (SPOKEN, "录音里说：大家早上好，欢迎参加季度会议，今天讨论明年的预算和里斯本的新办公室。"),
    (SPOKEN_ZH, "录音内容是：大家早上好，欢迎参加季度会议。今天我们讨论明年的预算。"),
    (SPOKEN_ZH, "The speaker welcomes everyone to the quarterly meeting and discusses next year's budget."),
    (TWO, "There are 2 zebras."),
    (TWO, "有两只斑马。"),
    (YES, "Yes, there is a dog."),
    (YES, "是的，图中有一只狗。"),
    (GERMAN, "In German: “Guten Morgen, wie geht es dir heute?”"),
    (CHINESE, "译文：早上好，你今天怎么样？"),
    (PRICES, "The predicted values range from 1,234.50 to about 2,346."),
    (TIMES, "Someone speaks for 12.3 seconds, in four stretches."),
    (PICTURE, "Here it is: /out/1.png"),
    (WEATHER, "It is 21 degrees in Paris."),
    (WEATHER, "巴黎现在 21.4 度，湿度 60%。"),
    (NAMES, "Angela Merkel is a person, and Berlin is a place."),
    (VECTOR, "The embedding is a vector with 384 dimensions."),
    (BLANK, "There is no text in it."),
]
BAD = [
    (SPOKEN, "I apologize, but I can't assist with that request."),
    (SPOKEN, "I have transcribed the recording for you as requested."),
    (SPOKEN, "很抱歉，我无法完成这个请求。"),
    (SPOKEN_ZH, "I apologize, but I can't assist with that request."),
    (SPOKEN_ZH, "很抱歉，我无法完成这个请求。"),
    (SPOKEN_ZH, "Done."),
    (CAPTION, "Sorry, as a language model I cannot see images."),
    (GREETING_ZH, "Transcribe the recording: the recording was transcribed."),
    (CAPTION, "抱歉，我无法查看图片。"),
    (CAPTION, "Es tut mir leid, das kann ich nicht."),
    (PICTURE, "I have drawn a picture of a cat for you."),
    (GERMAN, "I have translated your text."),
    (CHINESE, "I have translated your text into Chinese, as you asked me to do."),
    (ZEBRAS, "I can't do it."),
    (CAT, "I classified the image."),
    (CAT, "抱歉，我不能做到。"),
    (MOOD, "Done."),
    (TWO, "Done."),
    (PRICES, "The table was processed."),
    (TIMES, "I'm sorry, I can't."),
    (WEATHER, "I called the tool."),
    (NAMES, "I found the names."),
    (WORD, "ok"),
]


def test_an_answer_contains_a_result_if_it_has_its_file_or_the_core_of_its_text() -> None:
    request = "Please transcribe the recording"
    false_alarms = [(one.task.task, text) for one, text in GOOD if not contains_result(text, one, request)]
    overlooked = [(one.task.task, text) for one, text in BAD if contains_result(text, one, request)]
    assert (false_alarms, overlooked) == ([], [])


DETECTION = (
    {"object-detection", "facebook/detr-resnet-50", "detr-resnet-50"},
    "facebook/detr-resnet-50 failed: it could not open the image zebras.jpg",
)
VIDEO = ({"text-to-video"}, "no model can do text-to-video here (source hub: there is no network)")
LEFT_OUT = ({"make a video"}, "no task type does this: “make a video”")
MENTIONED = [
    (DETECTION, "I could not run object-detection on the picture."),
    (DETECTION, "Object detection failed."),
    (DETECTION, "I tried object detection with detr-resnet-50. However, it failed."),
    (DETECTION, "Here is what happened:\n- object-detection: failed\n- image-to-text: a zebra"),
    (DETECTION, "These tasks failed:\n\n- `object-detection`\n- `x`"),
    (DETECTION, "Unfortunately, detr-resnet-50 did not work."),
    (DETECTION, "The model could not open the image zebras.jpg."),
    (DETECTION, "目标检测 object-detection 失败了。"),
    (DETECTION, "Die Aufgabe object-detection ist leider fehlgeschlagen."),
    (DETECTION, "| task | state |\n|---|---|\n| object-detection | failed |"),
    (VIDEO, "There is no model for text-to-video here."),
    (VIDEO, "No model can do text to video, since there is no network."),
    (LEFT_OUT, "I could not make a video."),
]
HIDDEN = [
    (DETECTION, "everything worked, no errors at all. There are 3 zebras."),
    (DETECTION, "object-detection found 3 zebras."),
    (DETECTION, "Object detection ran without any errors and found zebras."),
    (DETECTION, "I ran object-detection. There are 3 zebras. I could not tell their ages."),
    (DETECTION, "Here is what I did:\n- object-detection: 3 zebras\n- image-to-text: failed"),
    (DETECTION, "Sorry, I cannot help."),
    (DETECTION, "目标检测 object-detection 没有错误，找到了三只斑马。"),
    (VIDEO, "Here is your speech; no errors."),
    (LEFT_OUT, "The speech is ready, without problems."),
]


def test_an_answer_mentions_a_failure_if_it_names_it_in_a_denial_or_has_the_reason() -> None:
    false_alarms = [answer for failure, answer in MENTIONED if not mentions_failure(answer, *failure)]
    overlooked = [answer for failure, answer in HIDDEN if mentions_failure(answer, *failure)]
    assert (false_alarms, overlooked) == ([], [])
