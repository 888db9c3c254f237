"""References come to point at what their argument takes, missing arguments are found, and lists fan out."""

import json

import pytest

from jarvis_agent.planning.plan import Plan
from jarvis_agent.core.tasks.hub_tasks import NOT_CALLABLE
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.core.tasks.registry import canonical


def task(name, task_id, dep=None, **args):
    return {"task": name, "id": task_id, "dep": dep or [-1], "args": args}


def parse(*tasks, **options):
    return Plan.parse(json.dumps(tasks), **options)


def graph(plan):
    return {task.id: (task.dep, task.args) for task in plan.tasks}


PICTURE = task("text-to-image", 0, text="a cat")
CAPTION = task("image-to-text", 1, [0], image="<resource>-0")


def test_a_well_typed_plan_stays_as_it_is():
    plan = parse(PICTURE, CAPTION, task("text-to-speech", 2, [1], text="<resource>-1"))
    assert graph(plan) == {
        0: ([-1], {"text": "a cat"}),
        1: ([0], {"image": "<resource>-0"}),
        2: ([1], {"text": "<resource>-1"}),
    }
    assert plan.notes == []


def test_a_dependency_that_only_a_reference_names_is_added():
    plan = parse(PICTURE, task("image-to-text", 1, image="<resource>-0"))
    assert plan.task(1).dep == [0]


def test_a_dependency_without_a_reference_is_kept():
    plan = parse(PICTURE, task("text-to-speech", 1, [0], text="Here it comes."))
    assert plan.task(1).dep == [0]


def test_a_reference_to_the_wrong_kind_means_the_dependency_that_makes_the_right_one():
    swapped = task("openpose-text-to-image", 3, [0, 1], text="<resource>-0", image="<resource>-1")
    plan = parse(PICTURE, CAPTION, swapped)
    assert graph(plan)[3] == ([0, 1], {"text": "<resource>-1", "image": "<resource>-0"})
    assert any("<resource>-0 makes no text; the text of task 1" in note for note in plan.notes)


def test_a_reference_to_the_wrong_kind_means_the_nearest_ancestor_that_makes_the_right_one():
    plan = parse(PICTURE, CAPTION, task("object-detection", 2, [1], image="<resource>-1"))
    assert graph(plan)[2] == ([0, 1], {"image": "<resource>-0"})


def test_nearer_ancestors_come_before_farther_ones():
    plan = parse(
        task("text-to-image", 0, text="a"),
        task("image-to-image", 1, [0], image="<resource>-0"),
        task("image-to-text", 2, [1], image="<resource>-1"),
        task("translation", 3, [2], text="<resource>-2", tgt_lang="fr"),
        task("image-to-text", 4, [3], image="<resource>-3"),
    )
    assert plan.task(4).args == {"image": "<resource>-1"}


def test_a_dependency_that_nothing_else_uses_is_the_first_choice():
    plan = parse(
        task("image-to-text", 0, image="a.jpg"),
        task("object-detection", 1, image="b.jpg"),
        task("openpose-text-to-image", 2, [0, 1], text="<resource>-2", image="<resource>-1"),
    )
    assert plan.task(2).args == {"text": "<resource>-0", "image": "<resource>-1"}


def test_a_mended_reference_leaves_no_dependency_that_was_not_written():
    plan = parse(
        PICTURE,
        task("text-to-speech", 1, text="hello"),
        task("image-to-text", 2, [0], image="<resource>-1"),
    )
    assert graph(plan)[2] == ([0], {"image": "<resource>-0"})


def test_a_reference_that_nothing_can_stand_for_is_reported():
    plan = parse(task("text-to-speech", 0, text="hello"), task("image-to-text", 1, [0], image="<resource>-0"))
    assert [t.id for t in plan.tasks] == [0]
    assert (
        "task 1 (image-to-text) was left out: <resource>-0 can not be its image: it makes no image"
        in plan.notes
    )


def test_a_reference_to_itself_means_the_dependency():
    plan = parse(task("image-to-text", 0, image="a.jpg"), task("text-to-speech", 1, [0], text="<resource-1>"))
    assert graph(plan)[1] == ([0], {"text": "<resource>-0"})


def test_a_reference_to_itself_without_a_dependency_is_reported():
    plan = parse(task("text-to-speech", 0, text="<resource>-0"))
    assert plan.tasks == []
    assert "<resource>-0 can not be its text: it means the task itself" in plan.notes[-1]


