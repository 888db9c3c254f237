"""What the planner is trained on: plans as actions that point into requests, and requests made of others."""

from __future__ import annotations

from random import Random

import augment
import notation
import pytest
import sequences
from tokenizers import Tokenizer

from jarvis_agent.backends.starter.backend import MINILM, STARTERS, fetch_weights
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.evaluation.requests import judge, same_plan
from jarvis_agent.planning.inputs import PlanRequest

pytestmark = pytest.mark.starter


@pytest.fixture(scope="module")
def vocabulary() -> sequences.Vocabulary:
    weights = fetch_weights(STARTERS[MINILM], Settings(offline=True))
    tokenizer = Tokenizer.from_file(str(weights.parent / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return sequences.Vocabulary.of(tokenizer, ["图", "片", "图片"])


def prompt_of(vocabulary: sequences.Vocabulary, example: augment.Example) -> sequences.Prompt:
    return sequences.Prompt(vocabulary, PlanRequest.of(example.asked.inputs))


def written(vocabulary: sequences.Vocabulary, example: augment.Example) -> list[int] | None:
    return prompt_of(vocabulary, example).actions_of(example.asked.plan, example.left)


@pytest.fixture(scope="module")
def examples() -> list[augment.Example]:
    names = ("parent_of_small_children", "long_mail_writer", "zh_senior", "zh_mixed_english")
    return augment.read_examples(notation.FILES / f"{name}.txt" for name in names)


def test_a_plan_can_be_read_from_the_actions_that_write_it(
    vocabulary: sequences.Vocabulary, examples: list[augment.Example]
) -> None:
    failed = []
    for example in examples:
        prompt = prompt_of(vocabulary, example)
        actions = written(vocabulary, example)
        tasks, left = prompt.plan_of(actions) if actions else ([], [])
        if not actions or not same_plan(example.asked.plan, tasks) or len(left) != len(example.left):
            failed.append(example.asked.request)
    assert len(failed) <= len(examples) / 100, failed


def test_every_action_of_a_plan_is_allowed(
    vocabulary: sequences.Vocabulary, examples: list[augment.Example]
) -> None:
    for example in examples:
        prompt, actions = prompt_of(vocabulary, example), written(vocabulary, example)
        for number, action in enumerate(actions or ()):
            assert prompt.allowed(actions[:number], TASKS)[action], (example.asked.request, number)


def test_actions_are_limited_to_files_results_and_tasks_that_fit(vocabulary: sequences.Vocabulary) -> None:
    prompt = sequences.Prompt(vocabulary, PlanRequest.of("transcribe talk.mp3 and describe cat.jpg"))
    code = sequences.CODE

    def following(*symbols: str) -> set[str]:
        mask = prompt.allowed([code[symbol] for symbol in symbols], {"image-to-text": TASKS["image-to-text"]})
        names = [*sequences.SYMBOLS, *(prompt.targets.get(i, ("", ""))[1] for i in range(len(prompt.tokens)))]
        return {name for name, may_follow in zip(names, mask, strict=True) if may_follow}

    assert following() == {"image-to-text", "LEFT", "END"}
    assert following("image-to-text") == {"image="}
    assert following("image-to-text", "image=") == {"cat.jpg"}
    drawn = ("unconditional-image-generation", "image-to-text", "image=")
    assert following(*drawn) == {"cat.jpg", "#0"}


def test_varied_and_joined_requests_keep_their_plans(
    vocabulary: sequences.Vocabulary, examples: list[augment.Example]
) -> None:
    rng, slots = Random(1), augment.slots_of(examples)
    changed = both = 0
    for first in examples:
        for example in (augment.varied(first, slots, rng), augment.joined(first, rng.choice(examples), rng)):
            if example is None:
                continue
            actions = written(vocabulary, example)
            if actions is not None:
                tasks, _ = prompt_of(vocabulary, example).plan_of(actions)
                assert judge(example.asked, tasks).exact, example.asked.request
            changed += example.asked.request != first.asked.request
            both += example.asked.plan[len(first.asked.plan) :] != []
    assert changed > 100
    assert both > 50
