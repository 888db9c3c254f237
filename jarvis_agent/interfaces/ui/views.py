"""What a visitor sees of a chat, in their language: its messages and the last plan.

All names, reasons and results are from models and files. They are escaped, and cleaned of the server's paths.
"""

import html
import json
import mimetypes
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jarvis_agent.core.display import to_html
from jarvis_agent.core.errors import JarvisError, public_message
from jarvis_agent.core.phrases import phrases
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Task, TaskResult
from jarvis_agent.interfaces.common.progress import STYLES, TaskProgress
from jarvis_agent.interfaces.ui.visitor import PageTurn, Visitor, models_of
from jarvis_agent.response.markdown import CODE, to_markdown

ICONS: dict[str, str] = {state: icon for state, (icon, _) in STYLES.items()} | {"stopped": "■"}
_HEIGHT, _ROW, _WIDTH = 78, 116, 120
"""Pixels: a box, a level with the lines below it, the least width of a box."""
_OPEN = frozenset({"planned", "selecting", "waiting", "running"})

Message = dict[str, Any]

_CODE_OR_MARKUP = re.compile(
    rf"(?P<code>{CODE})|(?P<open>`+|!\[)|[<&]", re.DOTALL | re.MULTILINE | re.VERBOSE
)

_DATA = Path(__file__).parent / "data"
TEXTS: Mapping[str, Mapping[str, str]] = tomllib.loads((_DATA / "texts.toml").read_text(encoding="utf-8"))
"""Texts by language tag and name."""

Texts = Callable[..., str]
"""Returns the text of a name, with the names in braces filled in."""

_SHOWN = {f"image/{name}" for name in ("avif", "bmp", "gif", "jpeg", "png", "svg+xml", "webp")}
"""The pictures that browsers show; of a TIFF file, for example, they show nothing."""


def texts_for(accept_language: str) -> Texts:
    """The texts in the first language of the header Accept-Language: Chinese, or English for every other.

    texts_for("zh-CN,zh;q=0.9,en;q=0.8")("summary", tasks=3, done=2)     # "任务：3 个中完成 2 个"
    """
    table = TEXTS["zh-CN" if accept_language.strip().lower().startswith("zh") else "en"]

    def text(name: str, /, **values: object) -> str:
        return table[name].format_map(values) if values else table[name]

    return text


