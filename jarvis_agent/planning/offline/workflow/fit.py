"""Clauses generated from templates, and the classifier fitted on them.

    python -m jarvis_agent.planning.offline.workflow   # fits anew, writes data/clauses.npz

Every sixth template is held out from the figures' fit; the weights that are written are fitted on all.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jarvis_agent.planning.offline.workflow.classify import NONE, WEIGHTS, Model, features
from jarvis_agent.planning.offline.workflow.tools import language

if TYPE_CHECKING:
    from jarvis_agent.backends.starter.embeddings import StarterEmbeddings

SEED, EACH, HOLD_OUT = 7, 16, 6
STRENGTH, TOLERANCE, MOST_ROUNDS = 30.0, 1e-6, 5000
"""The inverse of the regularisation (scikit-learn's C), and how far the fit goes: so far that the weights are
the same on every machine, but for rounding."""

_TAILS = ("for me", "as well", "using the image", "based on the text", "from the result")


@dataclass(frozen=True)
class Bank:
    """The templates of each class, and what stands in their slots."""

    slots: Mapping[str, tuple[str, ...]]
    tasks: Mapping[str, tuple[str, ...]]


def load_templates() -> Bank:
    """The templates of data/clauses.json."""
    held = language()
    return Bank(
        slots={name: tuple(values) for name, values in held["slots"].items()},
        tasks={name: tuple(values) for name, values in held["tasks"].items()},
    )


def is_held_out(number: int) -> bool:
    """Whether the template of that place in its class is kept for checks."""
    return number % HOLD_OUT == HOLD_OUT - 1


def filled(template: str, bank: Bank, dice: random.Random) -> str:
    """A template with something in each of its slots."""
    return re.sub(r"\{(\w+)\}", lambda match: dice.choice(bank.slots[match[1]]), template)


def examples(bank: Bank, seed: int, *, held_out: bool | None) -> Iterator[tuple[str, str]]:
    """Clauses, each with its class. `held_out`: of the templates that are held out, of the others, of all.

    What a template becomes hangs on itself alone, so that a new one changes nothing but its own clauses.
    """
    for name, templates in bank.tasks.items():
        for number, template in enumerate(templates):
            if held_out is not None and is_held_out(number) is not held_out:
                continue
            dice = random.Random(f"{seed} {name} {template}")  # noqa: S311 (nothing secret)
            made = {_varied(filled(template, bank, dice), name, dice) for _ in range(EACH)}
            yield from ((text, name) for text in sorted(made))


def parted(bank: Bank, seed: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Clauses to fit on, and those of the held-out templates that no other template makes too."""
    seen, unseen = (list(examples(bank, seed, held_out=held)) for held in (False, True))
    known = {text for text, _ in seen}
    return seen, [(text, name) for text, name in unseen if text not in known]


def digest() -> str:
    """What the stored weights must have been fitted on: the templates and what stands in their slots."""
    held = language()
    return hashlib.sha256(json.dumps([held["slots"], held["tasks"]]).encode()).hexdigest()


def _varied(text: str, name: str, dice: random.Random) -> str:
    """A clause as it may be left after cutting: as a gerund, with words around it."""
    roll = dice.random()
    first, _, rest = text.partition(" ")
    if name != NONE and roll < 0.15 and rest and first not in ("a", "an", "the"):
        return f"{first.rstrip('e')}ing {rest}"
    if name != NONE and roll < 0.22:
        return f"I want {text}"
    if roll < 0.30:
        return f"{text} {dice.choice(_TAILS)}"
    return text


def fit(embedder: StarterEmbeddings, pairs: list[tuple[str, str]]) -> Model:
    """A multinomial logistic regression; every class weighs the same."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    texts, names = zip(*pairs, strict=True)
    seen = features(embedder, texts).astype(np.float64)
    used = seen.any(axis=0)
    fitted = LogisticRegression(C=STRENGTH, tol=TOLERANCE, max_iter=MOST_ROUNDS, class_weight="balanced").fit(
        seen[:, used], names
    )
    weights = np.zeros((seen.shape[1], len(fitted.classes_)), np.float32)
    weights[used] = fitted.coef_.T
    return Model(tuple(str(name) for name in fitted.classes_), weights, fitted.intercept_.astype(np.float32))


def accuracy(model: Model, embedder: StarterEmbeddings, pairs: list[tuple[str, str]]) -> float:
    """The share of clauses whose likeliest class is the right one."""
    best = model.log_odds(embedder, [text for text, _ in pairs]).argmax(axis=1)
    right = [model.names[int(place)] == name for place, (_, name) in zip(best, pairs, strict=True)]
    return sum(right) / len(right)


def store(model: Model) -> None:
    """Write the weights as float16, without pickle, with the digest of what they were fitted on."""
    import numpy as np

    np.savez_compressed(
        WEIGHTS,
        digest=np.array(digest()),
        names=np.array(model.names),
        weights=model.weights.astype(np.float16),
        bias=model.bias.astype(np.float32),
    )


def refit(embedder: StarterEmbeddings) -> tuple[float, Model]:
    """Fit on all templates and write the weights.

    Returns:
        What a fit without the held-out templates comes to: its accuracy on these, and itself.
    """
    seen, unseen = parted(load_templates(), SEED)
    store(fit(embedder, [*seen, *unseen]))
    partial = fit(embedder, seen)
    return accuracy(partial, embedder, unseen), partial
