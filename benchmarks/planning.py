"""How often a language model answers rightly, and how the offline planner plans requests of others.

    python benchmarks planning --model gguf:qwen.gguf --only 1 --only 15
    python benchmarks planning --controlllm tool2k.json

24 requests run with the starter models and without the Hub. No model judges: an answer is right if it
contains what it must and nothing that it must not, and the files that it must make exist.

With --controlllm, the offline planner plans every eighth request of `eval_data/tool2k.json` of
https://github.com/OpenGVLab/ControlLLM. A plan is right if it has a task of every family that the request
needs, and uses every file that it names.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from jarvis_agent import JarvisAgent, Run
from jarvis_agent.core.errors import JarvisError, describe_error
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.messages import phrases
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource, Usage
from jarvis_agent.llm.chat_model import NO_MODEL, resolve_model
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.plan import Plan

EXAMPLES = Path(__file__).parents[1] / "examples"

NO = (
    "sorry|cannot|can't|can not|could not|couldn't|not able|unable|unavailable|not available|not found|"
    "not exist|no such|there is no|missing|no file|not possible|"
    "抱歉|对不起|无法|不能|没法|没有找到|找不到|不存在|不可用|没有可用|做不到"
)
"""Words that admit that something was not done."""


@dataclass(frozen=True, slots=True)
class Made:
    """A file that a run must make; `size` is the width and height of a picture, in pixels."""

    kind: str
    size: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.size[0]} × {self.size[1]}" if self.size else self.kind


@dataclass(frozen=True, slots=True)
class Case:
    """The turns of a chat, and what the last answer must be.

    Attributes:
        turns: what the user says.
        bare: the whole answer, apart from its punctuation.
        has, lacks: what it must contain, and must not. In all three, "|" separates alternatives.
        files: all files of their kinds that the last turn makes; (): it makes no file; None: any.
    """

    turns: Sequence[str]
    bare: str = ""
    has: Sequence[str] = ()
    lacks: str = ""
    files: Sequence[Made] | None = None


CASES = (
    # Bare answers.
    Case(["What is the longest side of cat.jpg in pixels? Only the number."], bare="451"),
    Case(["Is there a cat in cat.jpg? Answer yes or no only."], bare="yes"),
    Case(["street.jpg 的宽度是多少像素？只回答数字。"], bare="768"),
    # Counting and locating.
    Case(['How often does the word "season" occur in page.png? Only the number.'], bare="2|two|twice"),
    Case(
        ["From which second to which second does somebody speak in speech.wav?"],
        has=["0.3|0.34|0.32|0.30", "6.8|6.84|6.82|6.80"],
    ),
    # Tables.
    Case(
        ["In sales.csv, which month had the highest revenue, and how much was it?"],
        has=["March", "9480|9,480"],
        lacks="January|February",
    ),
    Case(["What is the total of the column units in sales.csv? Only the number."], bare="970"),
    Case(["stock.csv 里单价最高的商品是什么？还有多少库存？"], has=["铜镇纸", "9|九"], lacks="棉布袋"),
    # Texts and their files.
    Case(
        ["Summarise report.pdf in two sentences."],
        has=["bridge|footbridge", "Vellmar", "bolts|crack|rusted"],
        lacks="COVID-19|pandemic",
    ),
    Case(
        ["Translate mail.txt into German."],
        has=["Ofen|Brennofen|Keramikofen|Töpferofen", "Donnerstag", "14:30|14.30"],
        lacks="kiln",
    ),
    Case(["把 letter.txt 翻译成中文。"], has=["11月27日|11 月 27 日|十一月二十七日"], lacks="réunion"),
    Case(
        ["Write one polite line in reply to this mail, and name the day and the gate in it: mail.txt"],
        has=["Thursday", "7|seven"],
    ),
    Case(
        ["Read mail.txt aloud, and tell me on which day and at what time the kiln arrives."],
        has=["Thursday", "14:30|2:30"],
        files=[Made("audio")],
    ),
    # Several files, and a fan-out.
    Case(["Which of the two has more pixels, cat.jpg or page.png? Only the file name."], bare="page.png"),
    Case(
        ["One of mail.txt and letter.txt names a room. Which file is it, and what is the room called?"],
        has=["letter.txt", "Garance"],
        lacks="bytes",
    ),
    Case(
        ["Pull 3 frames of clip.mp4, and say what each frame shows."],
        has=["cat|tabby", "dog|malamute|shepherd|husky"],
        files=[Made("image")] * 3,
    ),
    # Steps that depend on results.
    Case(
        ["Of cat.jpg, street.jpg and astronaut.jpg, make the one with the most pixels 300 px wide."],
        files=[Made("image", (300, 225))],
    ),
    Case(
        ["If letter.txt is in French, translate it into English."],
        has=["27 November|November 27|27th of November|November 27th|27th November", "Garance"],
        lacks="réunion",
    ),
    # A missing file, one that need not be looked at, and what cannot be done offline.
    Case(["What animal is in party.jpg?"], has=["party.jpg", NO], files=()),
    Case(
        ["I also attach page.png, you need not look at it. How wide is cat.jpg, in pixels?"],
        has=["451"],
        lacks="806|508|best of times|did not work|not done",
    ),
    Case(["给我画一只雪地里的红狐狸，存成图片。"], has=[NO], files=()),
    # A file that was made, and one that was not.
    Case(
        ["Make a canny edge image of street.jpg. How do I then copy it to street-edges.png?"],
        has=["street-edges.png"],
        lacks="no such file|does not exist",
        files=[Made("image", (768, 576))],
    ),
    # Chats.
    Case(["How wide is cat.jpg, in pixels?", "And how tall is it? Only the number."], bare="300"),
    Case(["speech.wav 有多长？", "里面说了什么？请写出原文。"], has=["Dashwood", "leisure", "prudently"]),
)


def write_files(folder: Path) -> None:
    """Copy the inputs of examples/, and write tables, texts, a PDF file and a video beside them."""
    for file in EXAMPLES.iterdir():
        if file.suffix in (".jpg", ".png", ".wav"):
            shutil.copy(file, folder)
    texts = {
        "sales.csv": "month,units,revenue\nJanuary,118,4720\nFebruary,96,3980\nMarch,237,9480\n"
        "April,175,6890\nMay,201,8145\nJune,143,5605\n",
        "stock.csv": "商品,单价,库存\n青釉茶壶,86,14\n竹编篮,39,52\n铜镇纸,128,9\n棉布袋,25,73\n",
        "mail.txt": "Hello,\nthe kiln arrives on Thursday, 19 June, at 14:30. The driver needs gate 7 to be "
        "open.\nIngrid Solvang\n",
        "letter.txt": "Chère Madame,\nla réunion du club d'horlogerie est reportée au 27 novembre. Elle aura "
        "lieu dans la salle Garance.\nThéophile Brunet\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_pdf(
        folder / "report.pdf",
        "Inspection of the Vellmar footbridge, 14 March.",
        "The engineer Odile Marchetti found 37 rusted bolts in the northern pier",
        "and a crack of 4 mm in the handrail.",
        "The bolts must be replaced before winter. The repair costs 48,200 euros.",
        "Until then no more than 60 people may be on the bridge at once.",
    )
    write_video(folder / "clip.mp4", [folder / name for name in ("cat.jpg", "street.jpg", "page.png")])


def write_pdf(path: Path, *lines: str) -> None:
    """Write a PDF file of one page."""
    text = f"BT /F1 12 Tf 15 TL 60 760 Td {' '.join(f'({line}) Tj T*' for line in lines)} ET"
    objects = (
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Count 1/Kids[3 0 R]>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources<</Font<</F1 4 0 R>>>>/Contents 5 0 R>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        f"<</Length {len(text)}>>stream\n{text}\nendstream",
    )
    content, places = "%PDF-1.4\n", []
    for number, item in enumerate(objects, 1):
        places.append(len(content))
        content += f"{number} 0 obj{item}\nendobj\n"
    rows = "".join(f"{place:010} 00000 n \n" for place in places)
    table = f"xref\n0 6\n0000000000 65535 f \n{rows}trailer<</Root 1 0 R/Size 6>>\n"
    path.write_text(f"{content}{table}startxref\n{len(content)}\n%%EOF", encoding="ascii", newline="\n")


def write_video(path: Path, pictures: Sequence[Path]) -> None:
    """Write a video that shows each picture for one second."""
    import av
    from PIL import Image

    with av.open(path, "w") as video:
        stream = video.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 448, 320, "yuv420p", 4_000_000
        for picture in pictures:
            frame = av.VideoFrame.from_image(Image.open(picture).convert("RGB").resize((448, 320)))
            for _ in range(10):
                video.mux(stream.encode(av.VideoFrame.from_ndarray(frame.to_ndarray(), format="rgb24")))
        video.mux(stream.encode(None))


def contains(text: str, alternatives: str) -> bool:
    """Whether a text has one of the alternatives, "a|b", as whole words or numbers, in any case."""
    return any(
        re.search(rf"(?<![a-z0-9])(?<!\d[.,]){re.escape(one)}(?![a-z0-9]|[.,]\d)", text)
        for text in [text.casefold().replace("’", "'")]
        for one in alternatives.casefold().split("|")
    )


def faults_of(case: Case, answer: str, made: Sequence[Resource]) -> Iterator[str]:
    """What is wrong with the last answer of a case; `made` are the files of its run."""
    if case.bare and answer.casefold().strip(" \n.。!！*`'\"“”") not in case.bare.casefold().split("|"):
        yield f'is not just "{case.bare}"'
    for wanted in case.has:
        if not contains(answer, wanted):
            yield "does not say that it cannot be done" if wanted == NO else f'has no "{wanted}"'
    if case.lacks and contains(answer, case.lacks):
        yield f'has "{case.lacks}"'
    if case.files is not None:
        kinds = {file.kind for file in case.files}
        found = [_as_made(file, case.files) for file in made if file.kind in kinds or not kinds]
        if sorted(map(str, found)) != sorted(map(str, case.files)):
            yield f"made {', '.join(map(str, found)) or 'no such file'}"


def _as_made(file: Resource, wanted: Sequence[Made]) -> Made:
    has_size = any(one.size and one.kind == file.kind for one in wanted)
    return Made(file.kind, file.to_pil().size if has_size else None)


def has_note(request: str, answer: str) -> bool:
    """Whether an answer says that something was not done, or has a note of ours."""
    words = phrases(request)
    whole = (words.nothing, words.unavailable, words.not_understood, words.troubles, words.notes)
    begun = (words.note, words.not_done, words.no_answer)
    fixed = [*whole, *(text.partition("{")[0] for text in begun)]
    return any(text in answer for text in fixed) or contains(answer, NO)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The last answer of a case, what is wrong with it, and what all turns cost."""

    number: int
    answer: str
    faults: Sequence[str]
    noted: bool
    usage: Usage
    seconds: float

    @property
    def verdict(self) -> str:
        """Right or wrong, and whether the answer says so; more words than were asked for are not false."""
        case = CASES[self.number - 1]
        if not self.faults:
            return "right, with a note" if self.noted and NO not in case.has else "right"
        if self.noted:
            return "wrong, says so"
        return "wrong, not bare" if case.bare and contains(self.answer, case.bare) else "WRONG"


