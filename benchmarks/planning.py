"""How often a language model answers rightly, and how the offline planner plans requests of others.

    python benchmarks planning --model gguf:qwen.gguf --only 1 --only 15
    python benchmarks planning --controlllm tool2k.json

24 requests run with the starter models and without the Hub. No model judges: an answer is right if it
contains what it must and nothing that it must not, and the files that it must make exist.

With --controlllm, the offline planner plans every eighth request of `eval_data/tool2k.json` of
https://github.com/OpenGVLab/ControlLLM, where a plan needs a task of every family, and every file.
"""

import asyncio
import contextlib
import json
import re
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Annotated, NamedTuple

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from pdf_files import write_pdf
from PIL import Image
from typer import Option

from jarvis_agent import JarvisAgent, Run
from jarvis_agent.core.errors import JarvisError, describe_error
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.phrases import phrases
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource, Usage
from jarvis_agent.llm.chat_model import NO_MODEL, resolve_model
from jarvis_agent.media.recordings import write_video
from jarvis_agent.planning.offline import OfflinePlanner

NO = (
    "sorry|cannot|can't|can not|could not|couldn't|not able|unable|unavailable|not available|not found|"
    "not exist|no such|there is no|missing|no file|not possible|"
    "抱歉|对不起|无法|不能|没法|没有找到|找不到|不存在|不可用|没有可用|做不到"
)
"""Words that admit that something was not done."""


class Case(NamedTuple):
    """The turns of a chat, and what the last answer must be; "|" separates alternatives.

    `files` are all files of their kinds that the last turn makes, pictures perhaps with their size in pixels,
    "image 300 × 225"; (): it makes no file; None: any.
    """

    turns: Sequence[str]
    bare: str = ""  # the whole answer, apart from its punctuation
    has: Sequence[str] = ()
    lacks: str = ""
    files: Sequence[str] | None = None


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
        files=["audio"],
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
        files=["image"] * 3,
    ),
    # Steps that depend on results.
    Case(
        ["Of cat.jpg, street.jpg and astronaut.jpg, make the one with the most pixels 300 px wide."],
        files=["image 300 × 225"],
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
        files=["image 768 × 576"],
    ),
    # Chats.
    Case(["How wide is cat.jpg, in pixels?", "And how tall is it? Only the number."], bare="300"),
    Case(["speech.wav 有多长？", "里面说了什么？请写出原文。"], has=["Dashwood", "leisure", "prudently"]),
)


def write_files(folder: Path) -> None:
    """Copy the inputs of examples/, and write tables, texts, a PDF file and a video beside them."""
    for file in Path(__file__).parents[1].glob("examples/*"):
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
    report = (
        "Inspection of the Vellmar footbridge, 14 March.\n"
        "The engineer Odile Marchetti found 37 rusted bolts in the northern pier\n"
        "and a crack of 4 mm in the handrail.\n"
        "The bolts must be replaced before winter. The repair costs 48,200 euros.\n"
        "Until then no more than 60 people may be on the bridge at once."
    )
    write_pdf(folder / "report.pdf", report)
    pictures = (Image.open(folder / name) for name in ("cat.jpg", "street.jpg", "page.png"))
    shown = (frame for picture in pictures for frame in [picture.resize((448, 320))] * 10)
    write_video(folder / "clip.mp4", shown, fps=10)


def contains(text: str, alternatives: str) -> bool:
    """Whether a text has one of the alternatives, "a|b", as whole words or numbers, in any case."""
    words = "|".join(map(re.escape, alternatives.casefold().split("|")))
    whole = rf"(?<![a-z0-9])(?<!\d[.,])(?:{words})(?![a-z0-9]|[.,]\d)"
    return re.search(whole, text.casefold().replace("’", "'")) is not None


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
        sizes = {kind: size for kind, _, size in (file.partition(" ") for file in case.files)}
        files = [file for file in made if file.kind in sizes or not sizes]
        found = [
            f"image {' × '.join(map(str, file.to_pil().size))}" if sizes.get(file.kind) else str(file.kind)
            for file in files
        ]
        if sorted(found) != sorted(case.files):
            yield f"made {', '.join(found) or 'no such file'}"


def has_note(request: str, answer: str) -> bool:
    """Whether an answer says that something was not done, or has a note of ours."""
    words = phrases(request)
    notes = [words.nothing, words.unavailable, words.not_understood, words.troubles, words.notes]
    notes += [words.note, words.not_done, words.no_answer]
    return any(note.partition("{")[0] in answer for note in notes) or contains(answer, NO)


