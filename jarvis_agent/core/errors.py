"""Every error that jarvis_agent raises or records, in one tree.

    JarvisError
    ├── ConfigError                       a setting, key or name is wrong
    │   └── MissingExtraError             an optional package is not installed
    ├── InputError                        the request, or a file or URL in it, cannot be used
    │   ├── TooLongError                  the request has too much text
    │   └── ForbiddenError                a file or URL that this request may not read
    ├── PlanError                         a plan cannot be made or repaired
    ├── LLMError                          the language model failed, refused, or timed out
    │   └── BudgetError                   a call would exceed the budget of the run
    ├── NoCandidateError                  no expert can do a task
    ├── DeadlineError                     a run, stage, task or attempt timed out
    └── ExpertError                       an expert failed
        ├── TransientError                retried (503, dropped connection, timeout)
        │   └── RateLimitedError          retried after `retry_after` seconds
        ├── AttemptTimeoutError           an attempt timed out
        ├── OutOfMemoryError              the model does not fit; a smaller one may
        ├── UnsupportedError              this expert cannot do this; another one may
        ├── BadInputError                 the input is at fault; no other candidate is tried
        └── AllCandidatesFailedError      every candidate for the task failed

Each has a `message`, what was tried, and an `advice`, what to do now; its text has both. A server shows the
message alone, without the words of libraries in it. Only `ConfigError`, `InputError` and the `DeadlineError`
of what precedes planning leave `JarvisAgent.invoke`; the run records the others. ERROR_POLICIES states what
follows each of them.
"""

import logging
import os
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from jarvis_agent.core.notes import Note
from jarvis_agent.core.redaction import redact
from jarvis_agent.core.text import brief_text, replace_surrogates

CLONE = Path(__file__).parents[2]
"""The directory that holds this package; it is a clone of the repository if it has pyproject.toml."""


class JarvisError(Exception):
    """Base of every error of this package. Its message, `repr` and `args` hold no secrets.

    Attributes:
        note: the message with its parts, its detail and its advice.
        kind: the name of the class, for programs.
    """

    def __init__(
        self,
        message: str = "",
        /,
        *,
        detail: str | BaseException = "",
        advice: str | Iterable[str] = (),
        **values: Any,
    ) -> None:
        """`message` is the template of a Note if there are values for it.

        Args:
            message: what was tried, in English; or a whole Note.
            detail: the error of a library, or its words, which may name paths.
            advice: what the owner of this machine can do, such as a setting or a command.
            values: those of the names in braces in the message.
        """
        if isinstance(message, Note):
            self.note = message
        else:
            if isinstance(detail, BaseException):
                message, detail = f"{message}{_reason(detail)}", words_of(detail)
            values = {name: redact(part) if type(part) is str else part for name, part in values.items()}
            self.note = Note(redact(message), detail=redact(detail), advice=advice, **values)
        super().__init__(str(self.note))

    def __str__(self) -> str:
        return redact(super().__str__())

    @property
    def message(self) -> str:
        """What was tried, without the advice."""
        return self.note.message

    @property
    def advice(self) -> str:
        """What the owner of this machine can do."""
        return "; ".join(self.note.advice)

    @property
    def kind(self) -> str:
        """The name of the class."""
        return type(self).__name__


class ConfigError(JarvisError):
    """A setting, key or name is wrong."""