async def measure(model: BaseChatModel | None, numbers: Sequence[int]) -> list[Outcome]:
    """Run cases by number, from 1, one after the other, and print each."""
    outcomes = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_files(Path(folder))
        settings = read_settings({"offline": True, "output_dir": Path(folder, "outputs"), "experts": "none"})
        async with JarvisAgent(model or NO_MODEL, settings=settings) as agent:
            for number in numbers:
                outcomes.append(await _outcome(number, agent))
                print(_row(outcomes[-1]), flush=True)
    return outcomes


async def _outcome(number: int, agent: JarvisAgent) -> Outcome:
    case, usage, began, run, answer, failed = CASES[number - 1], Usage(), perf_counter(), Run(), "", False
    for turn in case.turns:
        config: RunnableConfig = {"configurable": {"thread_id": str(number)}}
        try:
            run = await agent.ainvoke(turn, config)
            answer = run.answer
        except JarvisError as error:
            run, answer, failed = Run(), describe_error(error), True
        usage = sum(run.usage.values(), usage)
    made = [file for result in run.results for file in result.resources if file.path]
    return Outcome(
        number=number,
        answer=answer,
        faults=list(faults_of(case, answer, made)),
        noted=failed or has_note(case.turns[-1], answer),
        usage=usage,
        seconds=round(perf_counter() - began, 1),
    )


