"""What the planner is trained on: plans as actions that point into requests, and requests made of others."""

from random import Random

import augment
import notation
import pytest
from tokenizers import Tokenizer

from jarvis_agent import Task
from jarvis_agent.backends.starter.backend import MINILM, STARTERS, fetch_weights
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.evaluation.requests import judge, same_plan
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline import sequences
from jarvis_agent.planning.offline.network import SMOOTHED, open_network, read_weights

pytestmark = pytest.mark.starter


@pytest.fixture(scope="module")
def vocabulary() -> sequences.Vocabulary:
    weights = fetch_weights(STARTERS[MINILM], Settings(offline=True))
    tokenizer = Tokenizer.from_file(str(weights.parent / "tokenizer.json"))
    return sequences.Vocabulary(tokenizer, ["图", "片", "图片"])


def prompt_of(vocabulary: sequences.Vocabulary, example: augment.Example) -> sequences.TokenizedRequest:
    return sequences.TokenizedRequest(vocabulary, PlanRequest.of(example.asked.inputs))


def written(vocabulary: sequences.Vocabulary, example: augment.Example) -> list[int] | None:
    return prompt_of(vocabulary, example).actions_of(example.asked.plan, example.left, example.preference)


@pytest.fixture(scope="module")
def examples() -> list[augment.Example]:
    names = (
        "evening_class_teacher",
        "parent_of_small_children",
        "long_mail_writer",
        "zh_senior",
        "zh_mixed_english",
    )
    return augment.read_examples(notation.FILES / f"{name}.txt" for name in names)


def test_a_plan_can_be_read_from_the_actions_that_write_it(
    vocabulary: sequences.Vocabulary, examples: list[augment.Example]
) -> None:
    failed = []
    for example in examples:
        prompt = prompt_of(vocabulary, example)
        actions = written(vocabulary, example)
        tasks, preference, left = prompt.plan_of(actions) if actions else ([], None, [])
        assert not actions or preference == example.preference
        if not actions or not same_plan(example.asked.plan, tasks) or len(left) != len(example.left):
            failed.append(example.asked.request)
    assert len(failed) <= len(examples) / 100, failed


def test_a_text_that_is_too_long_to_be_read_is_copied_whole(vocabulary: sequences.Vocabulary) -> None:
    text = " ".join(f"{number} boats" for number in range(300))
    prompt = sequences.TokenizedRequest(vocabulary, PlanRequest.of(f"Summarise this: {text}"))
    assert prompt.unread
    actions = prompt.actions_of([Task(task="summarization", id=0, args={"text": text})])
    assert actions is not None
    assert len(actions) == 5
    assert prompt.plan_of(actions)[0][0].args == {"text": text}


def test_every_action_is_allowed(vocabulary: sequences.Vocabulary, examples: list[augment.Example]) -> None:
    for example in examples:
        prompt, actions = prompt_of(vocabulary, example), written(vocabulary, example) or []
        for number, action in enumerate(actions):
            assert prompt.allowed(actions[:number], TASKS)[action], (example.asked.request, number)


def test_actions_are_limited_to_files_results_and_tasks_that_fit(vocabulary: sequences.Vocabulary) -> None:
    prompt = sequences.TokenizedRequest(
        vocabulary, PlanRequest.of("transcribe talk.mp3 and describe cat.jpg")
    )
    code = vocabulary.code

    def following(*symbols: str) -> set[str]:
        mask = prompt.allowed([code[symbol] for symbol in symbols], {"image-to-text": TASKS["image-to-text"]})
        names = [*sequences.SYMBOLS, *(prompt.targets.get(i, ("", ""))[1] for i in range(len(prompt.tokens)))]
        return {name for name, may_follow in zip(names, mask, strict=True) if may_follow}

    assert following() == {"image-to-text", "LEFT", "END"}
    assert following("image-to-text") == {"image="}
    assert following("image-to-text", "image=") == {"cat.jpg"}
    without_files = sequences.TokenizedRequest(vocabulary, PlanRequest.of("describe the photo"))
    mask = without_files.allowed([code["image-to-text"], code["image="]], TASKS)
    assert mask.nonzero()[0].tolist() == [code[sequences.NOT_GIVEN]]
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
                tasks, *_ = prompt_of(vocabulary, example).plan_of(actions)
                assert judge(example.asked, tasks).exact, example.asked.request
            changed += example.asked.request != first.asked.request
            both += example.asked.plan[len(first.asked.plan) :] != []
    assert changed > 100
    assert both > 50


