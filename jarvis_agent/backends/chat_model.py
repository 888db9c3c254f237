"""Chat models as experts: they write, translate, summarise, sort and answer, and some look and listen.

The chat model of a candidate is that of its `base_url`, an OpenAI-compatible server, where its id is the name
of the model; or the GGUF file at its `path`; or the agent's own. The prompt for each task is a row of
PROMPTS. The reply is data: the model gets no tools, and no instruction in its reply is followed.
"""

import asyncio
import base64
import csv
import io
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, cast

from langchain_core.messages import HumanMessage

from jarvis_agent.backends.base import Call, beginning, labels_of, reads_text, split_text, text_of
from jarvis_agent.backends.jobs import Activity, Generation, listed
from jarvis_agent.backends.languages import find_language
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import BadInputError, MissingExtraError, UnsupportedError
from jarvis_agent.core.images import to_portable
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.llm.chat_model import local_model, model_name, openai_model
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.llm.replies import read_json
from jarvis_agent.llm.tokens import count_tokens
from jarvis_agent.llm.usage import STAGE_KEY

STAGE = "expert"
"""The stage of these calls in `Run.usage`."""

CLASSIFICATION = ("text-classification", "zero-shot-classification")
WRITING = ("text-generation", "translation", "summarization", "question-answering")
TEXT_TASKS = (*WRITING, *CLASSIFICATION, "token-classification", "table-question-answering")
IMAGE_TASKS = (
    "image-to-text",
    "visual-question-answering",
    "document-question-answering",
    "image-text-to-text",
)
AUDIO_TASKS = ("automatic-speech-recognition", "audio-text-to-text")

MAX_FILE_BYTES = 20_000_000
"""Bytes of a file in a message; the usual limit of servers."""

LEAST_BYTES = 1_000_000_000
"""Bytes of the smallest GGUF file that sorts texts by labels: half of that was wrong for a third of ours."""

GGUF_OPTIONS: Mapping[str, Any] = {"max_tokens": 400, "extra_body": {"repeat_penalty": 1.1}}
"""A processor writes a reply in about a minute. Without the penalty, very small models repeat themselves."""

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_FILES = ("image", "audio", "video", "file")

_LABEL = (
    'Give the text below the label that fits best: {asked}.\nAnswer with JSON: {{"label": "…"}}\n\n{text}'
)
_BRIEFLY = "Answer in as few words as possible: {text}"

PROMPTS: dict[str, str] = {
    "text-generation": "{text}",
    "translation": (
        "Translate the following text{languages}, completely, in natural sentences. "
        "Answer with the translation alone.\n\n{text}"
    ),
    "summarization": (
        "Summarize the following text in its own language. Length: {length}. "
        "Answer with the summary alone.\n\n{text}"
    ),
    "question-answering": (
        "Answer the question from the context alone, in as few words as possible.\n\n"
        "Context:\n{context}\n\nQuestion: {text}"
    ),
    "table-question-answering": (
        "Answer the question from the table alone, in as few words as possible.\n\n"
        "Table, as CSV{limits}:\n{table}\n\nQuestion: {text}"
    ),
    "text-classification": _LABEL,
    "zero-shot-classification": _LABEL,
    "token-classification": (
        "Find {asked} in the text below, each as it is written there, in the order of the text.\n"
        'Answer with JSON: {{"entities": [{{"word": "…", "entity_group": "…"}}]}}\n\n{text}'
    ),
    "image-to-text": "Describe the image in one sentence.",
    "visual-question-answering": _BRIEFLY,
    "document-question-answering": _BRIEFLY,
    "image-text-to-text": "{text}",
    "automatic-speech-recognition": "Write down what is said in the recording, word for word, alone.",
    "audio-text-to-text": "{text}",
    "any-to-any": "{text}",
}
"""The tasks that chat models do well, and the prompt for each."""


def user_message(inputs: Mapping[str, Any], text: str | None = None) -> HumanMessage:
    """A message with `text` (default: the argument of that name) and the images and recordings of the inputs.

    Raises BadInputError: a file is too large; UnsupportedError: no message can contain a file of its kind.
    """
    prompt = str(inputs.get("text") or "") if text is None else text
    files = [value for value in inputs.values() if isinstance(value, Resource) and value.kind in _FILES]
    content: Any = [{"type": "text", "text": prompt}, *map(_content_block, files)] if files else prompt
    return HumanMessage(content, additional_kwargs={STAGE_KEY: STAGE})