def _row(outcome: Outcome) -> str:
    usage = outcome.usage
    tokens = f"{usage.input_tokens:5} + {usage.output_tokens:4} tokens"
    cost = f"{usage.calls} calls, {tokens}, {outcome.seconds:3.0f} s"
    row = f"{outcome.number:2} {outcome.verdict:18} {cost}  {' / '.join(CASES[outcome.number - 1].turns)}"
    said = " ".join(outcome.answer.split())[:300]
    return f"{row}\n      it {', '.join(outcome.faults)}: {said}" if outcome.faults else row


def totals(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The figures of all cases."""
    right = sum(not outcome.faults for outcome in outcomes)
    noted = sum(outcome.verdict == "right, with a note" for outcome in outcomes)
    silent = sum(outcome.verdict == "WRONG" for outcome in outcomes)
    usage = sum((outcome.usage for outcome in outcomes), Usage())
    return {
        "right answers": f"{right} of {len(outcomes)}",
        "of them with a note": str(noted),
        "false without a word": str(silent),
        "calls": str(usage.calls),
        "tokens in": f"{usage.input_tokens:,}",
        "tokens out": f"{usage.output_tokens:,}",
    }


_FIND = {"object-detection", "zero-shot-object-detection", "visual-question-answering"}
_MAPS = {name for name in TASKS if name.endswith("-control")} | {"depth-estimation", "keypoint-detection"}
_CUT = {"crop-image", "image-segmentation", "mask-generation", "seg-control"}
FAMILIES = {
    "count_object": _FIND,
    "image_detection": _FIND | _CUT,
    "image_classification": _FIND
    | {"image-classification", "zero-shot-image-classification", "image-to-text"},
    "image_segmentation": _CUT,
    "image_editing": _CUT | {"image-text-to-image", "image-to-image", "edit-image"},
    "image_QA": {"visual-question-answering", "image-text-to-text", "image-to-text"},
    "image_generation": {name for name in TASKS if name.endswith("to-image")},
    "image_processing": _MAPS,
    "video_classification": {"video-classification", "video-text-to-text"},
    "QA": {"text-generation", "question-answering", "table-question-answering", "summarization"},
}


def is_right(plan: Plan, families: list[str], request: str) -> bool:
    """Whether a plan has a task of every family, and uses every file."""
    used = json.dumps([task.args for task in plan.tasks], ensure_ascii=False)
    names = [name for name in mentions(request) if "." in name]
    has_families = all(FAMILIES[family] & {task.task for task in plan.tasks} for family in families)
    return has_families and all(json.dumps(name, ensure_ascii=False)[1:-1] in used for name in names)


def print_controlllm(file: Path) -> None:
    """Print the share of right plans by kind of request."""
    planner = OfflinePlanner(settings=Settings(offline=True))
    groups: dict[str, list[bool]] = defaultdict(list)
    for record in json.loads(file.read_text(encoding="utf-8"))[::8]:
        families = record["type"].removeprefix("parallel_").split(",")
        kind = "compound" if len(families) > 1 else "single"
        kind = "several files" if "parallel" in record["type"] else kind
        right = is_right(planner.invoke(record["instruction"]), families, record["instruction"])
        for group in ("all", kind, *(families if kind == "single" else ())):
            groups[group].append(right)
    for group, results in groups.items():
        print(f"{group:24}{len(results):6}{sum(results) / len(results):8.1%}")


def main(arguments: Sequence[str]) -> None:
    """Print a row for each request, and the figures of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", help="as JARVIS_MODEL; default: the configured model")
    parser.add_argument("--only", action="append", type=int, help="only the request of this number, from 1")
    parser.add_argument("--controlllm", type=Path, metavar="FILE", help="score the offline planner on it")
    given = parser.parse_args(arguments)
    if given.controlllm:
        print_controlllm(given.controlllm)
        return
    model = resolve_model(given.model, read_settings({"offline": True}))
    numbers = given.only or range(1, len(CASES) + 1)
    for name, value in totals(asyncio.run(measure(model, numbers))).items():
        print(f"| {name} | {value} |")
