"""OpenTelemetry spans of a run: run, stage (plan, execute, select, respond), task, attempt, LLM call.

    with span("jarvis.task", {"jarvis.task.name": "translation"}, contents=False) as seen:
        seen.tell({"jarvis.bytes.out": 1200})
        seen.show({"jarvis.inputs": "…"})         # only with contents=True
        seen.fail("ExhaustedError")

Where the program has not imported OpenTelemetry itself, nothing is imported, and where it has set no tracer
provider, nothing is done. Spans hold names, counts and times. What people or models wrote, error messages
too, stands in them only where `contents` is allowed, with what looks like a secret masked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jarvis_agent.core.redaction import redact
from jarvis_agent.core.types import Resource, Usage

_PACKAGE = "jarvis_agent"

Attributes = Mapping[str, str | int | float | bool | None]

_LONGEST = 4000
"""Letters of one attribute that holds contents."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A span that is open, or nothing. `wanted`: whether anybody records it."""

    span: Any = None
    contents: bool = False

    @property
    def wanted(self) -> bool:
        """Whether the span is recorded; what costs time to find out need not be told otherwise."""
        return self.span is not None and bool(self.span.is_recording())

    def tell(self, attributes: Attributes) -> None:
        """Note facts that are no contents; those that are None are left out."""
        if self.wanted:
            self.span.set_attributes({key: value for key, value in attributes.items() if value is not None})

    def show(self, attributes: Mapping[str, Any]) -> None:
        """Note contents, if the settings allow that: requests, arguments, answers, error messages."""
        if self.contents and self.wanted:
            self.tell({key: redact(str(value))[:_LONGEST] for key, value in attributes.items()})

    def fail(self, kind: str, message: str = "") -> None:
        """The work failed with an error of the kind `kind`, the name of its class."""
        if not self.wanted:
            return
        from opentelemetry.trace import Status, StatusCode

        told = redact(message)[:_LONGEST] if self.contents else ""
        self.span.set_status(Status(StatusCode.ERROR, told or kind))
        self.span.set_attribute("error.type", kind)


@contextmanager
def span(
    name: str,
    attributes: Attributes | None = None,
    *,
    contents: bool = False,
    under: Any = None,
    current: bool = True,
) -> Iterator[Seen]:
    """A span around a block; an exception that leaves the block is its error.

    Args:
        name: such as "jarvis.task".
        attributes: as for `Seen.tell`.
        contents: whether it may hold contents.
        under: what `here()` gave where its parent was open; None: the span that is open now.
        current: whether spans that are opened in the block are its children. An asynchronous generator that
            yields within the block sets this False, since it may be closed in another context.
    """
    api = _api()
    if api is None:
        yield Seen()
        return
    known = {key: value for key, value in (attributes or {}).items() if value is not None}
    opened = api.get_tracer(_PACKAGE).start_span(name, context=under, attributes=known)
    seen = Seen(opened, contents)
    try:
        if current:
            with api.use_span(opened, record_exception=False, set_status_on_exception=False):
                yield seen
        else:
            yield seen
    except GeneratorExit:
        # Whoever read the stream had enough of it.
        raise
    except BaseException as error:
        seen.fail(type(error).__name__, str(error))
        raise
    finally:
        opened.end()


def tell(attributes: Attributes) -> None:
    """Note facts on the span that is open now."""
    api = _api()
    if api is not None:
        Seen(api.get_current_span()).tell(attributes)


def counted(usage: Usage) -> Attributes:
    """The calls and tokens of language models, as attributes."""
    return {
        "jarvis.llm.calls": usage.calls,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }


def bytes_of(values: Iterable[Any]) -> int:
    """The sizes of the files among some values, and in lists of them."""
    total = 0
    for value in values:
        if isinstance(value, list | tuple):
            total += bytes_of(value)
        elif isinstance(value, Resource) and value.path is not None and value.path.is_file():
            total += value.path.stat().st_size
    return total


def here() -> Any:
    """The place of the span that is open now, for `span(under=…)`; None where nothing is traced."""
    api = _api()
    return None if api is None else api.set_span_in_context(api.get_current_span())


def _api() -> Any:
    """OpenTelemetry's module of traces, if the program has imported it and set a tracer provider."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None or getattr(api.__spec__, "_initializing", False):
        return None  # not imported, or another thread is in the middle of it
    if isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return None
    return api