def _content_block(file: Resource) -> dict[str, Any]:
    mime = file.mime or ("image/png" if file.kind == "image" else "")
    if file.path is None or (file.kind != "image" and mime not in _AUDIO_FORMATS):
        raise UnsupportedError(f"a chat message cannot contain {mime or file.kind}")
    size = file.path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise BadInputError(
            f"{file.path.name} has {size:,} bytes, more than {MAX_FILE_BYTES:,}; make it smaller"
        )
    if file.kind == "image":
        content, mime = to_portable(file.path, mime)
        return {"type": "image", "base64": base64.b64encode(content).decode(), "mime_type": mime}
    return {**file.to_content_block(), "mime_type": f"audio/{_AUDIO_FORMATS[mime]}"}


class ChatModelBackend:
    """Runs candidates that are chat models. `own` is the agent's language model."""

    name: ClassVar[str] = "chat-model"
    local: ClassVar[bool] = False

    def __init__(self, settings: Settings, pool: ModelPool) -> None:
        self.own: LLMClient | None = None
        self._settings = settings
        self._pool = pool
        self._clients: dict[tuple[str, ...], LLMClient] = {}

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        if spec.name not in PROMPTS:
            return f"a chat model does not do {spec.name} here"
        if "base_url" in candidate.metadata:
            if self._settings.offline and not candidate.local:
                return "offline mode is on"
            variable = candidate.metadata.get("api_key_env")
            if variable and not os.environ.get(variable):
                return f"the environment variable {variable} for its key is not set"
            return None
        if candidate.path is not None and candidate.path.suffix == ".gguf":
            if spec.name not in TEXT_TASKS:
                return "a GGUF file reads texts alone here"
            if spec.name in CLASSIFICATION and (candidate.size or 0) < LEAST_BYTES:
                return "models of less than 1 GB chose too many wrong labels"
            if find_spec("xllamacpp") is None:
                return str(MissingExtraError(f"{candidate.id} on this machine", "llm"))
            return None
        if self.own is None or candidate.id != model_name(self.own.model):
            return "it is no chat model: it has neither the base_url of a server nor a GGUF file"
        return None

    async def run(self, call: Call) -> Any:
        """Call the model: once, or for a long text once for each part of it.

        LLMError: the model failed, refused or was silent. UnsupportedError: its reply lacks the form asked
        for.
        """
        model = call.candidate
        client = await asyncio.to_thread(self._client, model, call.settings)
        usual = {"seed": call.settings.seed} if "base_url" in model.metadata else {}
        options = {**(GGUF_OPTIONS if model.path else usual), **(model.metadata.get("options") or {})}
        expert = ChatExpert(client, call, options, room=await client.window() // 2)
        return await _EXPERTS.get(call.spec.name, ChatExpert.answer)(expert)

    async def close(self) -> None:
        """Free the GGUF files that only this backend uses."""
        self._clients.clear()

    def _client(self, candidate: Candidate, settings: Settings) -> LLMClient:
        """The client for a candidate, made once: it remembers what a server rejects. Takes seconds."""
        base_url, path = candidate.metadata.get("base_url"), candidate.path
        if base_url is None and path is None:
            return cast("LLMClient", self.own)
        # The client requires a key also for a server that needs none.
        api_key = os.environ.get(candidate.metadata.get("api_key_env") or "") or "none"
        key = (candidate.id, str(base_url or path), api_key)
        if key in self._clients:
            return self._clients[key]
        if base_url is not None:
            model: Any = openai_model(candidate.id, settings, base_url, api_key)
        else:  # a GGUF file, which the agent's own model may have loaded
            model = getattr(self.own.model, "bound", self.own.model) if self.own else None
            if getattr(model, "path", None) != path:
                model = local_model(cast("Any", path), settings)
            with listed(Activity(candidate.id)):
                model.load()
            self._pool.leave_room(model.llama)
            # It is silent while it answers another call; the attempt has a time limit of its own.
            settings = settings.model_copy(update={"llm_timeout": settings.attempt_timeout})
        self._clients[key] = LLMClient(model, settings)
        return self._clients[key]


@dataclass(slots=True)
class ChatExpert:
    """A chat model at one task. Texts are read in parts of at most `room` tokens, half of its window."""

    client: LLMClient
    call: Call
    options: Mapping[str, Any]
    room: int

    async def answer(self) -> str:
        """The reply to the prompt, about what of the text fits."""
        call, inputs = self.call, dict(self.call.inputs)
        left = self.room
        for name in ("text", "context") if call.spec.name in TEXT_TASKS else ():
            if name in inputs:
                inputs[name] = self._fitting(text_of(call, name), left)
                left = max(1, left - count_tokens(inputs[name]))
        return await self.ask(_prompt(call, inputs))

    async def answer_table(self) -> str:
        """The answer to a question on as many rows of a table as fit."""
        cells = (await asyncio.to_thread(self.call.table)).cells
        lines, left, limits = [_csv_line(list(cells))], self.room, ""
        for row in zip(*cells.values(), strict=True):
            line = _csv_line(row)
            left -= count_tokens(line)
            if left < 0:
                break
            lines.append(line)
        read, total = len(lines) - 1, len(next(iter(cells.values()), []))
        if read < total:
            limits = f", the first {read:,} of {total:,} rows"
            rows = "the first {number:,} of {total:,} rows were read"
            self.call.notes.append(Note(rows, number=read, total=total))
        inputs = {"text": text_of(self.call), "table": "".join(lines)}
        return await self.ask(_prompt(self.call, inputs, limits=limits))

    async def translate(self) -> str:
        """The translation of a text, part by part."""
        most = self.options.get("max_tokens", self.room)
        parts = split_text(text_of(self.call), min(2 * self.room // 3, 2 * most // 3), count_tokens)
        # A part keeps the white space at its end, which stands between it and the next.
        replies = [(await self.ask(_prompt(self.call, {"text": part})), part) for part in parts]
        return "".join(reply.strip() + part[len(part.rstrip()) :] for reply, part in replies)

    async def summarize(self) -> str:
        """The summary of a text, or of the summaries of its parts."""
        text = text_of(self.call)
        while len(parts := split_text(text, self.room, count_tokens)) > 1:
            replies = [await self.ask(_prompt(self.call, {"text": part}, length=_SHORT)) for part in parts]
            if count_tokens(shorter := "\n\n".join(replies)) >= count_tokens(text):
                raise UnsupportedError(f"{self.call.candidate.id} makes this text no shorter")
            text = shorter
        return await self.ask(
            _prompt(self.call, {"text": text}, length=str(self.call.inputs.get("length") or _SHORT))
        )

    async def classify(self) -> Any:
        """[{label, score: None}] of the label that is chosen: a chat model knows no probabilities."""
        call, labels = self.call, self._labels()
        question = f"one of {', '.join(labels)}" if labels else call.purpose
        prompt = _prompt(call, {"text": self._fitting(text_of(call), self.room)}, asked=question)
        kind = {"type": "string", "enum": labels} if labels else {"type": "string"}
        reply = await self.ask(prompt, object_schema({"label": kind}))
        label = str(_value_in(reply, "label") or reply).strip()
        known = {name.casefold(): name for name in labels}
        if not label or (labels and label.casefold() not in known):
            raise UnsupportedError(f"{call.candidate.id} chose none of the labels: {brief_text(reply)}")
        return [{"label": known.get(label.casefold(), label), "score": None}]

    def _labels(self) -> list[str]:
        """The labels to choose from; [] if the purpose of the task says what a label is."""
        if self.call.spec.arg("labels"):
            return labels_of(self.call)
        return [] if self.call.purpose else ["positive", "negative", "neutral"]

    async def find_entities(self) -> Any:
        """[{entity_group, score: None, word, start, end}] of what the text has; other words are left out."""
        call, entities = self.call, list[dict[str, Any]]()
        question = (
            call.purpose or "the names of people (PER), organisations (ORG), places (LOC) and others (MISC)"
        )
        groups = {} if call.purpose else {"enum": ["PER", "ORG", "LOC", "MISC"]}
        group = {"type": "string", **groups}
        entity = object_schema({"word": {"type": "string"}, "entity_group": group})
        schema = object_schema({"entities": {"type": "array", "items": entity}})
        begin = 0
        for part in split_text(text_of(call), self.room, count_tokens):
            reply = await self.ask(_prompt(call, {"text": part}, asked=question), schema)
            named = _value_in(reply, "entities")
            if not isinstance(named, list):
                raise UnsupportedError(f"{call.candidate.id} wrote no list of names: {brief_text(reply)}")
            entities += _located(named, part, begin)
            begin += len(part)
        return entities

    async def ask(self, prompt: str, schema: Mapping[str, Any] | None = None) -> str:
        """The reply to a prompt and the files of the call."""
        call, reason = self.call, None
        message = await asyncio.to_thread(user_message, call.inputs, prompt)
        progress = Generation(call.candidate.id, self.options.get("max_tokens", self.room))
        stage = self.client.for_stage(STAGE, schema=schema)
        stream = cast("Any", stage.astream([message], **self.options))
        with listed(progress):
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    progress.add(str(chunk.text))
                    reason = chunk.response_metadata.get("finish_reason", reason)
        if reason == "length" and schema is None:
            call.notes.append(Note("the text was cut at the longest reply of the model"))
        return progress.text

    def _fitting(self, text: str, room: int) -> str:
        """The beginning of a text that fits, with a note if that is not all."""
        first = beginning(text, room, count_tokens)
        if len(first) < len(text):
            read = "the first {number:,} of {total:,} characters were read"
            self.call.notes.append(Note(read, number=len(first), total=len(text)))
        return first


_SHORT = "a few sentences"

_EXPERTS: dict[str, Callable[[ChatExpert], Coroutine[Any, Any, Any]]] = {
    "translation": ChatExpert.translate,
    "summarization": ChatExpert.summarize,
    "text-classification": ChatExpert.classify,
    "zero-shot-classification": ChatExpert.classify,
    "token-classification": ChatExpert.find_entities,
    "table-question-answering": ChatExpert.answer_table,
}
"""The tasks that take more than one call, or a reply in JSON."""


def _prompt(call: Call, inputs: Mapping[str, Any], **words: str) -> str:
    """The text of a message: the task's row of PROMPTS with these inputs."""
    if call.spec.name == "image-to-text" and reads_text(call.inputs):
        return "Write down the text in the image exactly as it stands there, and nothing else."
    if call.spec.name == "image-to-text" and inputs.get("text"):
        return str(inputs["text"])
    named = (str(call.inputs.get(name) or "") for name in ("src_lang", "tgt_lang"))
    source, target = (language.name if (language := find_language(name)) else name for name in named)
    languages = (f" from {source}" if source else "") + f" into {target or 'English'}"
    values = {name: inputs.get(name) or "" for name in ("text", "context", "table")}
    return PROMPTS[call.spec.name].format(**values, languages=languages, **words)


def _csv_line(cells: Sequence[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def object_schema(properties: Mapping[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    """The JSON schema of an object with no other properties; None: all are required."""
    names = list(properties if required is None else required)
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def _value_in(reply: str, name: str) -> Any:
    """The value of that name in the JSON of a reply; None without one."""
    objects = (read.value for read in read_json(reply) if isinstance(read.value, dict))
    return next((value[name] for value in objects if name in value), None)


def _located(named: Sequence[Any], text: str, begin: int) -> list[dict[str, Any]]:
    """The names that a text has, with their places; `begin` is that of the text in the whole."""
    rows, place = list[dict[str, Any]](), 0
    for row in named:
        fields = row if isinstance(row, dict) else {}
        word, group = (str(fields.get(name) or "") for name in ("word", "entity_group"))
        start = text.find(word, place) if word and group else -1
        if start >= 0:
            place = start + len(word)
            where = {"start": begin + start, "end": begin + place}
            rows.append({"entity_group": group, "score": None, "word": word, **where})
    return rows