class ChatView:
    """The turns of one visitor in one language: messages, and the last plan as a graph."""

    def __init__(self, visitor: Visitor, text: Texts, publish: Callable[[Path], str]) -> None:
        """`publish` copies a file to where the browser gets it from, and returns its path there."""
        self._visitor = visitor
        self._clean = visitor.clean
        self._text = text
        self._publish = publish
        self._translated = phrases(text("plan")).translated

    def plan(self) -> str:
        """The plan of the last turn, with the details of its tasks unless it waits; "" without tasks."""
        if not self._visitor.turns:
            return ""
        number, turn = len(self._visitor.turns) - 1, self._visitor.turns[-1]
        if turn.proposal is not None:
            tasks = map(Task.model_validate, turn.proposal["plan"])
            return self._graph(number, turn, [TaskProgress(task, "planned") for task in tasks])
        progress, rows = turn.progress, turn.progress.tasks
        if not rows:
            return ""
        notes = [*progress.notes, *(map(str, list(progress.activities)) if not turn.is_over else ())]
        listed = "".join(f"<li>{self._translate(note)}</li>" for note in dict.fromkeys(notes))
        details = "".join(self._details(number, turn, row) for row in rows.values())
        return f'{self._graph(number, turn, list(rows.values()))}<ul class="notes">{listed}</ul>{details}'

    def _state(self, turn: PageTurn, row: TaskProgress) -> str:
        """The state of a task, as a key of ICONS."""
        return "stopped" if turn.is_stopped and row.state in _OPEN else row.state

    def _told(self, turn: PageTurn, row: TaskProgress, *more: str) -> str:
        """The state of a task, more about it, and how long it took or has been running."""
        seconds = None
        if row.result is not None and row.result.attempts:
            seconds = max(row.result.ended - row.result.started, 0.0)
        elif row.state == "running" and row.started is not None:
            seconds = turn.progress.clock() - row.started
        lasted = self._text("seconds", number=seconds) if seconds is not None else ""
        return " · ".join(filter(None, [self._text(self._state(turn, row)), *more, lasted]))

    def _graph(self, number: int, turn: PageTurn, rows: Sequence[TaskProgress]) -> str:
        levels = _levels([row.task for row in rows])
        place = {
            task: ((index + 0.5) / len(level) * 100, depth)
            for depth, level in enumerate(levels)
            for index, task in enumerate(level)
        }
        lines = "".join(
            _line(place[dep], place[row.task.id]) for row in rows for dep in row.task.deps if dep in place
        )
        height, widest = len(levels) * _ROW - _ROW + _HEIGHT, max(map(len, levels))
        boxes = ""
        for row in rows:
            x, depth = place[row.task.id]
            width = 100 / len(levels[depth])
            style = f"left:{x:.2f}%;top:{depth * _ROW}px;width:min({width:.2f}% - 8px, 300px)"
            state, title = self._state(turn, row), self._escape(title_of(row.task.id, row.task.task))
            kind = f"task {state} dependent" if place.keys() & row.task.deps else f"task {state}"
            boxes += (
                f'<button type="button" class="{kind}" style="{style}" data-task="{number}-{row.task.id}">'
                f'<b><i aria-hidden="true">{ICONS[state]}</i> {title}</b>'
                f"<span>{self._escape(_model(row))}</span>"
                f"<small>{self._escape(self._told(turn, row))}</small></button>"
            )
        return (
            f'<div class="scroll"><div class="graph" style="height:{height}px;min-width:{widest * _WIDTH}px">'
            f'<svg viewBox="0 0 100 {height}" preserveAspectRatio="none" aria-hidden="true">{lines}</svg>'
            f"{boxes}</div></div>"
        )

    def _details(self, number: int, turn: PageTurn, row: TaskProgress) -> str:
        return (
            f'<section class="about {self._state(turn, row)}" data-task="{number}-{row.task.id}" hidden>'
            f"<b>{self._escape(title_of(row.task.id, row.task.task))}</b><dl>{''.join(self._facts(row))}"
            f"{self._again(number, row) if turn.is_answered else ''}</dl></section>"
        )

    def _again(self, number: int, row: TaskProgress) -> str:
        """A choice of models to run the task again with; "" if there are no others."""
        used, *others = map(self._escape, models_of(row) or [""])
        if not others:
            return ""
        options = [f'<option value="">{used}</option>', *(f"<option>{model}</option>" for model in others)]
        label, place = self._escape(self._text("again")), f"{number}-{row.task.id}"
        chooser = f'<select aria-label="{label}" data-task="{place}">{"".join(options)}</select>'
        return f"<dt>{label}</dt><dd>{chooser}</dd>"

    def _facts(self, row: TaskProgress) -> Iterable[str]:
        values = [(self._escape(name), as_text(value)) for name, value in row.task.args.items()]
        lines = [f"<div><code>{name}</code> {self._escape(value)}</div>" for name, value in values]
        yield self._fact("input", "".join(lines))
        if (chosen := row.selection) is not None:
            reasons = filter(None, [chosen.reason, chosen.placement])
            why = self._translated("; ").join(map(self._translate, reasons))
            yield self._fact("why", f"<code>{self._escape(chosen.model)}</code> {why}")
        result = row.result
        if result is None:
            return
        if result.status == "ok":
            text, output = result.resource("text"), "\n".join(path.name for path in result.paths())
            if text is not None and text.text is not None:
                output = text.text
            elif result.output is not None and not output:
                output = json.dumps(result.output, ensure_ascii=False, indent=1)
            yield self._fact("output", f"<pre>{self._escape(output)}</pre>{self._pictures(result)}")
        if result.attempts:
            yield self._fact("attempts", f"<ol>{''.join(map(self._attempt, result.attempts))}</ol>")
        if result.error:
            yield self._fact("error", self._translate(result.error))
        for note in result.all_notes:
            yield self._fact("note", self._translate(note))

    def _pictures(self, result: TaskResult) -> str:
        paths = [file.path for file in result.resources if file.kind == "image" and file.path is not None]
        return "".join(
            f'<img src="{_url(self._publish(path))}" alt="{html.escape(path.name)}">'
            for path in dict.fromkeys(paths)
            if path.is_file()
        )

    def _attempt(self, attempt: Any) -> str:
        seconds = self._text("seconds", number=attempt.ended - attempt.started)
        outcome = attempt.error or self._text("ok")
        line = f"{attempt.backend}, {seconds}: {outcome}"
        return f"<li><code>{self._escape(attempt.model)}</code> {self._escape(line)}</li>"

    def _fact(self, name: str, content: str) -> str:
        return f"<dt>{self._escape(self._text(name))}</dt><dd>{content}</dd>"

    def _translate(self, text: str) -> str:
        return self._escape(self._translated(text))

    def _escape(self, text: str) -> str:
        return html.escape(self._clean(text[:4_000]))

    def messages(self) -> list[Any]:
        """The messages of all turns. Those of a turn that is over are made once."""
        messages: list[Any] = []
        for turn in self._visitor.turns:
            drawn = turn.messages or self._messages(turn)
            if turn.is_over:
                turn.messages = drawn
            messages += drawn
        return messages

    def _messages(self, turn: PageTurn) -> list[Message]:
        files = [self._file(path, path.name) for path in turn.files if path.is_file()]
        # Gradio lets a visitor edit the last part of a message, if that is a text.
        messages: list[Message] = [{"role": "user", "content": [*files, escape(turn.request)]}]
        if turn.progress.tasks or self._visitor.running is turn:
            messages.append(self._progress(turn))
        answer, results = turn.run.answer, turn.run.results if turn.is_answered else []
        text, viewers = self._with_files(escape(to_markdown(self._clean(answer), results)), results)
        texts = [text]
        if turn.proposal is not None:
            texts.append(self._text("waits"))
        if turn.is_stopped:
            texts.append(self._text("was_stopped"))
        if isinstance(turn.trouble, JarvisError):
            reason = escape(self._clean(public_message(turn.trouble)))
            texts.append("⚠️ " + self._text("went_wrong", reason=reason))
        elif turn.trouble is not None:
            texts.append("⚠️ " + self._text("internal", kind=type(turn.trouble).__name__))
        content = ["\n\n".join(filter(None, texts)), *viewers]
        return [*messages, {"role": "assistant", "content": content}] if any(content) else messages

    def _progress(self, turn: PageTurn) -> Message:
        """The tasks as a "thought" of Gradio, which is open while the run goes on."""
        rows = list(turn.progress.tasks.values())
        done = sum(row.state == "ok" for row in rows)
        title = self._text("summary", tasks=len(rows), done=done) if rows else self._text("planning")
        lines = []
        for row in rows:
            what = escape(self._clean(self._told(turn, row, brief_text(_model(row), 60))))
            name = escape(brief_text(title_of(row.task.id, row.task.task), 60))
            lines.append(f"{ICONS[self._state(turn, row)]} **{name}** {what}")
        metadata: dict[str, Any] = {"title": title, "status": "done" if turn.is_over else "pending"}
        if turn.is_answered:
            metadata["duration"] = round(turn.run.timings.get("total", 0.0), 1)
            tokens = sum(usage.input_tokens + usage.output_tokens for usage in turn.run.usage.values())
            metadata["log"] = self._text("tokens", number=f"{tokens:,}") if tokens else ""
        return {"role": "assistant", "content": "\n\n".join(lines) or "…", "metadata": metadata}

    def _with_files(self, text: str, results: Sequence[TaskResult]) -> tuple[str, list[Message]]:
        """An answer with links to the files of its results and what they show; and viewers of 3D models."""
        links, pictures, players, viewers = list[str](), list[str](), list[str](), list[Message]()
        for result in results:
            title = escape(title_of(result.task.id, result.task.task))
            for file in result.resources:
                if file.path is None or not file.path.is_file():
                    continue
                name, url = escape(file.path.name), _url(self._publish(file.path))
                link = f"[{name}]({url})".replace("\\", r"\\")
                text, number = re.subn(rf"(?<![\w./\[(`-]){re.escape(name)}(?![\w-])", link, text, count=1)
                links += [] if number else [f"**{title}**: {link}"]
                if mimetypes.guess_type(file.path.name)[0] in _SHOWN:
                    pictures.append(f"[![{title}]({url})]({url})")
                elif file.kind in ("audio", "video"):
                    players.append(f'<{file.kind} controls src="{url}"></{file.kind}>')
                elif file.kind == "table":
                    players.append(self._clean(to_html(file.path, "table", mime=file.mime)))
                elif file.kind == "3d":
                    viewers.append(self._file(file.path, title, file.mime))
        return "\n\n".join(filter(None, [text, *links, " ".join(pictures), *players])), viewers

    def _file(self, path: Path, title: str, mime: str | None = None) -> Message:
        mime = mime or mimetypes.guess_type(path.name)[0] or ""
        mime = mime if mime in _SHOWN or not mime.startswith("image/") else None  # its name is shown
        file = {"path": self._publish(path), "orig_name": path.name, "mime_type": mime}
        return {"type": "file", "file": file, "alt_text": title}


