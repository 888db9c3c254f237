"""The fixed texts of reports, in English and Chinese: `phrases("描述 a.jpg").failed` is "失败"."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jarvis_agent.core.file_mentions import LETTER, mentions, split_names
from jarvis_agent.core.notes import Note
from jarvis_agent.core.text import detect_script

_SENTENCES = {
    "The answer is: {text}": "audio-text-to-text document-question-answering question-answering "
    "table-question-answering visual-question-answering",
    "{inside} I found {text}.": "image-segmentation keypoint-detection mask-generation token-classification "
    "voice-activity-detection",
    "The result{made_from} is {text}.": "extract-frames feature-extraction image-feature-extraction",
    "The prediction{of}: {text}": "tabular-classification tabular-regression",
    "The ranking{of}, best first: {text}": "sentence-similarity text-ranking visual-document-retrieval "
    "zero-shot-classification",
    "What is said{inside}: {text}": "automatic-speech-recognition",
    "What can be seen{inside}: {text}": "image-to-text",
    "What fits the question best{inside}: {text}": "lines",
    "The facts{of}: {text}": "media-info",
    "The text{inside} reads: {text}": "reading",
    "The summary{of}: {text}": "summarization",
    "The forecast{of}: {text}": "time-series-forecasting",
    "The translation{of}: {text}": "translation",
}
_STATEMENTS = {task: sentence for sentence, tasks in _SENTENCES.items() for task in tasks.split()}
"""Sentences on texts by their task."""

_NOUNS = {
    "text": "text",
    "image": "picture",
    "audio": "sound",
    "video": "video",
    "table": "table",
    "3d": "3D model",
    "data": "result",
    "file": "file",
    "any": "result",
    "text-to-speech": "speech",
    "depth-estimation": "depth map",
    "resize-image": "resized picture",
    "crop-image": "cropped picture",
    "edit-image": "edited picture",
    "object-detection": "marked picture",
    "zero-shot-object-detection": "marked picture",
    "keypoint-detection": "marked picture",
    "canny-control": "canny edge image",
    "hed-control": "soft edge image",
    "mlsd-control": "straight line image",
    "scribble-control": "scribble drawing",
    "depth-control": "depth map",
    "normal-control": "normal map",
    "openpose-control": "body pose",
    "seg-control": "segmentation map",
}
"""What tasks make, by the kind of output or the task."""


_ABILITIES = {
    "image-to-text": "read the text in pictures",
    "image-classification": "say what is in a picture",
    "object-detection": "count what is in a picture",
    "edit-image": "edit pictures",
    "automatic-speech-recognition": "write down what is said in recordings",
    "text-to-speech": "read texts aloud",
    "text-to-image": "draw pictures",
    "translation": "translate",
    "summarization": "summarise texts",
    "media-info": "look up facts of files",
}
"""What a greeting says of tasks that can run, the best known first."""


_PREFERRED = {
    "cheapest": "As asked, the cheapest models came first.",
    "fastest": "As asked, the fastest models came first.",
    "best": "As asked, the largest models came first.",
    "local": "As asked, only models on this machine were used.",
}
"""The last line of an answer, by the plan's preference."""


@dataclass(frozen=True, slots=True)
class Phrases:
    """The texts of a report, in English by default; names in braces are filled in."""

    nothing: str = "I could not do this."
    total: str = "In all pictures together: {counts}"
    troubles: str = "What did not work:"
    failed: str = "failed"
    skipped: str = "skipped"
    trouble: str = "{titles}: {state}: {reason}"
    skipped_too: str = "so this was skipped: {tasks}"
    no_reason: str = "no reason is known"
    kinds: Mapping[str, str] = field(default_factory=dict, hash=False)
    helps: str = "What helps: {advice}"
    notes: str = "About the plan:"
    note: str = "Note: {text}"
    made: str = "Files: {files}"
    not_done: str = "Not done: {what}"
    empty: str = "(no text)"
    seconds: str = "{number:.1f} s"
    more_files: str = "and {number} more files beside it"
    more_text: str = "… ({number} more characters; the run holds the whole text)"
    no_file: str = "(no such file)"
    not_understood: str = "I did not understand what is to be done, so nothing was done."
    unavailable: str = "I understood what is to be done, but it cannot be done here:"
    examples: tuple[str, str, str] = (
        "Requests that work look like these:",
        "Describe the image photo.jpg",
        "Read the text in page.png aloud, then transcribe the recording",
    )
    greeting: str = "Hello! There is no task for me in this. Here I can {abilities}."
    abilities: Mapping[str, str] = field(default_factory=lambda: _ABILITIES, hash=False)
    set_up: str = (
        "No language model is set up, so only plain requests are understood. `jarvis setup` installs one "
        "here; or set OPENAI_API_KEY or HF_TOKEN, or JARVIS_BASE_URL and JARVIS_MODEL for your own server."
    )
    no_answer: str = "The language model could not write the answer ({error}), so this is a plain report."
    broke_off: str = "The answer broke off here: {error} What was done:"
    rejected: str = "The plan was rejected, so nothing was run."
    preferred: Mapping[str, str] = field(default_factory=lambda: _PREFERRED, hash=False)
    comma: str = ", "
    and_: str = " and "
    or_: str = " or "
    gap: str = ""
    it: str = "it"
    output_of: str = "the {noun}{of}"
    inside: str = " in {subject}"
    of: str = " of {subject}"
    made_from: str = " made from {subject}"
    sure: str = "{it} is {best}."
    probable: str = "{it} is probably {best}{others}."
    unsure: str = "{it} is hard to name: perhaps {best}{others}."
    others: str = "; it could also be {others}"
    percent: str = " ({number}\u00a0%)"
    objects: str = "{inside} I found {text}."
    no_objects: str = "{inside} I found no objects."
    count: str = "{number} {label}"
    measure: str = ""
    file: str = "Here is the {noun}{made_from}: {path}"
    files: str = "Here are the files{made_from}:"
    tool: str = "{task}: {text}"
    statements: Mapping[str, str] = field(default_factory=lambda: _STATEMENTS, hash=False)
    nouns: Mapping[str, str] = field(default_factory=lambda: _NOUNS, hash=False)
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    sentences: Mapping[str, str] = field(default_factory=dict, hash=False)

    def translated(self, text: str) -> str:
        """A note, reason or advice in this language; words of a library or of the user stay as they are."""
        return Note.of(text).write(self.sentences)


ENGLISH = Phrases()
_DATA = tomllib.loads((Path(__file__).parent / "data" / "chinese.toml").read_text(encoding="utf-8"))
CHINESE = Phrases(**_DATA | {"examples": tuple(_DATA["examples"])})


def phrases(request: str) -> Phrases:
    """The phrases for the language of a request: Chinese if that begins it, or is more than its other words.

    Names of files do not count.
    """
    if detect_script(request) != "zh":
        return ENGLISH
    rest = " ".join(split_names(request, mentions(request))[::2])
    words = re.findall(f"{LETTER}+", rest)
    characters = len(re.findall(r"\w", rest)) - sum(map(len, words))
    is_begun = not re.match(rf"\W*{LETTER}", rest)
    return CHINESE if is_begun or characters >= len(words) else ENGLISH
