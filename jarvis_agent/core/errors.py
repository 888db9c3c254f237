"""Every error that jarvis_agent raises or records, in one tree.

    JarvisError
    ├── ConfigError               settings, keys or names that can not work
    │   └── MissingExtraError     an optional package is not installed
    ├── InputError                the request, or a file or URL that it names, can not be used
    │   └── ForbiddenError        a file or URL that this request may not read
    ├── PlanError                 a plan that can not be made or mended
    ├── LLMError                  the language model failed, refused, or timed out
    ├── NoCandidateError          no expert is left for a task
    ├── DeadlineError             time ran out
    └── ExpertError               an expert failed
        ├── TransientError        worth another try (503, dropped connection, timeout)
        │   └── RateLimitedError  worth another try after `retry_after` seconds
        ├── TooSlowError          it did not finish in the time of an attempt
        ├── UnavailableError      it failed again and again, so it is left alone for a while
        ├── OutOfMemoryError      the model does not fit; a smaller one may
        ├── UnsupportedError      this expert can not do this; another one may
        ├── BadInputError         no expert can do this with this input
        └── ExhaustedError        every expert that could do the task has failed

Messages are written for the person who sees them: what was tried, and what to do now. Secrets in them are
masked (jarvis_agent.core.redaction).
Only `ConfigError` and `InputError` leave `JarvisAgent.invoke`; the others are recorded in the run.
What is done after each of them is in RULES.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Literal

from jarvis_agent.core.redaction import redact


class JarvisError(Exception):
    """Base of every error of this package. Its message holds no secrets, whatever it was made with.

    Tracers and checkpointers keep `repr(error)` and `error.args`, so those are masked too.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(redact(arg) if isinstance(arg, str) else arg for arg in args))

    def __str__(self) -> str:
        return redact(super().__str__())


class ConfigError(JarvisError):
    """A setting, key or name is wrong."""


class MissingExtraError(ConfigError):
    """An optional package is missing; the message says which command installs it."""

    def __init__(self, what: str, extra: str) -> None:
        """`what` needs the optional dependencies named `extra` (one of pyproject's extras)."""
        super().__init__(f'{what} needs the extra "{extra}": pip install "langchain-hugginggpt[{extra}]"')
        self.extra = extra


class InputError(JarvisError):
    """The request, or something that it names, can not be used."""


class ForbiddenError(InputError):
    """A file or URL that neither the request nor the settings allow."""


class PlanError(JarvisError):
    """A plan could not be made or mended."""


class LLMError(JarvisError):
    """The language model failed, refused, or did not answer in time."""


class NoCandidateError(JarvisError):
    """No expert can do the task; `rejected` says why, by model id."""

    def __init__(self, message: str, rejected: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.rejected = rejected or {}


class DeadlineError(JarvisError):
    """A run, stage, task or attempt did not finish in its time."""


class ExpertError(JarvisError):
    """An expert failed; the next candidate is tried."""


class TransientError(ExpertError):
    """A failure that another try may not meet."""


class RateLimitedError(TransientError):
    """The provider asks to wait `retry_after` seconds (None: it did not say)."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AttemptTimeoutError(ExpertError):
    """An attempt did not finish in its time."""


class CircuitOpenError(ExpertError):
    """The expert was not asked, since it has failed again and again (see backends.circuit_breaker)."""


class OutOfMemoryError(ExpertError):
    """The model does not fit into the memory of the device."""


class UnsupportedError(ExpertError):
    """This expert can not do what was asked; another may."""


class BadInputError(ExpertError):
    """The input itself is at fault, so no other candidate is tried."""


class AllCandidatesFailedError(ExpertError):
    """Every candidate for a task has failed; its dependants are skipped."""


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """What is done after an error.

    Attributes:
        again: whether the same candidate is tried again, after a growing pause or the one that it asks for.
        others: which of the candidates that are left are tried next.
        counts: whether it counts toward leaving the provider or model alone (backends.circuit_breaker).
        replan: whether another plan could do better where a task failed so.
    """

    again: bool = False
    others: Literal["all", "smaller", "none"] = "all"
    counts: bool = False
    replan: bool = True


ERROR_POLICIES: dict[type[JarvisError], ErrorPolicy] = {
    JarvisError: ErrorPolicy(),
    InputError: ErrorPolicy(others="none"),
    ForbiddenError: ErrorPolicy(others="none", replan=False),
    NoCandidateError: ErrorPolicy(others="none", replan=False),
    TransientError: ErrorPolicy(again=True, counts=True),
    RateLimitedError: ErrorPolicy(again=True),
    AttemptTimeoutError: ErrorPolicy(counts=True),
    CircuitOpenError: ErrorPolicy(),
    OutOfMemoryError: ErrorPolicy(others="smaller"),
    UnsupportedError: ErrorPolicy(),
    BadInputError: ErrorPolicy(others="none"),
    AllCandidatesFailedError: ErrorPolicy(others="none"),
}
"""The rule of each kind of error; a kind that is not here has that of its nearest parent.

Two rules are kept elsewhere, before an error of the kind is raised: the pool evicts idle models where memory
runs out, and the hosted backend asks a model's next provider.
"""


def policy_for(error: JarvisError | type[JarvisError]) -> ErrorPolicy:
    """The rule of an error or of a kind of them."""
    kind = error if isinstance(error, type) else type(error)
    return next(ERROR_POLICIES[parent] for parent in kind.__mro__ if parent in ERROR_POLICIES)


def describe_error(error: BaseException) -> str:
    """An error for people: ours say enough, the others are told with the name of their class."""
    if isinstance(error, JarvisError):
        return str(error)
    name = type(error).__name__
    return f"{name}: {redact(str(error))}" if str(error) else name


def redacted_cause(error: BaseException) -> JarvisError:
    """A stand-in for a foreign error that may hold an address or a key: `raise … from redacted_cause(error)`.

    Whoever prints the traceback of an error prints its causes as they are.
    """
    return JarvisError(describe_error(error)).with_traceback(error.__traceback__)


def format_traceback(error: BaseException) -> str:
    """An error with its traceback, for logs."""
    return redact("".join(traceback.format_exception(error)).rstrip())
