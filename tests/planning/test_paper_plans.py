"""The paper's case studies: the plan that each must lead to, and the one that it prints, slips and all."""

import pytest

from jarvis_agent.planning.plan import Plan
from jarvis_agent.core.tasks.spec import Arg, TaskSpec

COMBINE = TaskSpec(
    "combine-video-audio",
    "media",
    "Put a sound to a video.",
    (Arg("video", "video"), Arg("audio", "audio")),
    ("video",),
)


def graph(text):
    """Every task as (task, dep, args) in the order of ids; and the notes."""
    plan = Plan.parse(text, tools=[COMBINE])
    return [(t.task, t.dep, t.args) for t in sorted(plan.tasks, key=lambda t: t.id)], plan.notes


def test_figure_2_a_girl_in_the_pose_of_the_boy_described_with_a_voice():
    tasks, notes = graph("""[
        {"task": "pose-control", "id": 0, "dep": [-1], "args": {"image": "example.jpg"}},
        {"task": "pose-text-to-image", "id": 1, "dep": [0],
         "args": {"text": "a girl is reading a book", "image": "<resource>-0"}},
        {"task": "image-cls", "id": 2, "dep": [1], "args": {"image": "<resource>-1"}},
        {"task": "object-det", "id": 3, "dep": [1], "args": {"image": "<resource>-1"}},
        {"task": "image-to-text", "id": 4, "dep": [1], "args": {"image": "<resource>-1"}},
        {"task": "text-to-speech", "id": 5, "dep": [4], "args": {"text": "<resource>-4"}}]""")
    assert tasks == [
        ("openpose-control", [-1], {"image": "example.jpg"}),
        ("openpose-text-to-image", [0], {"text": "a girl is reading a book", "image": "<resource>-0"}),
        ("image-classification", [1], {"image": "<resource>-1"}),
        ("object-detection", [1], {"image": "<resource>-1"}),
        ("image-to-text", [1], {"image": "<resource>-1"}),
        ("text-to-speech", [4], {"text": "<resource>-4"}),
    ]
    assert notes == []


FIGURE_3 = """[
    {"task": "openpose-control", "id": 0, "dep": [-1], "args": {"image": "example1.jpg"}},
    {"task": "image-to-text", "id": 1, "dep": [-1], "args": {"image": "example2.jpg"}},
    {"task": "openpose-text-to-image", "id": 2, "dep": [0, 1], "args": {"text": "%s", "image": "%s"}}]"""


@pytest.mark.parametrize("written", [("<resource>-1", "<resource>-0"), ("<resource>-0", "<resource>-1")])
def test_figure_3_the_pose_of_one_image_and_the_description_of_another_also_when_swapped(written):
    tasks, _ = graph(FIGURE_3 % written)
    assert tasks == [
        ("openpose-control", [-1], {"image": "example1.jpg"}),
        ("image-to-text", [-1], {"image": "example2.jpg"}),
        ("openpose-text-to-image", [0, 1], {"text": "<resource>-1", "image": "<resource>-0"}),
    ]


FIGURE_4_VIDEO = """[
    {"task": "text-to-video", "id": 0, "dep": [-1], "args": {"text": "Astronaut walking in space"}},
    {"task": "text-to-speech", "id": 1, "dep": [-1], "args": {"text": "Astronaut walking in space"}}%s]"""
JOIN = """, {"task": "combine-video-audio", "id": 2, "dep": [0, 1],
    "args": {"video": "<resource>-0", "audio": "<resource>-1"}}"""


def test_figure_4_a_video_is_dubbed():
    two = [
        ("text-to-video", [-1], {"text": "Astronaut walking in space"}),
        ("text-to-speech", [-1], {"text": "Astronaut walking in space"}),
    ]
    joined = ("combine-video-audio", [0, 1], {"video": "<resource>-0", "audio": "<resource>-1"})
    assert graph(FIGURE_4_VIDEO % JOIN) == ([*two, joined], [])
    assert graph(FIGURE_4_VIDEO % "") == (two, [])


@pytest.mark.parametrize("reference", ["<resource>-0", "<resource-1>"])
def test_figure_4_an_image_is_read_aloud_also_when_the_voice_refers_to_itself(reference):
    tasks, _ = graph(f"""[
        {{"task": "image-to-text", "id": 0, "dep": [-1], "args": {{"image": "example.jpg"}}}},
        {{"task": "text-to-speech", "id": 1, "dep": [0], "args": {{"text": "{reference}"}}}}]""")
    assert tasks == [
        ("image-to-text", [-1], {"image": "example.jpg"}),
        ("text-to-speech", [0], {"text": "<resource>-0"}),
    ]


FIGURE_5 = [
    (name, [-1], {"image": file})
    for file in ("a.jpg", "b.jpg", "c.jpg")
    for name in ("image-to-text", "object-detection")
]


def test_figure_5_captions_and_detections_of_three_images():
    written = ", ".join(
        f'{{"task": "{name}", "id": {i}, "dep": [-1], "args": {{"image": "{args["image"]}"}}}}'
        for i, (name, _, args) in enumerate(FIGURE_5)
    )
    assert graph(f"[{written}]") == (FIGURE_5, [])