class Outcome(NamedTuple):
    """The last answer of a case, what is wrong with it, and what all turns cost."""

    number: int
    case: Case
    answer: str
    faults: Sequence[str]
    noted: bool
    usage: Usage
    seconds: float

    @property
    def verdict(self) -> str:
        """Right or wrong, and whether the answer says so; more words than were asked for are not false."""
        if not self.faults:
            return "right, with a note" if self.noted and NO not in self.case.has else "right"
        if self.noted:
            return "wrong, says so"
        is_inside = self.case.bare and contains(self.answer, self.case.bare)
        return "wrong, not bare" if is_inside else "WRONG"

    def __str__(self) -> str:
        usage = self.usage
        tokens = f"{usage.input_tokens:5} + {usage.output_tokens:4} tokens"
        cost = f"{usage.calls} calls, {tokens}, {self.seconds:3.0f} s"
        row = f"{self.number:2} {self.verdict:18} {cost}  {' / '.join(self.case.turns)}"
        said = " ".join(self.answer.split())[:300]
        return f"{row}\n      it {', '.join(self.faults)}: {said}" if self.faults else row


async def measure(model: BaseChatModel | None, numbers: Sequence[int]) -> list[Outcome]:
    """Run cases by number, from 1, one after the other, and print each."""
    outcomes = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_files(Path(folder))
        settings = read_settings({"offline": True, "output_dir": Path(folder, "outputs")})
        async with JarvisAgent(model or NO_MODEL, settings=settings) as agent:
            for number in numbers:
                outcomes.append(await _outcome(number, agent))
                print(outcomes[-1])
    return outcomes


async def _outcome(number: int, agent: JarvisAgent) -> Outcome:
    case, usage, began, failed = CASES[number - 1], Usage(), perf_counter(), False
    config: RunnableConfig = {"configurable": {"thread_id": str(number)}}
    for turn in case.turns:
        try:
            run = await agent.ainvoke(turn, config)
            answer = run.answer
        except JarvisError as error:
            run, answer, failed = Run(), describe_error(error), True
        usage = sum(run.usage.values(), usage)
    made = [file for result in run.results for file in result.resources if file.path]
    noted = failed or has_note(case.turns[-1], answer)
    faults = [*faults_of(case, answer, made)]
    return Outcome(number, case, answer, faults, noted, usage, perf_counter() - began)


def totals(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The figures of all cases."""
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    usage = sum((outcome.usage for outcome in outcomes), Usage())
    noted = verdicts["right, with a note"]
    return {
        "right answers": f"{verdicts['right'] + noted} of {len(outcomes)}",
        "of them with a note": f"{noted}",
        "false without a word": f"{verdicts['WRONG']}",
        "calls": f"{usage.calls}",
        "tokens in": f"{usage.input_tokens:,}",
        "tokens out": f"{usage.output_tokens:,}",
    }


_FIND = {"object-detection", "zero-shot-object-detection", "visual-question-answering"}
_MAPS = {name for name in TASKS if name.endswith("-control")} | {"depth-estimation", "keypoint-detection"}
_TELL = {"image-classification", "zero-shot-image-classification", "image-to-text"}
_CUT = {"crop-image", "image-segmentation", "mask-generation", "seg-control"}
FAMILIES = {
    "count_object": _FIND,
    "image_detection": _FIND | _CUT,
    "image_classification": _FIND | _TELL,
    "image_segmentation": _CUT,
    "image_editing": _CUT | {"image-text-to-image", "image-to-image", "edit-image"},
    "image_QA": {"visual-question-answering", "image-text-to-text", "image-to-text"},
    "image_generation": {name for name in TASKS if name.endswith("to-image")},
    "image_processing": _MAPS,
    "video_classification": {"video-classification", "video-text-to-text"},
    "QA": {"text-generation", "question-answering", "table-question-answering", "summarization"},
}


def print_controlllm(file: Path) -> None:
    """Print the share of plans with a task of every family and with every file, by kind of request."""
    planner = OfflinePlanner(settings=Settings(offline=True))
    groups: dict[str, list[bool]] = defaultdict(list)
    for record in json.loads(file.read_text(encoding="utf-8"))[::8]:
        families = record["type"].removeprefix("parallel_").split(",")
        kind = "compound" if len(families) > 1 else "single"
        kind = "several files" if "parallel" in record["type"] else kind
        tasks = planner.invoke(record["instruction"]).tasks
        used = json.dumps([task.args for task in tasks], ensure_ascii=False)
        names = [name for name in mentions(record["instruction"]) if "." in name]
        has_families = all(FAMILIES[family] & {task.task for task in tasks} for family in families)
        has_files = all(json.dumps(name, ensure_ascii=False)[1:-1] in used for name in names)
        for group in ("all", kind, *(families if kind == "single" else ())):
            groups[group].append(has_families and has_files)
    for group, results in groups.items():
        print(f"{group:24}{len(results):6}{sum(results) / len(results):8.1%}")


def main(
    model: Annotated[str | None, Option(help="as JARVIS_MODEL; default: the configured model")] = None,
    only: Annotated[list[int] | None, Option(help="only the request of this number, from 1")] = None,
    controlllm: Annotated[Path | None, Option(help="score the offline planner on this file")] = None,
) -> None:
    """Print a row for each request, and the figures of all."""
    if controlllm:
        print_controlllm(controlllm)
        return
    chat_model = resolve_model(model, read_settings({"offline": True}))
    for name, value in totals(asyncio.run(measure(chat_model, only or range(1, len(CASES) + 1)))).items():
        print(f"| {name} | {value} |")