def test_a_reference_to_no_task_means_the_dependency():
    plan = parse(PICTURE, task("image-to-text", 1, [0], image="<resource>-7"))
    assert graph(plan)[1] == ([0], {"image": "<resource>-0"})
    assert any("<resource>-7 means no task of the plan" in note for note in plan.notes)


def test_a_reference_inside_an_object_is_bound_like_any_other():
    asked = task("summarization", 1, [0], text={"q": ["<resource>-7"]})
    plan = parse(task("image-to-text", 0, image="a.jpg"), asked)
    assert graph(plan)[1] == ([0], {"text": '{"q": ["<resource>-0"]}'})
    assert any("<resource>-7 means no task of the plan" in note for note in plan.notes)
    sorted_out = task("zero-shot-classification", 1, [0], text="a", labels=[{"q": "<resource>-7"}])
    plan = parse(task("object-detection", 0, image="a.jpg"), sorted_out)
    assert graph(plan)[1] == ([0], {"text": "a", "labels": [{"q": "<resource>-0"}]})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"q": "<resource>-7"}, "<resource>-7 can not be its text: it means no task of the plan"),
        ({"q": "<resource>-0"}, "<resource>-0 can not be its text: it means the task itself"),
        ({"<resource>-7": "q"}, "<resource>-7 stands where a name in an object belongs"),
    ],
)
def test_a_reference_inside_an_object_that_can_not_be_bound_is_reported(value, reason):
    plan = parse(task("text-to-speech", 0, text=value))
    assert plan.tasks == []
    assert reason in plan.notes[-1]


@pytest.mark.parametrize(
    "wrapped",
    [
        {"url": "<resource>-0"},
        {"path": "the <resource>-0"},
        {"image_url": {"url": "<resource>-0"}},
        {"type": "image_url", "image_url": {"url": "<resource>-0"}},
        [{"file": "<resource>-0"}],
    ],
)
def test_an_object_around_a_reference_to_a_file_is_taken_off(wrapped):
    plan = parse(PICTURE, task("image-to-text", 1, image=wrapped))
    assert graph(plan)[1] == ([0], {"image": "<resource>-0"})


def test_an_object_around_a_file_is_taken_off():
    plan = parse(task("image-to-text", 0, image=[{"url": "https://x.org/a.png"}, {"path": ["b.jpg"]}]))
    assert [t.args["image"] for t in plan.tasks] == ["https://x.org/a.png", "b.jpg"]


def test_a_dependency_on_no_task_is_left_out():
    plan = parse(task("text-to-image", 0, [7], text="a cat"))
    assert graph(plan) == {0: ([-1], {"text": "a cat"})}
    assert plan.notes == [
        "task 0 (text-to-image): its dependency on 7 was left out: it means no task of the plan"
    ]


def test_every_reference_inside_a_text_must_have_text():
    seen = task("object-detection", 2, image="b.jpg")
    plan = parse(
        PICTURE, CAPTION, seen, task("summarization", 3, text="One: <GENERATED>-1 Two: <resource-2>")
    )
    assert graph(plan)[3] == ([1, 2], {"text": "One: <resource>-1 Two: <resource>-2"})
    plan = parse(PICTURE, task("summarization", 1, text="This: <resource>-0"))
    assert [t.id for t in plan.tasks] == [0]


def test_a_tool_takes_and_makes_what_it_likes():
    tool = TaskSpec(
        "upload", "tool", "", (Arg("what", "any"), Arg("all", "any", required=False, many=True)), ()
    )
    plan = parse(
        PICTURE,
        task("upload", 1, what="<resource>-0", all=["<resource>-0", 5]),
        task("image-to-text", 2, image="<resource>-1"),
        tools=[tool],
    )
    assert graph(plan)[1] == ([0], {"what": "<resource>-0", "all": ["<resource>-0", 5]})
    assert graph(plan)[2] == ([1], {"image": "<resource>-1"})
    assert plan.notes == []


def test_a_missing_argument_is_taken_from_the_only_dependency_that_makes_it():
    plan = parse(
        task("openpose-control", 0, image="a.jpg"),
        task("image-to-text", 1, image="b.jpg"),
        task("openpose-text-to-image", 2, [0, 1]),
    )
    assert graph(plan)[2] == ([0, 1], {"text": "<resource>-1", "image": "<resource>-0"})
    assert any('its missing "text" was taken from task 1' in note for note in plan.notes)


