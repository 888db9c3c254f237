"""The page: its layout and its events.

    page = Page([agent]).blocks
    page.launch(**page_options([agent]))

What a visitor did is in a Visitor, which is state of the Gradio session. The chat and the plan are drawn from
it. Of what a browser sends, only the request, the choices and the edited plan are read.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, get_args
from weakref import WeakValueDictionary

import gradio as gr

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.settings import Policy
from jarvis_agent.interfaces.server.files import delete_expired
from jarvis_agent.interfaces.ui.chat_view import ChatView
from jarvis_agent.interfaces.ui.plan_view import PlanView
from jarvis_agent.interfaces.ui.proposal import show_proposal
from jarvis_agent.interfaces.ui.texts import TEXTS, Texts, texts_for
from jarvis_agent.interfaces.ui.visitor import Choices, Visitor

_DATA = Path(__file__).parent / "data"
_EXAMPLES = Path(__file__).parents[3] / "examples"
_EXAMPLE_FILES = {
    "example_look": "cat.jpg",
    "example_read": "page.png",
    "example_hear": "speech.wav",
    "example_speak": None,
}
"""Requests that the starter models can do, and their files, which only a clone of the repository has."""

_FONT = ["system-ui", "PingFang SC", "Noto Sans CJK SC", "sans-serif"]
_MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
_translated = gr.I18n(**{tag: dict(table) for tag, table in TEXTS.items()})
_QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}


def page_options(agents: Sequence[JarvisAgent]) -> dict[str, Any]:
    """The options of the page for `gr.mount_gradio_app` and `Blocks.launch`."""
    theme = gr.themes.Soft(primary_hue="indigo", neutral_hue="slate", font=_FONT, font_mono=_MONO)
    return {
        "theme": theme,
        "css": (_DATA / "page.css").read_text(encoding="utf-8"),
        "js": (_DATA / "page.js").read_text(encoding="utf-8"),
        "i18n": _translated,
        "footer_links": [],
        "run_history": False,
        "show_error": False,
        "ssr_mode": False,
        "max_file_size": agents[0].settings.max_file_bytes,
    }


class Page:
    """The page of agents that visitors choose from; `blocks` is what Gradio serves."""

    def __init__(self, agents: Sequence[JarvisAgent], max_runs: int = 16) -> None:
        """`max_runs` may run at once, of all visitors together; others wait."""
        self._agents, self._max_runs = agents, max_runs
        self._visitors: WeakValueDictionary[str, Visitor] = WeakValueDictionary()  # Gradio holds them.
        settings = agents[0].settings
        self._directory = settings.output_dir / "ui"
        self._kept = int(max(settings.retention, settings.run_timeout))
        self._examples = {
            name: _EXAMPLES / file if file else None
            for name, file in _EXAMPLE_FILES.items()
            if file is None or (_EXAMPLES / file).is_file()
        }
        cache = (min(self._kept, 3600), self._kept)
        self.blocks = gr.Blocks(title="Jarvis", analytics_enabled=False, fill_width=True, delete_cache=cache)
        with self.blocks:
            self._visitor = gr.State(None, time_to_live=self._kept, delete_callback=self._leave)
            self._key = gr.Textbox(visible="hidden")
            self._proposal, self._decision = gr.State(None), gr.State(None)
            with gr.Sidebar(open=False, elem_id="menu"):
                self._new = gr.Button(_translated("new_chat"), variant="primary")
                self._lay_out_settings()
            self._head = gr.HTML(elem_id="head", apply_default_css=False)
            with gr.Row(elem_id="columns"):
                with gr.Column(scale=3, min_width=320, elem_id="talk"):
                    self._lay_out_chat()
                with gr.Column(scale=2, min_width=320, elem_id="side"):
                    self._lay_out_plan()
            self._connect()

    def _lay_out_chat(self) -> None:
        self._chat = gr.Chatbot(
            label=_translated("chat"),
            show_label=False,
            elem_id="chat",
            height="100%",
            buttons=["copy"],
            layout="bubble",
            latex_delimiters=[],
        )
        self._box = gr.MultimodalTextbox(
            label=_translated("request"),
            show_label=False,
            placeholder=_translated("placeholder"),  # type: ignore[arg-type]
            sources=["upload", "microphone"],
            file_count="multiple",
            max_plain_text_length=10_000,
            elem_id="box",
        )

    def _lay_out_plan(self) -> None:
        self._plan = gr.HTML(
            elem_id="plan",
            js_on_load=(_DATA / "plan.js").read_text(encoding="utf-8"),
            apply_default_css=False,
        )
        with gr.Column(visible=False, elem_id="proposal") as panel:
            self._panel = panel
            gr.render(inputs=[self._visitor, self._proposal], triggers=[self._proposal.change])(
                lambda visitor, shown: show_proposal(
                    visitor, shown, self._visitor, self._decision, _translated
                )
            )

    def _lay_out_settings(self) -> None:
        settings = self._agents[0].settings
        names = [agent.model_name or "" for agent in self._agents]
        with gr.Accordion(_translated("settings"), elem_id="settings"):
            ask_first = gr.Checkbox(False, label=_translated("ask_first"))
            agent = gr.Dropdown(
                [(name or _translated("no_model"), place) for place, name in enumerate(names)],
                value=0,
                label=_translated("model"),
            )
            policy = gr.Dropdown(
                [(_translated(policy), policy) for policy in _policies(settings.policy)],
                value=settings.policy,
                label=_translated("policy"),
            )
            seconds = gr.Slider(
                min(10.0, settings.run_timeout),
                settings.run_timeout,
                value=settings.run_timeout,
                label=_translated("budget"),
            )
            self._choices = (agent, policy, seconds, ask_first)  # as the fields of Choices
            with gr.Accordion(_translated("camera"), open=False):
                self._camera = gr.Image(
                    sources=["webcam"], type="filepath", label=_translated("camera"), show_label=False
                )

    def _connect(self) -> None:
        drawn = [self._chat, self._plan, self._proposal, self._panel]
        begin: Any = {"outputs": [self._visitor, self._box, *drawn], **_QUIET}
        run: Any = {"outputs": drawn, "concurrency_limit": self._max_runs, "concurrency_id": "run", **_QUIET}
        runs = [
            event.success(self._run, [self._visitor], **run)
            for event in (
                self._box.submit(self._ask, {self._visitor, self._box, *self._choices}, **begin),
                self._chat.example_select(self._ask_example, {self._visitor, *self._choices}, **begin),
            )
        ]
        runs.append(self._decision.change(self._decide, [self._visitor, self._decision], **run))
        for event in runs:
            event.then(self._end, [self._visitor], [self._box, *drawn], **_QUIET)
        self._box.stop(None, cancels=runs, api_visibility="private")
        start: Any = {"outputs": [self._visitor, self._key, self._head, self._box, *drawn], **_QUIET}
        self._new.click(self._start, [self._visitor], cancels=runs, **start)
        self.blocks.load(self._open, [self._key], js="() => sessionStorage.getItem('jarvis-chat')", **start)
        self._key.change(None, [self._key], js="key => sessionStorage.setItem('jarvis-chat', key)", **_QUIET)
        self._camera.input(self._add_picture, [self._camera, self._box], [self._camera, self._box], **_QUIET)

    def _open(self, key: str, request: gr.Request) -> tuple[Any, ...]:
        """The chat of a tab that is loaded again, else a new one. A key is good for one login."""
        visitor = self._visitors.get(key)
        if visitor is None or visitor.login != request.username:
            return self._start(None, request)
        visitor.resume()
        return self._show(visitor, request)

    def _start(self, visitor: Visitor | None, request: gr.Request) -> tuple[Any, ...]:
        """A new chat. The files of the chat before it are deleted."""
        if visitor is not None:
            visitor.sessions -= 1
            self._forget(visitor)
        delete_expired(self._directory, self._kept)
        visitor = Visitor(self._agents, self._directory, request.username)
        self._visitors[visitor.key] = visitor
        return self._show(visitor, request)

    def _show(self, visitor: Visitor, request: gr.Request) -> tuple[Any, ...]:
        """The whole page."""
        text = _texts(request)
        examples: Any = [
            {"text": text(name), "files": [self._publish(file)] if file else []}
            for name, file in self._examples.items()
        ]
        welcome = f"# {text('welcome')}\n{text('welcome_more')}"
        messages, *others = self._draw(visitor, request)
        chat = gr.Chatbot(messages, placeholder=welcome, examples=examples)
        head = f"<h1>Jarvis</h1><p>{text('tagline')}</p>"
        return visitor, visitor.key, head, _box(busy=False), chat, *others

    def _leave(self, visitor: Visitor | None) -> None:
        """End a session. The files are deleted with the last one of a chat."""
        if visitor is not None:
            visitor.sessions -= 1
            if visitor.sessions == 0:
                self._forget(visitor)

    def _forget(self, visitor: Visitor) -> None:
        self._visitors.pop(visitor.key, None)
        shutil.rmtree(visitor.directory, ignore_errors=True)

    def _ask(self, given: dict[Any, Any], request: gr.Request) -> tuple[Any, ...]:
        """Add a turn, which `_run` then runs. While another one runs, the request stays in its box."""
        # Gradio drops a visitor who did nothing for the time of retention.
        visitor = given[self._visitor] or Visitor(self._agents, self._directory, request.username)
        asked = given[self._box]
        files = [Path(file) for file in asked["files"]]
        if visitor.running is not None or not (asked["text"].strip() or files):
            return tuple(gr.skip() for _ in range(6))
        try:
            visitor.ask(asked["text"], files, Choices(*(given[choice] for choice in self._choices)))
        except OSError as error:
            raise gr.Error(_texts(request)("not_stored", reason=error.strerror)) from error
        return visitor, _box(busy=True, value=None), *self._draw(visitor, request)

    def _ask_example(
        self, given: dict[Any, Any], chosen: gr.SelectData, request: gr.Request
    ) -> tuple[Any, ...]:
        """As `_ask`. Of what the browser sends, only the number of the example is read."""
        name, file = list(self._examples.items())[int(chosen.index)]
        asked = {"text": _texts(request)(name), "files": [str(file)] if file else []}
        return self._ask({**given, self._box: asked}, request)

    async def _run(self, visitor: Visitor, request: gr.Request) -> AsyncIterator[tuple[Any, ...]]:
        async with aclosing(visitor.run()) as steps:
            async for _ in steps:
                yield await asyncio.to_thread(self._draw, visitor, request)

    async def _decide(
        self, visitor: Visitor, decision: dict[str, Any], request: gr.Request
    ) -> AsyncIterator[tuple[Any, ...]]:
        async with aclosing(visitor.decide(decision["plan"])) as steps:
            async for _ in steps:
                yield await asyncio.to_thread(self._draw, visitor, request)

    def _end(self, visitor: Visitor, request: gr.Request) -> tuple[Any, ...]:
        """Free the box. A request that failed returns to it."""
        box = _box(busy=False)
        if lost := visitor.failed_request:
            files = [self._publish(file) for file in lost["files"]]
            box = _box(busy=False, value={"text": lost["text"], "files": files})
        return box, *self._draw(visitor, request)

    def _add_picture(self, picture: str | None, asked: dict[str, Any]) -> tuple[Any, Any]:
        """Move a picture of the camera to the request."""
        return None, {"text": asked["text"], "files": [*asked["files"], *([picture] if picture else [])]}

    def _draw(self, visitor: Visitor, request: gr.Request) -> tuple[Any, ...]:
        """The chat, the plan, the proposal, and whether that is visible."""
        text = _texts(request)
        plan = PlanView(visitor.clean, text)
        messages = ChatView(visitor, plan, text, self._publish).messages()
        shown = visitor.turns[-1].proposal if visitor.turns else None
        return messages, plan.html(visitor.turns), shown, gr.Column(visible=shown is not None)

    def _publish(self, file: Path) -> str:
        """Copy a file to the cache of Gradio, whose folders are named after the contents of files."""
        return str(self._chat.move_resource_to_block_cache(file))


def _box(*, busy: bool, **value: Any) -> gr.MultimodalTextbox:
    return gr.MultimodalTextbox(submit_btn=not busy, stop_btn=busy, **value)


def _policies(policy: Policy) -> tuple[Policy, ...]:
    """The policies that visitors may choose: where hosted or local models are excluded, they stay so."""
    return (policy,) if policy.endswith("-only") else get_args(Policy)


def _texts(request: gr.Request) -> Texts:
    return texts_for(request.headers.get("accept-language", ""))
