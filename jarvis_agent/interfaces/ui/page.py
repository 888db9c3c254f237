"""The page: its layout and its events, and its server, with the checks of `jarvis serve` and a login.

What a visitor did is in a Visitor, which is state of the Gradio session. The chat and the plan are drawn from
it. Of what a browser sends, only the request, the choices, the edited plan and the names of chats are read.
Chats are directories, named after a secret key that the browser keeps, the login, and a random name.
"""

import asyncio
import html
import json
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, get_args
from weakref import WeakValueDictionary

import gradio as gr
from fastapi import Depends, FastAPI, HTTPException, Request

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.phrases import phrases
from jarvis_agent.core.settings import Policy, ServerSettings
from jarvis_agent.core.sync import run_sync
from jarvis_agent.core.text import brief_text
from jarvis_agent.interfaces.common.access import ApiKey, add_host_checks
from jarvis_agent.interfaces.common.locks import digest
from jarvis_agent.interfaces.common.uploads_and_outputs import delete_expired
from jarvis_agent.interfaces.ui import views
from jarvis_agent.interfaces.ui.visitor import CHAT_FILE, Visitor

_DATA = Path(__file__).parent / "data"
_EXAMPLES = Path(__file__).parents[3] / "examples"
_EXAMPLE_TASKS: dict[str, tuple[str | None, set[str]]] = {
    "example_look": ("cat.jpg", {"image-classification", "canny-control"}),
    "example_read": ("page.png", {"image-to-text", "text-to-speech", "automatic-speech-recognition"}),
    "example_hear": ("speech.wav", {"automatic-speech-recognition"}),
    "example_speak": (None, {"text-to-speech"}),
}
"""Example requests: their files, which only a clone of the repository has, and their tasks."""

