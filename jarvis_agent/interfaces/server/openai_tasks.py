"""OpenAI's routes for recordings, speech, vectors and pictures: each call is one task, without a plan.

"auto", and the names of OpenAI's models, which programs send unasked, leave the choice to the selection;
"org/name" is that model of the Hub. A reply names the model that was used in its header `openai-model`, and
as `model` in its JSON. A text is taken as it is written, even if it is the name of a file or a URL.

Source: https://platform.openai.com/docs/api-reference/audio
"""

import asyncio
import base64
import html
import json
import re
import shutil
import struct
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Request, Response, UploadFile
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, field_validator
from sse_starlette import EventSourceResponse
from starlette.exceptions import HTTPException

from jarvis_agent.core.concurrency import cancel_and_wait, gather_limited, run_with_timeout
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import BadInputError, ConfigError, InputError, public_message
from jarvis_agent.core.notes import as_public, limit_of
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource, Task, TaskResult
from jarvis_agent.execution.fallback import HFTaskRunner
from jarvis_agent.execution.inputs import TaskCall
from jarvis_agent.interfaces.common.limits import unless_disconnected
from jarvis_agent.interfaces.common.metrics import observe_call
from jarvis_agent.interfaces.common.uploads_and_outputs import FileUrls
from jarvis_agent.interfaces.server.openai_api import MODEL, OpenAIRoute, openai_error_of, start_stream
from jarvis_agent.interfaces.server.workspaces import Own, Workspace
from jarvis_agent.media.access import describe_file
from jarvis_agent.media.recordings import probe_audio, read_audio, to_pcm, write_sound
from jarvis_agent.media.run_directory import RunDirectory
from jarvis_agent.media.store import ResourceStore

AUTO = "auto"

_SELECTED = re.compile(rf"{AUTO}|{MODEL}|(whisper|tts|gpt|chatgpt|dall-e|text-embedding)-[\w.-]+")
"""Names that leave the choice to the selection."""

SpeechFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
_SOUNDS = {"mp3": "audio/mpeg", "opus": "audio/ogg"}
"""The media types of formats that have another name."""

_TEXTS = {"text": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}
"""The media types of transcripts that are no JSON."""


class SpeechRequest(BaseModel):
    """The body of a request for speech; `voice`, `speed` and `instructions` are ignored."""

    model: str
    input: Annotated[str, Field(min_length=1)]
    response_format: SpeechFormat = "mp3"
    stream_format: Literal["audio"] | None = None


class EmbeddingRequest(BaseModel):
    """The body of a request for embeddings."""

    model: str
    input: Annotated[list[str], Field(min_length=1, max_length=2048)]  # as with OpenAI
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None

    @field_validator("input", mode="before")
    @classmethod
    def _as_texts(cls, value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], int | list):
            raise ValueError(
                "these are tokens of OpenAI's models; send texts; LangChain sends them with "
                "check_embedding_ctx_length=False"
            )
        return [value] if isinstance(value, str) else value


class ImageRequest(BaseModel):
    """The body of a request for pictures; `size`, `quality` and `style` are ignored."""

    model: str | None = None
    prompt: Annotated[str, Field(min_length=1)]
    n: Annotated[int, Field(ge=1, le=10)] | None = None
    response_format: Literal["url", "b64_json"] | None = None
    stream: Literal[False] | None = None


router = APIRouter(prefix="/v1", tags=["openai"], route_class=OpenAIRoute)