def test_figure_5_written_with_lists_is_the_same_work():
    tasks, _ = graph("""[
        {"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": ["a.jpg", "b.jpg", "c.jpg"]}},
        {"task": "object-det", "id": 1, "dep": [-1], "args": {"image": ["a.jpg", "b.jpg", "c.jpg"]}}]""")
    assert sorted(map(repr, tasks)) == sorted(map(repr, FIGURE_5))


@pytest.mark.parametrize(
    ("written", "name", "args"),
    [
        ('"DQA", "args": {"text": "what is the total?", "image": "doc.jpg"}',
         "document-question-answering", {"text": "what is the total?", "image": "doc.jpg"}),
        ('"image-to-image", "args": {"image": "a.jpg"}', "image-to-image", {"image": "a.jpg"}),
        ('"text-to-video", "args": {"text": "Spider-Man is surfing"}',
         "text-to-video", {"text": "Spider-Man is surfing"}),
        ('"text-to-speech", "args": {"text": "A long sentence, \\"quoted\\", and so on."}',
         "text-to-speech", {"text": 'A long sentence, "quoted", and so on.'}),
    ],
)  # fmt: skip
def test_figures_6_and_7_one_task_each(written, name, args):
    assert graph(f'[{{"task": {written}, "id": 0, "dep": [-1]}}]') == ([(name, [-1], args)], [])


def test_figure_8_three_turns():
    first, notes = graph("""[{"task": "control-canny", "id": 0, dep: [-1], "args": {"image": "example.jpg"}},
        {"task": "image-to-text", "id": 0, dep: [-1], "args": {"image": "example.jpg"}}]""")
    assert first == [
        ("canny-control", [-1], {"image": "example.jpg"}),
        ("image-to-text", [-1], {"image": "example.jpg"}),
    ]
    assert "task 100 (image-to-text): its id 0 was taken and it got 100" in notes
    second, _ = graph("""[{"task": "canny-text-to-image", "id": 0, "dep": [-1],
        "args": {"text": "a photo of a zoo", "image": "outputs/1/0-canny.png"}}]""")
    assert second == [
        ("canny-text-to-image", [-1], {"text": "a photo of a zoo", "image": "outputs/1/0-canny.png"})
    ]
    third, _ = graph(
        '[{"task": "object-detection", "id": 0, "dep": [-1], "args": {"image": "outputs/2/0-zoo.png"}}]'
    )
    assert third == [("object-detection", [-1], {"image": "outputs/2/0-zoo.png"})]


def test_figure_8_what_follows_a_twice_used_id_gets_the_kind_that_it_needs():
    tasks, _ = graph("""[{"task": "canny-control", "id": 0, dep: [-1], "args": {"image": "example.jpg"}},
        {"task": "image-to-text", "id": 0, dep: [-1], "args": {"image": "example.jpg"}},
        {"task": "canny-text-to-image", "id": 1, dep: [0],
         "args": {"text": "<resource>-0", "image": "<resource>-0"}}]""")
    assert tasks[1] == ("canny-text-to-image", [0, 100], {"text": "<resource>-100", "image": "<resource>-0"})


def test_figure_9_five_views_of_one_picture():
    names = ["image-to-text", "image-cls", "object-detection", "image-segmentation", "VQA"]
    written = ", ".join(
        f'{{"task": "{name}", "id": {i}, "args": {{"text": "what is it?", "image": "example.jpg"}}}}'
        for i, name in enumerate(names)
    )
    tasks, notes = graph(f"[{written}]")
    assert [name for name, _, _ in tasks] == [
        "image-to-text",
        "image-classification",
        "object-detection",
        "image-segmentation",
        "visual-question-answering",
    ]
    assert all(dep == [-1] and args["image"] == "example.jpg" for _, dep, args in tasks)
    assert len(notes) == 3, "a classification, a detection and a segmentation have no use for the text"


def test_figure_10_questions_about_two_pictures():
    tasks, notes = graph("""[
        {"task": "object-detection", "id": 0, "dep": [-1], "args": {"image": "example1.jpg"}},
        {"task": "image-to-text", "id": 1, "dep": [-1], "args": {"image": "example1.jpg"}}]""")
    assert [(name, dep) for name, dep, _ in tasks] == [("object-detection", [-1]), ("image-to-text", [-1])]
    assert notes == []
    tasks, notes = graph("""[
        {"task": "image-cls", "id": 0, "dep": [-1], "args": {"image": "example2.jpg"}},
        {"task": "VQA", "id": 1, "dep": [-1],
         "args": {"text": "what is the animal doing?", "image": "example2.jpg"}},
        {"task": "image-to-text", "id": 2, "dep": [-1], "args": {"image": "example2.jpg"}}]""")
    assert [name for name, _, _ in tasks] == [
        "image-classification",
        "visual-question-answering",
        "image-to-text",
    ]
    assert notes == []


def test_the_papers_third_demonstration_is_a_valid_plan():
    tasks, notes = graph(
        '[{"task": "pose-detection", "id": 0, "dep": [-1], "args": {"image": "e3.jpg"}}, '
        '{"task": "pose-text-to-image", "id": 1, "dep": [0], '
        '"args": {"text": "a girl reading a book", "image": "<resource>-0"}}]'
    )
    assert tasks == [
        ("openpose-control", [-1], {"image": "e3.jpg"}),
        ("openpose-text-to-image", [0], {"text": "a girl reading a book", "image": "<resource>-0"}),
    ]
    assert notes == []