_NAME = re.compile(r"[0-9a-f]{32}")
_FONT = ["system-ui", "PingFang SC", "Noto Sans CJK SC", "sans-serif"]
_MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"]
_translated = gr.I18n(**{tag: dict(table) for tag, table in views.TEXTS.items()})
_READ_KEYS = "() => [localStorage.getItem('jarvis-key'), sessionStorage.getItem('jarvis-chat')]"
_KEEP_KEYS = """(key, chat) => {
    localStorage.setItem('jarvis-key', key); sessionStorage.setItem('jarvis-chat', chat)
}"""
HEADERS = {
    # An answer is written by models: a picture in it must not tell another server what was asked.
    "Content-Security-Policy": "default-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
# Events of a visitor that overlap in Gradio's queue can lose a result; only changes of states need the queue.
_DIRECT = _QUIET | {"queue": False}


def page_options(agent: JarvisAgent) -> dict[str, Any]:
    """The options of the page for `gr.mount_gradio_app` and `Blocks.launch`."""
    theme = gr.themes.Soft(primary_hue="indigo", neutral_hue="slate", font=_FONT, font_mono=_MONO)
    return {
        "theme": theme,
        "css": (_DATA / "page.css").read_text(encoding="utf-8"),
        "head": f"<script>{(_DATA / 'page.js').read_text(encoding='utf-8')}</script>",
        "i18n": _translated,
        "footer_links": [],
        "run_history": False,
        "show_error": False,
        "ssr_mode": False,
        "max_file_size": agent.settings.max_file_bytes,
    }


def make_app(agents: Sequence[JarvisAgent], server: ServerSettings) -> FastAPI:
    """A web application with the page at its root. It closes the agents at shutdown."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        for agent in agents:
            await agent.aclose()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    add_host_checks(app, server)
    keys = [ApiKey(key.get_secret_value()) for key in server.api_keys]

    def login(name: str, key: str) -> bool:
        return any(api_key.matches(key.encode()) for api_key in keys)

    def check_login(request: Request) -> None:
        """Check the routes of Gradio that do not."""
        is_unchecked = {"cancel", "heartbeat", "queue", "reset", "stream"} & {*request.url.path.split("/")}
        if is_unchecked and not any(map(request.app.tokens.get, request.cookies.values())):
            raise HTTPException(401, "log in first")

    page, options = Page(agents, server).blocks, page_options(agents[0])
    if keys:
        options |= {"auth": login, "auth_message": "Any name, and an API key as the password."}
        options["app_kwargs"] = {"dependencies": [Depends(check_login)]}
    gr.mount_gradio_app(app, page, path="/", **options)
    return app


class Page:
    """The page of agents that visitors choose from; `blocks` is what Gradio serves."""

    def __init__(self, agents: Sequence[JarvisAgent], server: ServerSettings) -> None:
        """Lay out the page. Its limit of runs at once is for all visitors together; others wait."""
        self._agents, self._max_runs = agents, server.max_concurrent_runs
        self._visitors: WeakValueDictionary[str, Visitor] = WeakValueDictionary()  # Gradio holds them.
        settings = agents[0].settings
        self._directory = settings.output_dir / "ui"
        self._kept = int(server.run_retention(settings))
        cache = (min(self._kept, 3600), self._kept)
        self.blocks = gr.Blocks(title="Jarvis", analytics_enabled=False, fill_width=True, delete_cache=cache)
        # Without it, Gradio takes any path for an upload. `launch` sets it, mounting does not.
        self.blocks.has_launched = True
        with self.blocks:
            self._visitor = gr.State(None, time_to_live=self._kept)
            self._key, self._name = gr.Textbox(visible="hidden"), gr.Textbox(visible="hidden")
            self._proposal, self._decision = gr.State(None), gr.State(None)
            with gr.Sidebar(open=False, width=280, elem_id="menu"):
                self._new = gr.Button(_translated("new_chat"), variant="primary")
                self._chats = gr.Radio(
                    label=_translated("chats"), visible=False, interactive=True, elem_id="chats"
                )
                self._delete = gr.Button(
                    _translated("delete_chat"), size="sm", visible=False, elem_id="delete"
                )
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
            editable="user",
            group_consecutive_messages=False,
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
        script = (_DATA / "plan.js").read_text(encoding="utf-8")
        self._plan = gr.HTML(elem_id="plan", js_on_load=script, apply_default_css=False)
        with gr.Column(visible=False, elem_id="proposal") as panel:
            self._panel = panel
            gr.render(inputs=[self._visitor, self._proposal], triggers=[self._proposal.change])(
                lambda visitor, proposal: show_proposal(visitor, proposal, self._visitor, self._decision)
            )

    def _lay_out_settings(self) -> None:
        settings = self._agents[0].settings
        agents = [(agent.model_name or _translated("no_model"), i) for i, agent in enumerate(self._agents)]
        # Where hosted or local models are excluded, they stay so.
        allowed = [settings.policy] if settings.policy.endswith("-only") else get_args(Policy)
        policies = [(_translated(policy), policy) for policy in allowed]
        with gr.Accordion(_translated("settings"), elem_id="settings"):
            ask_first = gr.Checkbox(False, label=_translated("ask_first"))
            agent = gr.Dropdown(agents, value=0, label=_translated("model"), visible=len(agents) > 1)
            policy = gr.Dropdown(
                policies, value=settings.policy, label=_translated("policy"), visible=len(policies) > 1
            )
            self._choices = (agent, policy, ask_first)  # in the order of `Visitor.ask`

    def _connect(self) -> None:
        drawn = [self._chat, self._plan, self._proposal, self._panel]
        inputs = {self._visitor, self._key, self._name, self._box, *self._choices}
        begin: Any = {"inputs": inputs, "outputs": [self._visitor, self._box, *drawn], **_QUIET}
        run: Any = {"outputs": drawn, "concurrency_limit": self._max_runs, "concurrency_id": "run", **_QUIET}
        runs = [
            event.success(self._run, [self._visitor], **run)
            for event in (
                self._box.submit(self._ask, **begin),
                self._chat.example_select(self._ask_example, **begin),
                self._chat.edit(self._edit, **begin),
                self._plan.select(self._repeat, **begin),
            )
        ]
        runs.append(self._decision.change(self._run, [self._visitor, self._decision], **run))
        for event in runs:
            event.then(self._end, [self._visitor], [self._box, self._chats, self._delete, *drawn], **_DIRECT)
        self._chat.like(self._rate, [self._visitor], **_DIRECT)
        self._box.stop(None, cancels=runs, api_visibility="private")
        keys = [self._key, self._name]
        outputs = [self._visitor, *keys, self._head, self._box, self._chats, self._delete, *drawn]
        start: Any = {"outputs": outputs, **_QUIET}
        self._new.click(self._open, [self._key], cancels=runs, **start)
        self._chats.input(self._open, [self._key, self._chats], cancels=runs, **start)
        self._delete.click(self._forget, keys, cancels=runs, **start)
        self.blocks.load(None, js="() => jarvisMenu()", **_QUIET)
        self.blocks.load(self._open, keys, js=_READ_KEYS, **start)
        self._name.change(None, keys, js=_KEEP_KEYS, **_QUIET)

    def _open(self, request: gr.Request, key: str | None, name: str | None = None) -> tuple[Any, ...]:
        """The chat of this name, which belongs to a key and a login; a new one if there is none."""
        delete_expired(self._directory, self._kept)
        key = key or secrets.token_urlsafe(32)
        name = name if name and _NAME.fullmatch(name) else secrets.token_hex(16)
        visitor = self._find(key, name, request)
        visitor.resume()
        return self._show(visitor, key, name, request)

    def _forget(self, request: gr.Request, key: str, name: str) -> tuple[Any, ...]:
        """Delete a chat, and start another one."""
        visitor = self._find(key, name, request)
        del self._visitors[visitor.directory.name]
        shutil.rmtree(visitor.directory, ignore_errors=True)
        return self._open(request, key)

    def _find(self, key: str, name: str, request: gr.Request) -> Visitor:
        if not _NAME.fullmatch(name or ""):  # A path would leave the directory of chats.
            raise InputError("this is no name of a chat")
        directory = self._directory / f"{digest(repr((request.username, key)))}-{name}"
        visitor = self._visitors.get(directory.name) or Visitor(self._agents, directory)
        self._visitors[directory.name] = visitor
        return visitor

    def _show(self, visitor: Visitor, key: str, name: str, request: gr.Request) -> tuple[Any, ...]:
        """The whole page."""
        text = _texts(request)
        examples: Any = [
            {"text": text(name), "files": [self._publish(file)] if file else []}
            for name, file in self._examples().items()
        ]
        more = text("welcome_more") if self._agents[0].model_name else text("welcome_no_model")
        welcome = f"# {text('welcome')}\n{more}"
        # The messages may be in another language, and the copies of their files expire.
        for turn in visitor.turns:
            turn.messages = None
        messages, *others = self._draw(visitor, request)
        chat = gr.Chatbot(messages, placeholder=welcome, examples=examples)
        head = f"<h1>Jarvis</h1><p>{text('tagline')}</p>"
        return visitor, key, name, head, _box(busy=False), *self._listed(visitor), chat, *others

    def _examples(self) -> dict[str, Path | None]:
        """The examples that can run here, by the names of their texts, with their files. Blocks."""
        runnable = run_sync(self._agents[0].stages.registry.available_tasks)
        return {
            name: _EXAMPLES / file if file else None
            for name, (file, tasks) in _EXAMPLE_TASKS.items()
            if tasks <= runnable.keys() and (file is None or (_EXAMPLES / file).is_file())
        }

    def _listed(self, visitor: Visitor) -> tuple[gr.Radio, gr.Button]:
        """The chats of a visitor, the newest first, and whether this one can be deleted."""
        owner, current = visitor.directory.name.split("-")
        files = sorted(self._directory.glob(f"{owner}-*/{CHAT_FILE}"), key=lambda file: -file.stat().st_mtime)
        chats = [(title, file.parent.name.split("-")[1]) for file in files if (title := _title(file))]
        is_stored = any(name == current for _, name in chats)
        listed = gr.Radio(chats, value=current if is_stored else None, visible=bool(chats))
        return listed, gr.Button(visible=is_stored)

    def _ask(self, fields: dict[Any, Any], request: gr.Request) -> Any:
        """Add a turn, which `_run` then runs. While another one runs, the request stays in its box."""
        # Gradio drops a visitor who did nothing for the time of retention.
        visitor = fields[self._visitor] or self._find(fields[self._key], fields[self._name], request)
        message = fields[self._box]
        files = [Path(file) for file in message["files"]]
        if visitor.running is not None or not (message["text"].strip() or files):
            return gr.skip()
        try:
            visitor.ask(message["text"], files, *(fields[choice] for choice in self._choices))
        except OSError as error:
            raise gr.Error(_texts(request)("not_stored", reason=error.strerror)) from error
        return visitor, _box(busy=True, value=None), *self._draw(visitor, request)

    def _ask_example(self, fields: dict[Any, Any], chosen: gr.SelectData, request: gr.Request) -> Any:
        """As `_ask`. Of what the browser sends, only the text is read: other examples may run by now."""
        text = str(chosen.value["text"])
        examples = {
            table[name]: file for name, (file, _) in _EXAMPLE_TASKS.items() for table in views.TEXTS.values()
        }
        message = {"text": text, "files": [str(_EXAMPLES / file)] if (file := examples.get(text)) else []}
        return self._ask({**fields, self._box: message}, request)

    def _edit(self, fields: dict[Any, Any], edited: gr.EditData, request: gr.Request) -> Any:
        """Ask an earlier request again, perhaps in other words. The turns since then are dropped."""
        visitor = fields[self._visitor]
        if visitor is None or visitor.running is not None or not visitor.turns:
            return gr.skip()
        message: Any = edited.index
        files = visitor.rewind(int(message)).files
        box = {"text": html.unescape(str(edited.value)), "files": files}
        return self._ask({**fields, self._box: box}, request)

    def _repeat(self, fields: dict[Any, Any], chosen: gr.SelectData, request: gr.Request) -> Any:
        """Run a task again with the model that was chosen for it in the plan."""
        visitor = fields[self._visitor]
        if visitor is None or visitor.running is not None:
            return gr.skip()
        number, task = chosen.index
        visitor.repeat(number, task, chosen.value, *(fields[choice] for choice in self._choices))
        return visitor, _box(busy=True), *self._draw(visitor, request)

    def _rate(self, visitor: Visitor | None, liked: gr.LikeData) -> None:
        """Keep a thumb up or down. Gradio shows it; where nothing can be rated, nothing is kept."""
        message: Any = liked.index
        if visitor is not None and visitor.turns and isinstance(liked.liked, bool):
            with suppress(InputError):
                visitor.rate(int(message), liked.liked)

    async def _run(
        self, visitor: Visitor, request: gr.Request, decision: dict[str, Any] | None = None
    ) -> AsyncIterator[tuple[Any, ...]]:
        async with aclosing(visitor.run(decision and decision["plan"])) as steps:
            async for _ in steps:
                yield await asyncio.to_thread(self._draw, visitor, request)

    def _end(self, visitor: Visitor, request: gr.Request) -> tuple[Any, ...]:
        """Free the box. A request that failed returns to it."""
        box = _box(busy=False)
        if visitor.turns and (lost := visitor.turns[-1]).trouble is not None:
            files = [self._publish(file) for file in lost.files]
            box = _box(busy=False, value={"text": lost.request, "files": files})
        return box, *self._listed(visitor), *self._draw(visitor, request)

    def _draw(self, visitor: Visitor, request: gr.Request) -> tuple[Any, ...]:
        """The chat, the plan, the proposal, and whether that is visible."""
        text = _texts(request)
        view = views.ChatView(visitor, text, self._publish)
        proposal = visitor.turns[-1].proposal if visitor.turns else None
        proposal = proposal and {**proposal, "language": _language(request)}
        # Two changes in a row would draw the last one twice, and a click on the first drawing is an error.
        kept = gr.skip() if visitor.running else proposal
        return view.messages(), view.plan(), kept, gr.Column(visible=proposal is not None)

    def _publish(self, file: Path) -> str:
        """Copy a file to the cache of Gradio, whose folders are named after the contents of files."""
        return str(self._chat.move_resource_to_block_cache(file))


def _title(file: Path) -> str:
    """The first request of a stored chat, as far as it can be read; "" if it has none."""
    with file.open("rb") as lines:
        first = next(lines, b"")
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        return brief_text(json.loads(first)["request"], 40) or "…"
    return "…" if first else ""


def _box(*, busy: bool, **value: Any) -> gr.MultimodalTextbox:
    return gr.MultimodalTextbox(submit_btn=not busy, stop_btn=busy, **value)


def _texts(request: gr.Request) -> views.Texts:
    return views.texts_for(_language(request))


def _language(request: gr.Request) -> str:
    """That of the browser, whose labels Gradio translates."""
    return str(request.headers.get("accept-language", ""))


def show_proposal(
    visitor: Visitor | None, proposal: dict[str, Any] | None, state: gr.State, decision: gr.State
) -> None:
    """Lay out a plan that waits for the visitor: a checkbox for each task, and a field for each input.

    `shown` is what `ThreadState.waiting` has, and the "language" of the visitor. `decision` gets
    `{"plan": …}` with True, False, or the tasks that are left, as changed.
    """
    # Gradio keeps functions longer than states, so they hold no visitor but take the one in `asked`.
    if visitor is None or proposal is None:
        return
    text = views.texts_for(proposal["language"])
    gr.Markdown(text("proposal"))
    gr.Markdown(text("proposal_help"))
    translated = phrases(text("plan")).translated
    for note in proposal.get("notes", ()):
        gr.Markdown(f"ℹ\ufe0e {views.escape(visitor.clean(translated(note)))}")
    if problem := proposal.get("problem"):
        gr.Markdown(f"⚠️ {views.escape(visitor.clean(problem))}")
    # A plan that cannot run is shown as the visitor changed it.
    tasks = proposal.get("given", proposal["plan"])
    fields: list[Any] = []
    choices = [(name, name) for name in visitor.file_names]
    titles = {task["id"]: views.title_of(task["id"], task["task"]) for task in tasks}
    for task in tasks:
        with gr.Group():
            fields.append(gr.Checkbox(True, label=titles[task["id"]], interactive=True))
            fields += [
                _field(name, visitor.clean(views.as_text(value)), choices)
                for name, value in task["args"].items()
            ]
        choices.append((f"← {titles[task['id']]}", f"<resource>-{task['id']}"))
    with gr.Row(elem_id="decision"):
        run = gr.Button(text("run"), variant="primary", elem_id="run-plan")
        reject = gr.Button(text("reject"), elem_id="reject-plan")

    def decided(plan: Any) -> dict[str, Any]:
        # The number makes each decision a change of the state.
        return {"plan": plan, "number": secrets.token_hex(4)}

    def read(visitor: Visitor, *values: Any) -> dict[str, Any]:
        answers, edited = iter(values), []
        for task in tasks:
            is_kept = next(answers)
            args = {name: _changed(value, next(answers), visitor) for name, value in task["args"].items()}
            edited += [{**task, "args": args}] if is_kept else []
        return decided(True if edited == proposal["plan"] else edited)

    run.click(read, [state, *fields], decision, api_visibility="private")
    reject.click(lambda: decided(False), None, decision, api_visibility="private")


def _field(name: str, text: str, choices: Sequence[tuple[str, str]]) -> gr.Dropdown | gr.Textbox:
    """A choice of files and earlier results for an input that is one of them, or a text box."""
    if any(text == value for _, value in choices):
        return gr.Dropdown(choices, value=text, label=name, interactive=True, allow_custom_value=True)
    return gr.Textbox(text, label=name, interactive=True, max_lines=6)


def _changed(value: Any, text: str, visitor: Visitor) -> Any:
    """The value of a text box; the original one if the text is what was shown for it."""
    if text == visitor.clean(views.as_text(value)):
        return value
    with suppress(ValueError):
        return text if isinstance(value, str) else json.loads(text)
    return text