async def run_task(
    workspace: Workspace, name: str, model: str, inputs: Sequence[dict[str, Any]], folder: Path | None = None
) -> list[TaskResult]:
    """Run a task outside of a plan, once for each of `inputs`, and write the files to `folder`.

    HTTPException 404: there is no such model or tool; 400 or 500: the model failed. NoCandidateError: no
    model here does this task, or the one that was named cannot. DeadlineError: it took longer than a run may.
    """
    stages = workspace.stateless.stages
    settings = stages.settings
    own = stages.own_runners
    runner = HFTaskRunner(TASKS[name], stages.registry) if own is None else own.get(name)
    if not isinstance(runner, HFTaskRunner):
        raise HTTPException(404, f"the agent of this server has no tool for {name}")
    runner, directory = _pinned(runner, model), RunDirectory(settings, folder)
    context, new_path = RunContext("", restricted=True), partial(directory.new_path, stem=name)

    async def run(number: int) -> TaskResult:
        task = Task(task=name, id=next(stages.calls))  # another number is another seed
        call = TaskCall(task, inputs[number], context, new_path, settings)
        result = await observe_call(name, runner.run(selection, call))
        if result.status != "ok":
            is_refused = result.failure in (BadInputError.__name__, InputError.__name__)
            raise HTTPException(400 if is_refused else 500, as_public(result).error)
        return result

    try:
        # Vectors are compared with those of other requests, so their model depends on no text.
        texts = {key: value for key, value in inputs[0].items() if isinstance(value, str)}
        args = {} if name == "feature-extraction" else texts
        selection = await runner.select(Task(task=name, id=0, args=args), context)
        work = gather_limited(run, range(len(inputs)))
        return await run_with_timeout(settings.budget.run_seconds, work, name, limit_of("JARVIS_BUDGET"))
    finally:
        await asyncio.to_thread(directory.close)


def _pinned(runner: HFTaskRunner, model: str) -> HFTaskRunner:
    """The runner on the model that a client names. Raises HTTPException: it is no model."""
    if _SELECTED.fullmatch(model):
        return runner
    try:
        if "/" not in model or "@" in model:
            raise ConfigError(f"there is no model {model[:100]!r}; use {AUTO!r}, or 'org/name' of the Hub")
        return replace(runner, registry=runner.registry.copy(None, {runner.spec.name: model}, paths=False))
    except ConfigError as error:
        raise HTTPException(404, public_message(error)) from error


async def _transcribe(workspace: Workspace, model: str, file: UploadFile) -> tuple[TaskResult, float]:
    """The transcript of an upload, which is deleted then, and the seconds of the recording."""
    path = workspace.uploads / (await workspace.receive(file)).name
    try:
        described = await asyncio.to_thread(describe_file, path, path.name)
        audio = await ResourceStore(workspace.stateless.settings).resolve(described, "audio")
        (result,) = await run_task(workspace, "automatic-speech-recognition", model, [{"audio": audio}])
        return result, (await asyncio.to_thread(probe_audio, path)).duration
    finally:
        await asyncio.to_thread(shutil.rmtree, path.parent, ignore_errors=True)


async def _transcript_events(work: asyncio.Task[tuple[TaskResult, float]]) -> AsyncIterator[str]:
    """The data of the server-sent events of a transcript; no model here writes it in pieces."""
    try:
        try:
            result, _ = await work
        finally:  # The client may have gone before it ends.
            await cancel_and_wait([work])
        text = result.output["text"]
        yield json.dumps({"type": "transcript.text.delta", "delta": text})
        yield json.dumps({"type": "transcript.text.done", "text": text, "model": result.model})
    except Exception as error:
        yield json.dumps(openai_error_of(error)[1])


def _segments(output: Mapping[str, Any], seconds: float) -> list[dict[str, Any]]:
    """The parts of a transcript with their times; one part, if the model tells no times."""
    chunks = output.get("chunks") or [{"text": output["text"], "timestamp": [0.0, seconds]}]
    times = ((*chunk["timestamp"], " ".join(chunk["text"].split())) for chunk in chunks)
    parts = sorted((start or 0.0, seconds if end is None else end, text) for start, end, text in times)
    return [{"id": i, "start": start, "end": end, "text": text} for i, (start, end, text) in enumerate(parts)]


def _subtitles(segments: Sequence[Mapping[str, Any]], form: str) -> str:
    """The parts as SubRip or WebVTT."""
    mark, escape = (".", html.escape) if form == "vtt" else (",", str)
    cues = [
        f"{'' if form == 'vtt' else part['id'] + 1}\n{_clock(part['start'], mark)} --> "
        f"{_clock(part['end'], mark)}\n{escape(part['text'])}\n"
        for part in segments
    ]
    return "WEBVTT\n" + "".join(cues) if form == "vtt" else "\n".join(cues)


def _clock(seconds: float, mark: str) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}{mark}{thousandths:03}"