class MissingExtraError(ConfigError):
    """An optional package is missing; the message gives the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        """`what` needs the optional dependencies named `extra` (one of pyproject's extras)."""
        helps = install_command(extra)
        super().__init__('{what} needs the extra "{extra}"', what=what, extra=extra, advice=helps)
        self.extra = extra


def install_command(extras: str) -> str:
    """The command that installs extras, for any directory. In a clone, it names the clone's own."""
    if (CLONE / "pyproject.toml").is_file():
        weights = f'"{CLONE / "weights"}" ' if "starter" in extras.split(",") else ""
        return f'pip install {weights}-e "{CLONE}[{extras}]"'
    return f'pip install "langchain-hugginggpt[{extras}]"'


class InputError(JarvisError):
    """The request, or a file or URL in it, cannot be used."""


class TooLongError(InputError):
    """The request has more text than `core.request.MAX_TEXT_BYTES`."""


class ForbiddenError(InputError):
    """Neither the request nor the settings allow this file or URL."""


class PlanError(JarvisError):
    """A plan cannot be made or repaired."""


class LLMError(JarvisError):
    """The language model failed, refused, or timed out."""


class BudgetError(LLMError):
    """A call of the language model or of a hosted expert would exceed the run's budget, and was not made."""


class NoCandidateError(JarvisError):
    """No expert can do the task; `rejected` gives the reasons by model id."""

    def __init__(self, message: str, rejected: dict[str, str] | None = None, **parts: Any) -> None:
        super().__init__(message, **parts)
        self.rejected = rejected or {}


class DeadlineError(JarvisError):
    """A run, stage, task or attempt timed out."""


class ExpertError(JarvisError):
    """An expert failed; the next candidate is tried."""


class TransientError(ExpertError):
    """A failure that may not repeat."""


class RateLimitedError(TransientError):
    """The provider asks to wait `retry_after` seconds (None: it gave no time)."""

    def __init__(self, message: str, retry_after: float | None = None, **parts: Any) -> None:
        super().__init__(message, **parts)
        self.retry_after = retry_after


class AttemptTimeoutError(ExpertError):
    """An attempt timed out."""


class OutOfMemoryError(ExpertError):
    """The model does not fit into the memory of the device."""


class UnsupportedError(ExpertError):
    """This expert cannot do what was asked; another may."""


class BadInputError(ExpertError):
    """The input is at fault, so no other candidate is tried."""


class AllCandidatesFailedError(ExpertError):
    """Every candidate for a task failed; its dependants are skipped."""


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """What follows an error.

    Attributes:
        retry: whether the same candidate is tried again, after a backoff or the pause that it asks for.
        fallback: which of the remaining candidates are tried next.
    """

    retry: bool = False
    fallback: Literal["all", "smaller", "none"] = "all"


ERROR_POLICIES: dict[type[JarvisError], ErrorPolicy] = {
    JarvisError: ErrorPolicy(),
    InputError: ErrorPolicy(fallback="none"),
    NoCandidateError: ErrorPolicy(fallback="none"),
    TransientError: ErrorPolicy(retry=True),
    OutOfMemoryError: ErrorPolicy(fallback="smaller"),
    BadInputError: ErrorPolicy(fallback="none"),
    AllCandidatesFailedError: ErrorPolicy(fallback="none"),
}
"""The policy of each error class; a class without a row has that of its nearest parent."""


FallbackOn = Callable[[JarvisError], bool] | type[JarvisError] | tuple[type[JarvisError], ...]
"""The errors of a model after which the next candidate is tried: their classes, or a predicate."""


def policy_for(error: JarvisError | type[JarvisError]) -> ErrorPolicy:
    """The policy of an error or error class."""
    kind = error if isinstance(error, type) else type(error)
    return next(ERROR_POLICIES[parent] for parent in kind.__mro__ if parent in ERROR_POLICIES)


def describe_error(error: BaseException) -> Note:
    """The note of an error; that of a library's error is the name of its class, with its words as detail."""
    if isinstance(error, JarvisError):
        return error.note
    return Note(f"{type(error).__name__}{_reason(error)}", detail=words_of(error))


def _reason(error: BaseException) -> str:
    """What the number of an error of the system means, in the system's words, which name no file."""
    number = error.errno if isinstance(error, OSError) else None
    return f": {os.strerror(number)}" if number else ""


def public_message(error: BaseException) -> str:
    """What a client of a server may know of an error: our message, or the class of a library's error."""
    return describe_error(error).public


def words_of(error: BaseException) -> str:
    """The text of an error, without secrets. Of pydantic's, the first three faults without links."""
    if isinstance(error, OSError) and error.errno:  # what it means is said without them
        return redact(str(error.filename or ""))
    if isinstance(error, ValidationError):
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        more = [f"… {len(faults) - 3} more"] if len(faults) > 3 else []
        return redact("; ".join(faults[:3] + more))
    return redact(str(error))


def redacted_cause(error: BaseException) -> JarvisError:
    """A redacted copy of a third-party error: `raise … from redacted_cause(error)`."""
    return JarvisError(describe_error(error)).with_traceback(error.__traceback__)


def log_error(logger: logging.Logger, what: str, error: BaseException) -> None:
    """Log an error that a run survives: one line at WARNING, and its traceback at DEBUG.

    A program that configures no logging has warnings on its standard error. A log file takes no surrogates.
    """
    logger.warning("%s: %s", what, replace_surrogates(brief_text(describe_error(error))))
    logger.debug("%s", format_traceback(error))


def format_traceback(error: BaseException) -> str:
    """An error with its traceback, for logs."""
    return redact(replace_surrogates("".join(traceback.format_exception(error)).rstrip()))