def test_a_missing_argument_is_not_taken_from_what_has_another_use():
    plan = parse(task("object-detection", 0, image="a.jpg"), task("VQA", 1, [0], image="<resource>-0"))
    assert [t.id for t in plan.tasks] == [0]
    assert 'its argument "text" is missing' in plan.notes[-1]


def test_a_missing_argument_is_not_guessed_among_several():
    plan = parse(PICTURE, task("text-to-image", 1, text="a dog"), task("image-to-text", 2, [0, 1]))
    assert [t.id for t in plan.tasks] == [0, 1]


def test_a_value_without_a_name_is_placed_by_what_it_refers_to():
    plan = parse(PICTURE, {"task": "VQA", "id": 1, "args": ["<resource>-0", "what is it?"]})
    assert graph(plan)[1] == ([0], {"image": "<resource>-0", "text": "what is it?"})


def test_a_list_of_files_fans_out():
    plan = parse(task("object-detection", 0, image=["a.jpg", "b.jpg", "c.jpg"]))
    assert graph(plan) == {
        0: ([-1], {"image": "a.jpg"}),
        100: ([-1], {"image": "b.jpg"}),
        101: ([-1], {"image": "c.jpg"}),
    }
    assert plan.notes == ["task 0 (object-detection): its lists made 3 tasks of it: 0, 100, 101"]


def test_several_references_in_one_argument_fan_out():
    for written in (
        "<resource>-0,<resource>-1",
        ["<resource>-0", "<resource>-1"],
        "<resource>-0 and <resource>-1",
    ):
        plan = parse(PICTURE, task("text-to-image", 1, text="a dog"), task("image-to-text", 2, image=written))
        assert graph(plan)[2] == ([0], {"image": "<resource>-0"})
        assert graph(plan)[100] == ([1], {"image": "<resource>-1"})


def test_references_and_files_mix_in_one_argument():
    plan = parse(PICTURE, task("image-to-text", 1, image="the <resource>-0, b.jpg"))
    assert [t.args for t in plan.tasks[1:]] == [{"image": "<resource>-0"}, {"image": "b.jpg"}]


def test_an_argument_given_twice_fans_out():
    plan = parse({"task": "object-detection", "id": 0, "args": [{"image": "a.jpg"}, {"image": "b.jpg"}]})
    assert [t.args for t in plan.tasks] == [{"image": "a.jpg"}, {"image": "b.jpg"}]


FANNED = task("text-to-image", 0, text=["a cat", "a dog"])


def test_a_reference_to_a_fanned_task_fans_out_again_each_copy_needing_its_own():
    plan = parse(FANNED, task("image-to-text", 1, [0], image="<resource>-0"))
    assert graph(plan)[1] == ([0], {"image": "<resource>-0"})
    assert graph(plan)[101] == ([100], {"image": "<resource>-100"})


def test_a_reference_to_a_fanned_task_inside_a_text_means_all_of_them():
    plan = parse(
        task("image-to-text", 0, image=["a.jpg", "b.jpg"]),
        task("summarization", 1, text="All: <resource>-0."),
    )
    assert graph(plan)[1] == ([0, 100], {"text": "All: <resource>-0, <resource>-100."})


def test_a_reference_to_a_fanned_task_stays_a_list_where_a_list_is_taken():
    plan = parse(
        task("image-to-text", 0, image=["a.jpg", "b.jpg"]),
        task("sentence-similarity", 1, text="a cat", sentences="<resource>-0"),
    )
    assert graph(plan)[1] == ([0, 100], {"text": "a cat", "sentences": ["<resource>-0", "<resource>-100"]})


def test_a_dependency_on_a_fanned_task_means_all_of_them():
    plan = parse(FANNED, task("text-to-speech", 1, [0], text="Done."))
    assert plan.task(1).dep == [0, 100]


def test_lists_of_one_length_go_in_step():
    plan = parse(task("VQA", 0, text=["who?", "where?"], image=["a.jpg", "b.jpg"]))
    assert [t.args for t in plan.tasks] == [
        {"text": "who?", "image": "a.jpg"},
        {"text": "where?", "image": "b.jpg"},
    ]


def test_lists_of_different_lengths_are_combined():
    plan = parse(task("VQA", 0, text=["who?", "where?", "why?"], image=["a.jpg", "b.jpg"]))
    assert len(plan) == 6
    assert len({(t.args["text"], t.args["image"]) for t in plan.tasks}) == 6