def test_a_request_that_lost_its_file_has_the_same_plan_without_it(
    vocabulary: sequences.Vocabulary, examples: list[augment.Example]
) -> None:
    rng, changed = Random(1), 0
    for first in examples:
        example = augment.fileless(first, rng)
        if example is first:
            continue
        changed += 1
        assert first.asked.files[0] not in example.asked.request
        assert example.asked.files == []
        values = [task.args for task in example.asked.plan]
        assert first.asked.files[0] not in str(values)
        missing = (sequences.NOT_GIVEN, [sequences.NOT_GIVEN])
        is_used = first.asked.files[0] in str([task.args for task in first.asked.plan])
        assert is_used == any(value in missing for args in values for value in args.values())
        if actions := written(vocabulary, example):
            prompt = prompt_of(vocabulary, example)
            assert all(prompt.allowed(actions[:n], TASKS)[action] for n, action in enumerate(actions))
            assert same_plan(example.asked.plan, prompt.plan_of(actions)[0])
    assert changed > 30


@pytest.mark.slow
def test_training_goes_on_from_weights_that_lack_a_task_type_and_chinese_words(
    vocabulary: sequences.Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    import train

    arrays, scales, about = read_weights(notation.PLANNER)
    whole = {name: torch.from_numpy(arrays[name] * scale) for name, scale in scales.items()}
    monkeypatch.setattr(sequences, "SYMBOLS", ["music-transcription", *about["symbols"]])
    rows = torch.zeros(len(sequences.MARKERS) + len(vocabulary.chinese), train.SIZE)
    network = train.Network(train.minilm(), rows)
    network.load_saved(vocabulary)
    assert torch.equal(network.actions.weight[1:], whole["actions.weight"])
    assert not torch.equal(network.actions.weight[0], network.actions.weight[1])
    place = len(about["markers"]) + about["chinese"].index("图")
    mine = vocabulary.chinese["图"]
    assert torch.equal(network.rows.weight[mine], whole["rows.weight"][place])


@pytest.mark.slow
def test_the_network_in_numpy_computes_what_the_trained_one_does() -> None:
    import numpy as np
    import torch
    import train

    network = open_network(Settings(offline=True))
    _, _, about = read_weights(notation.PLANNER)
    # The code may have symbols that the weights do not know yet.
    vocabulary = sequences.Vocabulary(network.vocabulary.tokenizer, about["chinese"])
    request = PlanRequest.of("Describe cat.jpg in French")
    tokens = sequences.TokenizedRequest(vocabulary, request)
    rows = torch.zeros(len(about["markers"]) + len(about["chinese"]), train.SIZE)
    trained = train.Network(train.minilm(), rows)
    trained.load_saved(vocabulary)
    trained.eval()
    draft = network.write(request, TASKS)
    actions = tokens.actions_of(draft.tasks)
    assert actions
    words, word_rows = (torch.from_numpy(array)[None] for array in tokens.arrays())
    with torch.no_grad():
        mask = torch.ones_like(words, dtype=torch.bool)
        logits = trained(words, word_rows, mask, torch.tensor([[sequences.START, *actions[:-1]]]))
    logs = torch.log_softmax(logits[0], -1).numpy()
    chosen = np.array([logs[place, action] for place, action in enumerate(actions)])
    whole = float(np.exp(np.minimum(chosen - np.log(1 - SMOOTHED), 0).sum()))
    assert 0.5 < whole == pytest.approx(draft.probability, rel=0.05)