def _encode_speech(speech: Resource, form: SpeechFormat, folder: Path) -> bytes:
    """A recording in a format. Blocks."""
    assert speech.path is not None
    if form == "pcm":
        return to_pcm(read_audio(speech.path, 24_000)[0])  # OpenAI's rate, 16-bit mono
    target = folder / f"speech.{'ogg' if form == 'opus' else form}"
    write_sound(speech.path, target)
    return target.read_bytes()


@router.post("/audio/transcriptions", response_model=None)
async def transcribe(
    request: Request,
    workspace: Own,
    file: Annotated[UploadFile, File()],
    model: Annotated[str, Form()],
    response_format: Annotated[Literal["json", "text", "verbose_json", "srt", "vtt"], Form()] = "json",
    language: Annotated[str, Form()] = "",
    stream: Annotated[bool, Form()] = False,
) -> Response:
    """Write down a recording. `prompt` and `temperature` are ignored, `language` is only repeated."""
    work = _transcribe(workspace, model, file)
    if stream:
        return EventSourceResponse(_transcript_events(await start_stream(request, work)), sep="\n")
    result, seconds = await unless_disconnected(request, work)
    output, segments = result.output, _segments(result.output, seconds)
    if response_format in _TEXTS:
        text = output["text"] if response_format == "text" else _subtitles(segments, response_format)
        return Response(f"{text}\n", headers=_named(result), media_type=_TEXTS[response_format])
    content = {"text": output["text"]}
    if response_format == "verbose_json":
        content |= {"task": "transcribe", "language": language, "duration": seconds, "segments": segments}
    return _reply(content, result)


@router.post("/audio/speech", response_model=None)
async def speak(body: SpeechRequest, request: Request, workspace: Own) -> Response:
    """Speak a text."""
    form = body.response_format
    with TemporaryDirectory(prefix="jarvis-", ignore_cleanup_errors=True) as name:
        work = run_task(workspace, "text-to-speech", body.model, [{"text": body.input}], Path(name))
        (result,) = await unless_disconnected(request, work)
        content = await asyncio.to_thread(_encode_speech, result.resources[0], form, Path(name))
    return Response(content, headers=_named(result), media_type=_SOUNDS.get(form, f"audio/{form}"))


@router.post("/embeddings", response_model=None)
async def embed(body: EmbeddingRequest, request: Request, workspace: Own) -> Response:
    """Turn texts into vectors, all by the same model."""
    inputs = [{"text": text} for text in body.input]
    work = run_task(workspace, "feature-extraction", body.model, inputs)
    results = await unless_disconnected(request, work)
    if len(models := {result.model for result in results}) > 1:
        raise HTTPException(503, f"a model failed for some texts; name one of {sorted(map(str, models))}")
    vectors = [result.output for result in results]
    if body.dimensions not in (None, len(vectors[0])):
        raise HTTPException(400, f"dimensions: vectors of {results[0].model} have {len(vectors[0])}")
    if body.encoding_format == "base64":
        packed = [struct.pack(f"<{len(vector)}f", *vector) for vector in vectors]
        vectors = [base64.b64encode(vector).decode() for vector in packed]
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    usage = {"prompt_tokens": 0, "total_tokens": 0}  # experts do not count them
    return _reply({"object": "list", "data": data, "usage": usage}, results[0])


@router.post("/images/generations", response_model=None)
async def draw(body: ImageRequest, request: Request, workspace: Own) -> Response:
    """Make pictures of a text."""
    model = body.model or AUTO
    form = body.response_format or ("url" if model.startswith("dall-e") else "b64_json")
    work = run_task(workspace, "text-to-image", model, [{"text": body.prompt}] * (body.n or 1))
    results = await unless_disconnected(request, work)
    paths = [path for result in results for path in result.paths()]
    if form == "url":
        urls = FileUrls(workspace.runs, request)
        data = [{"url": urls.to_urls(str(path))} for path in paths]
    else:
        contents = [await asyncio.to_thread(path.read_bytes) for path in paths]
        data = [{"b64_json": base64.b64encode(content).decode()} for content in contents]
    return _reply({"created": int(time.time()), "data": data}, results[0])


def _reply(content: dict[str, Any], result: TaskResult) -> JSONResponse:
    return JSONResponse({**content, "model": result.model}, headers=_named(result))


def _named(result: TaskResult) -> dict[str, str]:
    """The header with the name of the model that was used."""
    return {"openai-model": str(result.model)}
