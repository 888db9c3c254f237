"""A plan that waits for the visitor: its tasks with a checkbox, and a field for each of their inputs."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any

import gradio as gr

from jarvis_agent.interfaces.ui.chat_view import escape
from jarvis_agent.interfaces.ui.plan_view import as_text
from jarvis_agent.interfaces.ui.texts import texts_for
from jarvis_agent.interfaces.ui.visitor import Visitor


def show_proposal(
    visitor: Visitor | None,
    shown: dict[str, Any] | None,
    asked: gr.State,
    decision: gr.State,
) -> None:
    """Lay out the plan inside of a `gr.render` function.

    Args:
        visitor: the one who decides.
        shown: what `JarvisAgent.waiting` returns, and the "language" of the visitor.
        asked: has the visitor. Gradio keeps functions longer than states, so they must not hold one.
        decision: gets `{"plan": …}` with True, False, or the tasks that are left, as changed.
    """
    if visitor is None or shown is None:
        return
    text = texts_for(shown["language"])
    gr.Markdown(text("proposal"))
    gr.Markdown(text("proposal_help"))
    if problem := shown.get("problem"):
        gr.Markdown(f"⚠️ {escape(visitor.clean(problem))}")
    tasks = shown.get("given", shown["plan"])  # A plan that cannot run is shown as the visitor changed it.
    fields: list[Any] = []
    choices = [(name, name) for name in visitor.file_names]
    titles = {task["id"]: f"{task['id']} {task['task']}" for task in tasks}
    for task in tasks:
        with gr.Group():
            fields.append(gr.Checkbox(True, label=titles[task["id"]], interactive=True))
            fields += [
                _field(name, visitor.clean(as_text(value)), choices) for name, value in task["args"].items()
            ]
        choices.append((f"← {titles[task['id']]}", f"<resource>-{task['id']}"))
    with gr.Row(elem_id="decision"):
        run = gr.Button(text("run"), variant="primary", elem_id="run-plan")
        reject = gr.Button(text("reject"), elem_id="reject-plan")

    def read(visitor: Visitor, *values: Any) -> dict[str, Any]:
        edited = edited_plan(tasks, values, visitor)
        return _decision(True if edited == shown["plan"] else edited)

    run.click(read, [asked, *fields], decision, api_visibility="private")
    reject.click(lambda: _decision(False), None, decision, api_visibility="private")


def _field(name: str, text: str, choices: Sequence[tuple[str, str]]) -> gr.Dropdown | gr.Textbox:
    """A choice of files and earlier results for an input that is one of them, or a text box."""
    if any(text == value for _, value in choices):
        return gr.Dropdown(choices, value=text, label=name, interactive=True, allow_custom_value=True)
    return gr.Textbox(text, label=name, interactive=True, max_lines=6)


def edited_plan(
    tasks: list[dict[str, Any]], values: tuple[Any, ...], visitor: Visitor
) -> list[dict[str, Any]]:
    """The tasks whose checkbox is set, with the inputs as changed."""
    given, edited = iter(values), []
    for task in tasks:
        is_kept = next(given)
        args = {name: _changed(value, next(given), visitor) for name, value in task["args"].items()}
        if is_kept:
            edited.append({**task, "args": args})
    return edited


def _changed(value: Any, text: str, visitor: Visitor) -> Any:
    """The value of a text box; the original one if the text is what was shown for it."""
    if text == visitor.clean(as_text(value)):
        return value
    if isinstance(value, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _decision(plan: Any) -> dict[str, Any]:
    # The number makes each decision a change of the state.
    return {"plan": plan, "number": secrets.token_hex(4)}
