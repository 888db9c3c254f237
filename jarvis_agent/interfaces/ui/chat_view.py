"""The turns of a chat as messages of gr.Chatbot: the request, the progress, the answer, and the files made.

messages = ChatView(visitor, plan_view, texts_for("en"), publish).messages()
"""

from __future__ import annotations

import html
import mimetypes
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jarvis_agent.core.display import to_html
from jarvis_agent.core.errors import JarvisError
from jarvis_agent.core.types import TaskResult
from jarvis_agent.interfaces.common.progress import shorten
from jarvis_agent.interfaces.ui.plan_view import ICONS, PlanView
from jarvis_agent.interfaces.ui.texts import Texts
from jarvis_agent.interfaces.ui.visitor import PageTurn, Visitor

Message = dict[str, Any]
Publish = Callable[[Path], str]
"""Copies a file to where the browser gets it from, and returns its path there."""

_CODE_OR_MARKUP = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]+`)|[<&]", re.DOTALL)


class ChatView:
    """Shows the turns of one visitor in one language."""

    def __init__(self, visitor: Visitor, plan: PlanView, text: Texts, publish: Publish) -> None:
        self._visitor = visitor
        self._clean = visitor.clean
        self._plan = plan
        self._text = text
        self._publish = publish

    def messages(self) -> list[Any]:
        """The messages of all turns. Those of a turn that is over are made once."""
        found: list[Any] = []
        for turn in self._visitor.turns:
            shown = turn.messages or self._messages(turn)
            if turn.is_over:
                turn.messages = shown
            found += shown
        return found

    def _messages(self, turn: PageTurn) -> list[Message]:
        files = [self._file(path, path.name) for path in turn.files if path.is_file()]
        # Gradio lets a visitor edit the last part of a message, if that is a text.
        found: list[Message] = [{"role": "user", "content": [*files, escape(turn.request)]}]
        if turn.progress.tasks or self._visitor.running is turn:
            found.append(self._progress(turn))
        answer = turn.run.answer if turn.run is not None else turn.progress.answer
        texts = [self._shown(answer)]
        made = [one for result in turn.run.results for one in self._files(result)] if turn.run else []
        texts += [text for text, _ in made]
        if turn.proposal is not None:
            texts.append(self._text("waits"))
        if turn.is_stopped:
            texts.append(self._text("was_stopped"))
        if turn.trouble is not None:
            texts.append(self._trouble(turn.trouble))
        content = ["\n\n".join(filter(None, texts)), *(file for _, file in made if file)]
        return [*found, {"role": "assistant", "content": content}] if any(content) else found

    def _progress(self, turn: PageTurn) -> Message:
        """The tasks as a "thought" of Gradio, which is open while the run goes on."""
        rows = list(turn.progress.tasks.values())
        done = sum(row.state == "ok" for row in rows)
        title = self._text("summary", tasks=len(rows), done=done) if rows else self._text("planning")
        lines = []
        for row in rows:
            state = self._plan.state(turn, row)
            seconds = self._plan.seconds(turn.progress, row)
            model = row.result.model if row.result is not None else None
            what = " · ".join(filter(None, [self._text(state), shorten(model or "", 60), seconds]))
            lines.append(
                f"{ICONS[state]} **{row.task.id} {escape(shorten(row.task.task, 60))}** {self._shown(what)}"
            )
        metadata: dict[str, Any] = {"title": title, "status": "done" if turn.is_over else "pending"}
        if turn.run is not None:
            metadata["duration"] = round(turn.run.timings.get("total", 0.0), 1)
            tokens = sum(usage.input_tokens + usage.output_tokens for usage in turn.run.usage.values())
            metadata["log"] = self._text("tokens", number=f"{tokens:,}") if tokens else ""
        return {"role": "assistant", "content": "\n\n".join(lines) or "…", "metadata": metadata}

    def _files(self, result: TaskResult) -> Iterable[tuple[str, Message | None]]:
        """A link to each file that a task made, and the file itself; a table is below its link."""
        for file in result.resources:
            if file.path is None or not file.path.is_file():
                continue
            title = f"{result.task.id} {result.task.task}"
            content = self._file(file.path, title, file.mime)
            # Gradio has a button to download only the first file of a message.
            link = f"gradio_api/file={quote(content['file']['path'])}"
            text = f"**{escape(title)}**: [{escape(file.path.name)}]({link})"
            if file.kind == "table":
                yield f"{text}\n\n{self._clean(to_html(file.path, 'table', mime=file.mime))}", None
            else:
                yield text, content

    def _file(self, path: Path, title: str, mime: str | None = None) -> Message:
        mime = mime or mimetypes.guess_type(path.name)[0]
        file = {"path": self._publish(path), "orig_name": path.name, "mime_type": mime}
        return {"type": "file", "file": file, "alt_text": title}

    def _shown(self, text: str) -> str:
        return escape(self._clean(text))

    def _trouble(self, error: Exception) -> str:
        if isinstance(error, JarvisError):
            return "⚠️ " + self._text("went_wrong", reason=self._shown(str(error)))
        return "⚠️ " + self._text("internal", kind=type(error).__name__)


def escape(text: str) -> str:
    """Markdown whose HTML is shown as it is written: "<resource>-0" is no element, and nothing is hidden."""
    return _CODE_OR_MARKUP.sub(lambda found: found[1] or html.escape(found[0]), text)
