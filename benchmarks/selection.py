"""Ranking 300 models for a purpose once their embeddings are known, beside ordering them by BM25 alone."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

from figures import Figure

from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate
from jarvis_agent.planning.retrieval import bm25, cached_grams, letter_grams
from jarvis_agent.selection.purpose import Purpose
from jarvis_agent.selection.ranking import CardVectors, card_text, score_candidates
from jarvis_agent.selection.store import SelectionStore

SUBJECTS = ("chest xray", "birds", "food", "licence plates", "plant disease", "satellite", "faces", "cars")
REQUEST = Purpose("Does this chest X-ray show pneumonia?", ("chest", "ray", "pneumonia"))


def least_seconds(work: Callable[[], object], runs: int = 9) -> float:
    """The least processor time of a call, after a first one."""
    work()
    times = []
    for _ in range(runs):
        began = process_time()
        work()
        times.append(process_time() - began)
    return min(times)


async def figures() -> list[Figure]:
    """The processor time of a ranking, and its ratio to that of BM25."""
    models = [
        Candidate(
            id=f"org/vit-{SUBJECTS[number % len(SUBJECTS)].replace(' ', '-')}-{number}",
            task="image-classification",
            description=f"Classifies pictures of {SUBJECTS[number % len(SUBJECTS)]}, on set {number}.",
            downloads=number,
        )
        for number in range(300)
    ]
    vectors, here = CardVectors(Settings(), SelectionStore(None)), [True] * len(models)

    def by_bm25() -> list[float]:
        return bm25(letter_grams(REQUEST.text), [cached_grams(card_text(one)) for one in models])

    ranking = least_seconds(lambda: score_candidates(models, here, REQUEST, vectors))
    return [
        Figure("processor time of ranking 300 models", ranking, 0.06, "s"),
        Figure("ranking 300 models, over BM25 alone", ranking / least_seconds(by_bm25), None, "×"),
    ]