def _levels(tasks: Sequence[Task]) -> list[list[int]]:
    """The ids of the tasks by level; each task is one level after the last of its dependencies."""
    levels: list[list[int]] = []
    level_of: dict[int, int] = {}
    for task in tasks:
        level = level_of[task.id] = 1 + max((level_of.get(dep, -1) for dep in task.deps), default=-1)
        levels += [[]] if level == len(levels) else []
        levels[level].append(task.id)
    return levels


def title_of(number: int, name: str) -> str:
    """The shown title of a task: title_of(0, "image-to-text") is "0 Image to text"."""
    return f"{number} {name[:1].upper()}{name[1:].replace('-', ' ')}"


def _model(row: TaskProgress) -> str:
    """The model of a task without the name of its owner, "" if none is chosen yet."""
    used = row.result.model if row.result is not None else None
    return (used or (row.selection.model if row.selection is not None else "")).rsplit("/", 1)[-1]


def _url(published: str) -> str:
    return f"gradio_api/file={quote(published)}"


def as_text(value: Any) -> str:
    """An argument of a task as the page shows it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _line(start: tuple[float, int], end: tuple[float, int]) -> str:
    """A curve from below one box to the top of another; x is in percent."""
    (x1, level1), (x2, level2) = start, end
    y1, y2 = level1 * _ROW + _HEIGHT, level2 * _ROW
    middle = (y1 + y2) / 2
    return f'<path d="M{x1:.2f} {y1}C{x1:.2f} {middle} {x2:.2f} {middle} {x2:.2f} {y2}"/>'


def escape(text: str) -> str:
    """Markdown whose HTML and images are shown as they are written: nothing is hidden, and nothing loaded."""
    return _CODE_OR_MARKUP.sub(
        lambda match: match["code"] or re.sub(r"([`[])", r"\\\1", match["open"] or html.escape(match[0])),
        text,
    )
