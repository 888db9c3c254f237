"""What a run may read, and where it writes."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from PIL import Image

from jarvis_agent.core.errors import ForbiddenError, InputError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Resource
from jarvis_agent.media.detect import detect_media_type
from jarvis_agent.media.store import ResourceStore


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "cat.png"
    path.parent.mkdir()
    Image.new("RGB", (8, 6), "red").save(path)
    return path


@pytest.fixture
def store(tmp_path: Path) -> ResourceStore:
    return ResourceStore(Settings(output_dir=tmp_path / "out"))


async def test_a_granted_file_is_read_under_the_name_that_the_user_gave_it(store, picture):
    await store.grant(str(picture))
    resource = await store.resolve(str(picture), "image")
    assert (resource.kind, resource.mime, resource.path) == ("image", "image/png", picture)


async def test_a_file_that_nobody_granted_is_refused_and_the_message_says_what_to_do(store, picture):
    with pytest.raises(ForbiddenError, match="JARVIS_ALLOWED_DIRS"):
        await store.resolve(str(picture), "image")


async def test_a_shortened_name_means_the_only_granted_file_of_that_name(store, picture):
    await store.grant(str(picture))
    assert (await store.resolve("cat.png", "image")).path == picture
    assert (await store.resolve("some/where/cat.png", "image")).path == picture


@pytest.mark.parametrize("marked", ["`{}`", "'{}'", "<{}>", "![]({})", '"{}"'])
async def test_marks_around_a_name_are_no_part_of_it(store, picture, marked):
    await store.grant(str(picture))
    assert (await store.resolve(marked.format("cat.png"), "image")).path == picture
    assert (await store.resolve(marked.format(picture), "image")).path == picture


async def test_a_shortened_name_that_fits_two_files_is_refused(store, picture, tmp_path):
    twin = tmp_path / "cat.png"
    Image.new("RGB", (8, 6), "blue").save(twin)
    await store.grant(str(picture))
    await store.grant(str(twin))
    with pytest.raises(ForbiddenError):
        await store.resolve("cat.png", "image")


async def test_directories_of_the_settings_may_be_read_and_their_neighbours_may_not(tmp_path, picture):
    store = ResourceStore(Settings(output_dir=tmp_path / "out", allowed_dirs=(picture.parent,)))
    assert (await store.resolve(str(picture), "image")).path == picture
    with pytest.raises(ForbiddenError):
        await store.resolve(str(picture.parent / ".." / "secret.png"), "image")


async def test_a_link_out_of_an_allowed_directory_is_refused(tmp_path, picture):
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "link.png").symlink_to(picture)
    store = ResourceStore(Settings(output_dir=tmp_path / "out", allowed_dirs=(allowed,)))
    with pytest.raises(ForbiddenError):
        await store.resolve(str(allowed / "link.png"), "image")


@pytest.mark.parametrize("paths_count", [True, False])
async def test_the_file_that_was_checked_is_the_one_that_is_read(tmp_path, paths_count):
    """What ".." means behind a link, the disk and the spelling of the path say differently."""
    root, outside = tmp_path / "root", tmp_path / "etc" / "x.txt"
    inside = root / "a" / "etc" / "x.txt"
    for path in (inside, outside):
        path.parent.mkdir(parents=True)
        path.write_text(path.parent.parent.name)
    (root / "a" / "b" / "c").mkdir(parents=True)
    (root / "link").symlink_to(root / "a" / "b" / "c")
    name = f"{root}/link/../../etc/x.txt"
    store = ResourceStore(
        Settings(output_dir=tmp_path / "out", allowed_dirs=(root,), allow_request_paths=paths_count)
    )
    for found in (await store.resolve(name, "text"), await store.grant(name)):
        assert found.path == inside


async def test_a_url_that_the_request_does_not_hold_is_refused(store):
    with pytest.raises(ForbiddenError, match="not in the request"):
        await store.resolve("https://example.org/x.png", "image")


async def test_a_mention_that_is_no_file_is_complained_of_only_when_a_task_wants_it(store):
    resource = await store.grant_mention("ghost.jpg")
    assert (resource.kind, resource.path) == ("image", None)
    with pytest.raises(InputError, match=r"ghost\.jpg does not exist"):
        await store.resolve("ghost.jpg", "image")


async def test_a_server_that_forbids_paths_reads_none_that_a_request_names(tmp_path, picture):
    store = ResourceStore(Settings(output_dir=tmp_path / "out", allow_request_paths=False))
    with pytest.raises(ForbiddenError, match="upload"):
        await store.grant(str(picture))


async def test_a_file_of_another_kind_is_named_with_what_is_needed(store, picture):
    await store.grant(str(picture))
    with pytest.raises(InputError, match="is an image file, and an audio file is needed"):
        await store.resolve(str(picture), "audio")


async def test_media_is_recognised_by_content_and_not_by_name(store, picture, tmp_path):
    disguised = tmp_path / "song.mp3"
    disguised.write_bytes(picture.read_bytes())
    assert (await store.grant(str(disguised))).kind == "image"


async def test_an_empty_file_and_a_missing_one_are_told_apart(store, tmp_path):
    empty = tmp_path / "empty.jpg"
    empty.touch()
    with pytest.raises(InputError, match="is empty"):
        await store.grant(str(empty))
    with pytest.raises(InputError, match="does not exist"):
        await store.grant(str(tmp_path / "none.jpg"))


async def test_a_file_over_the_size_limit_is_refused(tmp_path, picture):
    store = ResourceStore(Settings(output_dir=tmp_path / "out", max_file_bytes=10))
    with pytest.raises(InputError, match="JARVIS_MAX_FILE_BYTES"):
        await store.grant(str(picture))


async def test_a_content_block_becomes_a_file_of_the_run(store, picture):
    data = base64.b64encode(picture.read_bytes()).decode()
    kept = await store.keep({"type": "image", "base64": data, "mime_type": "image/png"})
    assert kept.kind == "image"
    assert kept.path is not None
    assert kept.path.parent == store.directory
    assert (await store.resolve(kept.name, "image")) == kept


async def test_an_attachment_has_the_same_name_in_each_process(store, picture, tmp_path):
    block = {"type": "image", "base64": base64.b64encode(picture.read_bytes()).decode()}
    kept = await store.keep(block)
    again = ResourceStore(store.settings, directory=store.directory)
    assert await again.keep(block) == kept
    assert [path.name for path in store.directory.iterdir()] == [kept.name]


async def test_what_a_process_left_half_written_is_written_anew(store, picture):
    block = {"type": "image", "base64": base64.b64encode(picture.read_bytes()).decode()}
    kept = await store.keep(block)
    kept.path.write_bytes(b"\x89PNG")
    assert await ResourceStore(store.settings, directory=store.directory).keep(block) == kept
    assert kept.path.read_bytes() == picture.read_bytes()


def test_what_a_process_left_is_not_written_over(store):
    left = store.new_path(".png", "0-task")
    left.write_bytes(b"x")
    assert ResourceStore(store.settings, directory=store.directory).new_path(".png", "0-task") != left


async def test_a_block_that_is_no_base64_is_an_input_error(store):
    with pytest.raises(InputError, match="base64"):
        await store.keep({"type": "image", "base64": "%%%", "mime_type": "image/png"})


async def test_the_text_of_a_granted_text_file_stands_for_its_name(store, tmp_path):
    note = tmp_path / "note.txt"
    note.write_text("héllo", encoding="utf-8")
    await store.grant(str(note))
    assert await store.text_of(str(note)) == "héllo"
    assert await store.text_of("note.md") == "note.md"


def test_paths_are_never_given_twice_and_stay_in_the_run_directory(store):
    paths = {store.new_path(".png", stem) for stem in ("a", "a", "../../a", "") for _ in range(25)}
    assert len(paths) == 100
    assert {path.parent for path in paths} == {store.directory}


def test_two_runs_write_to_two_directories(tmp_path):
    settings = Settings(output_dir=tmp_path)
    assert len({ResourceStore(settings).directory for _ in range(200)}) == 200


def test_a_run_that_wrote_nothing_leaves_no_directory(store):
    store.prepare()
    store.close()
    assert not store.directory.exists()


def test_a_place_that_can_not_be_written_is_named_before_any_work(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(InputError, match="--out"):
        ResourceStore(Settings(output_dir=blocked)).prepare()


async def test_what_the_chat_made_may_be_read_again(store, picture):
    store.admit([Resource(kind="image", path=picture)])
    assert (await store.resolve(str(picture), "image")).path == picture


def test_binary_rubbish_is_no_known_kind(tmp_path):
    rubbish = tmp_path / "x.bin"
    rubbish.write_bytes(bytes(range(256)) * 4)
    with pytest.raises(InputError, match="not a kind of file"):
        detect_media_type(rubbish)


async def test_a_name_is_looked_for_below_the_allowed_directories_too(tmp_path, picture, monkeypatch):
    monkeypatch.chdir(tmp_path)
    elsewhere = Settings(
        output_dir=tmp_path / "out", allowed_dirs=(picture.parent,), allow_request_paths=False
    )
    assert (await ResourceStore(elsewhere).grant(picture.name)).path == picture
    with pytest.raises(ForbiddenError, match="upload"):
        await ResourceStore(elsewhere).grant(f"../{picture.parent.name}/none.png")


async def test_a_bare_name_in_the_request_means_the_file_of_that_name_that_came_with_it(store, picture):
    given = await store.grant(str(picture))
    assert await store.grant_mention(picture.name) == given
    assert await store.resolve(picture.name, "image") == given
    assert (await store.grant_mention(f"other/{picture.name}")).path is None


async def test_an_image_with_too_many_pixels_is_refused_before_it_is_opened(tmp_path, picture):
    store = ResourceStore(Settings(output_dir=tmp_path / "out", max_pixels=10))
    await store.grant(str(picture))
    with pytest.raises(InputError, match="JARVIS_MAX_PIXELS"):
        await store.resolve(str(picture), "image")


async def test_a_cut_off_image_is_told_before_any_model_is_asked(store, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    await store.grant(str(broken))
    with pytest.raises(InputError, match="can not be read as an image"):
        await store.resolve(str(broken), "image")


async def test_the_name_of_a_missing_text_file_is_not_taken_for_the_text(store):
    await store.grant_mention("notes.txt")
    with pytest.raises(InputError, match=r"notes\.txt does not exist"):
        await store.text_of("notes.txt")


ODD_NAMES = ["~nouser/x.png", "a" * 300 + ".png", "a\0.png", "http://[abc/x.png"]


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_a_name_that_the_system_does_not_take_is_an_input_error(store, name):
    with pytest.raises(InputError, match=r"can not be (read|fetched)"):
        await store.grant(name)


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_such_a_name_among_the_words_of_a_request_is_complained_of_only_by_its_task(store, name):
    assert (await store.grant_mention(name)).path is None
    with pytest.raises(InputError, match=r"can not be (read|fetched)"):
        await store.resolve(name, "image")


@pytest.mark.parametrize("name", ODD_NAMES[:3])
async def test_such_a_name_in_a_plan_is_an_input_error(store, name):
    with pytest.raises(InputError):
        await store.resolve(name, "image")


async def test_the_name_of_a_file_stands_for_its_path(store, picture):
    await store.grant(str(picture))
    for name in ("cat.png", "in/cat.png", "elsewhere/cat.png", str(picture)):
        assert await store.path_of(name) == str(picture)


@pytest.mark.parametrize(
    "text",
    ["Who took in/cat.png", "谁拍了in/cat.png", "in/dog.png, in/cat.png", "https://example.org/in/cat.png"],
)
async def test_a_text_that_only_ends_in_the_name_of_a_file_stays_a_text(store, picture, text):
    await store.grant(str(picture))
    assert await store.path_of(text) == text


async def test_a_file_name_with_spaces_may_be_shortened(store, picture):
    spaced = picture.rename(picture.with_name("my cat.png"))
    await store.grant(str(spaced))
    assert await store.path_of("my cat.png") == str(spaced)
    assert await store.path_of("in/my cat.png") == str(spaced)


async def test_the_same_attachment_is_one_file_of_the_run(store, picture):
    data = base64.b64encode(picture.read_bytes()).decode()
    block = {"type": "image", "base64": data, "mime_type": "image/png"}
    kept = await store.keep(block)
    assert await store.recall(block) == kept
    assert await store.grant(f"data:image/png;base64,{data}") == kept
    assert list(store.directory.iterdir()) == [kept.path]


async def test_an_earlier_address_is_fetched_only_when_a_task_wants_it(store):
    url = "http://127.0.0.1:9/cat.png"
    recalled = await store.recall({"type": "image", "url": url})
    assert (recalled.kind, recalled.name, recalled.path) == ("image", url, None)
    with pytest.raises(ForbiddenError, match="private address"):
        await store.resolve(url, "image")


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "file_id": "file-1"},
        {"type": "image", "base64": "%%%"},
        {"type": "image", "base64": 5},
        {"type": "image", "source_type": "base64"},
    ],
)
async def test_an_earlier_attachment_that_can_not_be_used_is_left_out_and_logged(store, block, caplog):
    assert await store.recall(block) is None
    assert "an attachment of an earlier turn is left out" in caplog.text
    with pytest.raises(InputError):
        await store.keep(block)


async def test_the_size_limit_holds_below_an_allowed_directory_too(tmp_path, picture):
    settings = Settings(output_dir=tmp_path / "out", allowed_dirs=(picture.parent,), max_file_bytes=10)
    with pytest.raises(InputError, match="JARVIS_MAX_FILE_BYTES"):
        await ResourceStore(settings).resolve(str(picture), "image")


async def test_the_store_knows_the_files_that_a_request_may_name(tmp_path, store, picture):
    assert store.knows(str(picture))
    assert not store.knows("cat.png")
    await store.grant(str(picture))
    assert store.knows("cat.png")
    assert not store.knows("words/cat.png")
    assert not any(store.knows(name) for name in ODD_NAMES)
    closed = ResourceStore(Settings(output_dir=tmp_path / "out", allow_request_paths=False))
    assert not closed.knows(str(picture))


def test_a_store_that_was_closed_makes_no_directory_any_more(tmp_path: Path) -> None:
    """A thread that makes it can not be stopped along with its run, and may come late."""
    store = ResourceStore(Settings(output_dir=tmp_path / "out"))
    store.close()
    store.prepare()
    assert not (tmp_path / "out").exists()