def test_a_list_and_a_single_value_keep_the_single_value():
    plan = parse(task("VQA", 0, text="who?", image=["a.jpg", "b.jpg"]))
    assert [t.args["text"] for t in plan.tasks] == ["who?", "who?"]


def test_a_fan_out_has_a_limit():
    names = [f"{i}.jpg" for i in range(20)]
    plan = parse(task("VQA", 0, text=[f"{i}?" for i in range(7)], image=names))
    assert len(plan) == 64
    assert any("more than 64 tasks; only the first 64 were kept" in note for note in plan.notes)


def test_a_list_where_a_list_is_taken_stays_whole():
    plan = parse(task("zero-shot-classification", 0, text="a", labels=["x", "y"]))
    assert plan.tasks[0].args == {"text": "a", "labels": ["x", "y"]}
    assert plan.notes == []


def test_rows_of_a_table_do_not_fan_out():
    table = TaskSpec("table-qa", "tabular", "", (Arg("text", "text"), Arg("table", "table")), ("text",))
    rows = [{"a": 1}, {"a": 2}]
    plan = parse(task("table-qa", 0, text="sum?", table=rows), tools=[table])
    assert plan.tasks[0].args == {"text": "sum?", "table": rows}


@pytest.mark.parametrize(
    "box",
    [[1, 2, 3, 4], "[1, 2, 3, 4]", ["1", "2", "3", "4"], {"xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}],
)
def test_a_box_is_one_value_however_it_is_written(box):
    plan = parse(task("crop-image", 0, image="a.jpg", box=box))
    assert graph(plan) == {0: ([-1], {"image": "a.jpg", "box": box})}


@pytest.mark.parametrize("width", [512, "512", [512]])
def test_a_number_may_come_as_a_number_a_text_or_alone_in_a_list(width):
    plan = parse(task("resize-image", 0, image="a.jpg", width=width))
    assert graph(plan) == {
        0: ([-1], {"image": "a.jpg", "width": width[0] if isinstance(width, list) else width})
    }


def test_a_box_may_be_what_a_detection_found():
    found = task("object-detection", 0, image="a.jpg")
    plan = parse(found, task("crop-image", 1, [0], image="a.jpg", box="<resource>-0"))
    assert graph(plan)[1] == ([0], {"image": "a.jpg", "box": "<resource>-0"})


@pytest.mark.parametrize(
    ("pages", "meant"),
    [
        (["a.png", "b.png"], ["a.png", "b.png"]),
        ("a.png, b.png", ["a.png", "b.png"]),
        ("a.png", ["a.png"]),
        ("my page, first.png", ["my page, first.png"]),
        ({"url": "a.png"}, ["a.png"]),
        ("<resource>-0", ["<resource>-0"]),
        (["<resource>-0", "b.png"], ["<resource>-0", "b.png"]),
    ],
)
def test_an_argument_that_takes_several_files_takes_them_as_one_list(pages, meant):
    plan = parse(PICTURE, task("visual-document-retrieval", 1, [0], text="How to pay?", image=pages))
    assert graph(plan)[1] == ([0], {"text": "How to pay?", "image": meant})


@pytest.mark.parametrize("args", [{}, None, "", {"text": None}])
def test_a_task_without_arguments_needs_none(args):
    plan = parse({"task": "unconditional-image-generation", "id": 0, "dep": [-1], "args": args})
    assert graph(plan) == {0: ([-1], {})}
    assert plan.notes == []
    assert Plan.parse(plan.to_json()) == plan


def test_a_task_without_arguments_takes_none():
    plan = parse(task("unconditional-image-generation", 0, text="a cat"))
    assert graph(plan) == {0: ([-1], {})}
    assert plan.notes == [
        'task 0 (unconditional-image-generation): what it has no place for was left out: "text"'
    ]


@pytest.mark.parametrize("name", ["reinforcement-learning", "Table to text", "text_retrieval", "other"])
def test_a_task_of_the_hub_that_can_not_be_run_is_left_out_with_the_reason(name):
    plan = parse(PICTURE, task(name, 1, text="x"))
    assert list(graph(plan)) == [0]
    assert plan.notes == [
        f'task 1 was left out: "{canonical(name)}" can not be run: {NOT_CALLABLE[canonical(name)]}'
    ]
