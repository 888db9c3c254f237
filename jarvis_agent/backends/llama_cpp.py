"""Language models in GGUF files, run in this process by llama.cpp: they write texts, and sort them by labels.

Raw output: the reply, as of a model on a server; of classifications [{"label": str, "score": float}].
"""

from __future__ import annotations

import json
import math
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, cast

from jarvis_agent.backends.base import Call, labels_of, text_of
from jarvis_agent.backends.hosted.openai_compatible import answer_output, prompt_for
from jarvis_agent.backends.jobs import Generation, add_note, is_cancelled, listed
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.llm.chat_model import local_model

CLASSIFICATION = ("text-classification", "zero-shot-classification")
TEXT_TASKS = ("text-generation", "translation", "summarization", "question-answering", *CLASSIFICATION)

MAX_NEW_TOKENS = 400

LEAST_BYTES = 1_000_000_000
"""Bytes of the smallest model that sorts texts by labels: half of that was wrong for a third of our texts."""

_CHOICE = "{text}\n\nWhich label fits this text: {labels}? Answer with the label alone."


class TextGenerator:
    """The model in the GGUF file `weights`, shared with all that use the file.

    `nbytes` is what the pool counts for it; None: the size of the file.
    """

    nbytes: int | None = None

    def __init__(self, weights: Path, settings: Settings) -> None:
        """Load the model. Raises ExpertError if llama.cpp cannot."""
        self.model = local_model(weights, settings)
        self.model.load()

    def __call__(self, call: Call) -> Any:
        """The reply to the prompt of a task, or labels with their scores."""
        from openai import BadRequestError

        try:
            return self._classify(call) if call.spec.name in CLASSIFICATION else self._write(call)
        except BadRequestError as error:
            raise UnsupportedError(f"{call.candidate.id} cannot read this text: {error}") from error

    def _classify(self, call: Call) -> list[dict[str, Any]]:
        """[{"label": str, "score": float}] in the order of the labels.

        A score is the probability that the model answers with this label, of the sum for all labels: how sure
        the model is, which is not how often it is right. Without `labels` the request names them, or they are
        "positive" and "negative".
        """
        named = labels_of(call) if call.spec.arg("labels") else call.hints.get("labels")
        labels = named or ["positive", "negative"]
        prompt = _CHOICE.format(text=text_of(call), labels=", ".join(labels))
        logs: list[float] = []
        for label in labels:
            if is_cancelled():
                return []
            # Each label is written by force; the prompt is read once, and kept for the others.
            form = {"grammar": f"root ::= {json.dumps(label, ensure_ascii=False)}"}
            most = len(label.encode(errors="replace")) + 1
            reply = self.model.invoke(prompt, logprobs=True, max_tokens=most, extra_body=form)
            logs.append(sum(token["logprob"] for token in reply.response_metadata["logprobs"]["content"]))
        shares = [math.exp(log - max(logs)) for log in logs]
        scores = [share / sum(shares) for share in shares]
        return [{"label": label, "score": score} for label, score in zip(labels, scores, strict=True)]

    def _write(self, call: Call) -> Any:
        if not call.inputs["text"].strip():
            raise BadInputError("there is nothing to answer: the prompt is empty")
        progress = Generation(call.candidate.id, MAX_NEW_TOKENS)
        pieces: list[str] = []
        options: dict[str, Any] = {"max_tokens": MAX_NEW_TOKENS, "extra_body": {"repeat_penalty": 1.1}}
        finish_reason = None
        with (
            listed(progress),
            closing(cast("Any", self.model.stream(prompt_for(call), **options))) as chunks,
        ):
            for chunk in chunks:
                if chunk.text:
                    pieces.append(chunk.text)
                    progress.add(chunk.text)
                finish_reason = chunk.response_metadata.get("finish_reason", finish_reason)
                if is_cancelled():
                    break
        if finish_reason == "length":
            add_note(f"the text was cut at the limit of {MAX_NEW_TOKENS} tokens")
        return answer_output(call.spec, "".join(pieces))


class LlamaCppBackend(LocalBackend):
    """Runs GGUF files that the user names, such as the language model of `jarvis setup`."""

    name = "llama-cpp"
    needs: ClassVar[tuple[str, ...]] = ("xllamacpp",)
    extra = "llm"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return None if the candidate is a GGUF file of this machine and the task is one of texts."""
        if spec.name not in TEXT_TASKS:
            return f"a language model does not do {spec.name} here"
        if candidate.path is None or candidate.path.suffix != ".gguf":
            return "it is not a GGUF file of this machine"
        if spec.name in CLASSIFICATION and (candidate.size or 0) < LEAST_BYTES:
            return "models of less than 1 GB chose too many wrong labels"
        missing = self.lacking(candidate)
        return str(missing) if missing else None

    def server_for(self, candidate: Candidate) -> None:
        """No expert server: the agent has the model in this process."""

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> TextGenerator:
        """Load the model. Raises ExpertError if llama.cpp cannot."""
        expert = TextGenerator(cast("Path", candidate.path), settings)
        # Several tasks and the agent itself use one copy, which the pool counts once in this way.
        self.pool.leave_room(expert.model.llama)
        expert.nbytes = 0
        return expert
