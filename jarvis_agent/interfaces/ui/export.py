"""A chat as one HTML file, with its plans and files inside, which needs no server and loads nothing.

Path("chat.html").write_text(export_chat(visitor, texts_for("en")), "utf-8")
"""

from __future__ import annotations

import html
import mimetypes
from collections.abc import Iterable
from pathlib import Path

from markdown_it import MarkdownIt

from jarvis_agent.core.display import to_html
from jarvis_agent.interfaces.common.progress import shorten
from jarvis_agent.interfaces.ui.plan_view import PlanView
from jarvis_agent.interfaces.ui.texts import Texts
from jarvis_agent.interfaces.ui.visitor import PageTurn, Visitor

_DATA = Path(__file__).parent / "data"
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
"""HTML in an answer is shown as text; a picture in it would be loaded from elsewhere."""


def export_chat(visitor: Visitor, text: Texts) -> str:
    """The turns of a chat that are over, as the visitor sees them. Blocks."""
    view = PlanView(visitor.clean, text)
    turns = [
        f"<article>{''.join(_parts(visitor, view, number, turn))}</article>"
        for number, turn in enumerate(visitor.turns)
        if turn.is_over
    ]
    title = html.escape(shorten(visitor.turns[0].request, 80)) if turns else "Jarvis"
    style = "".join((_DATA / name).read_text(encoding="utf-8") for name in ("page.css", "export.css"))
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width"><style>'
        f'{style}</style></head><body class="gradio-container">{"".join(turns)}</body></html>'
    )


def _parts(visitor: Visitor, view: PlanView, number: int, turn: PageTurn) -> Iterable[str]:
    yield f"<h2>{html.escape(visitor.clean(turn.request))}</h2>"
    for path in turn.files:
        mime = mimetypes.guess_type(path.name)[0]
        yield _file(path, (mime or "").partition("/")[0], mime)
    yield _MARKDOWN.render(visitor.clean(turn.run.answer if turn.run is not None else turn.progress.answer))
    if turn.trouble is not None:
        yield f"<p>⚠️ {html.escape(visitor.clean(str(turn.trouble)))}</p>"
    for resource in turn.run.resources if turn.run is not None else ():
        if resource.path is not None:
            yield _file(resource.path, resource.kind, resource.mime)
    yield f'<div id="plan">{view.turn(number, turn)}</div>'


def _file(path: Path, kind: str, mime: str | None) -> str:
    """A file with its name in place of its path."""
    shown = to_html(path, kind, mime=mime, label=path.name, text=path.name)
    return shown.replace(html.escape(str(path)), html.escape(path.name))
