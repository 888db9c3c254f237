"""The files of a run, and the access policy: what a request and a plan may read."""

# ruff: noqa: ASYNC240 - the files are small
import base64
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from PIL import Image

from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.errors import ForbiddenError, InputError
from jarvis_agent.core.request import Request
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Resource
from jarvis_agent.media.access import AccessPolicy
from jarvis_agent.media.run_directory import RunDirectory
from jarvis_agent.media.store import ResourceStore


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "cat.png"
    path.parent.mkdir()
    Image.new("RGB", (8, 6), "red").save(path)
    return path


@pytest.fixture
def store(tmp_path: Path) -> ResourceStore:
    return store_with(tmp_path)


def store_with(tmp_path: Path, **settings: Any) -> ResourceStore:
    return ResourceStore(Settings(output_dir=tmp_path / "out", **settings))


async def test_names_of_a_granted_file_resolve_to_it(store: ResourceStore, picture: Path) -> None:
    await store.grant(str(picture))
    forms = ("{}", "`{}`", "'{}'", "<{}>", "![]({})", '"{}"')
    named = [form.format(name) for form in forms for name in ("cat.png", picture)]
    for name in ("some/where/cat.png", *named):
        found = await store.resolve(name, "image")
        assert (found.kind, found.mime, found.path) == ("image", "image/png", picture), name


async def test_a_plan_reads_only_what_the_request_the_chat_or_the_settings_allow(
    store: ResourceStore, picture: Path, tmp_path: Path
) -> None:
    with pytest.raises(ForbiddenError, match="JARVIS_ALLOWED_DIRS"):
        await store.resolve(str(picture), "image")
    with pytest.raises(ForbiddenError, match="neither the request"):
        await store.resolve("https://example.org/x.png", "image")
    store.grant_resources([Resource(kind="image", path=picture)])  # made by this chat
    assert (await store.resolve(str(picture), "image")).path == picture
    twin = tmp_path / "cat.png"
    Image.new("RGB", (8, 6), "blue").save(twin)
    await store.grant(str(twin))
    with pytest.raises(ForbiddenError):  # the short name is ambiguous
        await store.resolve("where/cat.png", "image")


async def test_a_path_or_a_url_means_no_file_of_that_name_elsewhere(tmp_path: Path, picture: Path) -> None:
    for name in ("first/1.png", "second/1.png", "second/1#.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(picture.read_bytes())
    first, second, alike = tmp_path / "first/1.png", tmp_path / "second/1.png", tmp_path / "second/1#.png"
    for store in (store_with(tmp_path, allowed_dirs=(first.parent,)), store_with(tmp_path)):
        store.grant_resources([Resource(kind="image", path=second)])
        assert (await store.resolve("1.png", "image")).path == second
        if store.settings.allowed_dirs:
            assert (await store.resolve(str(first), "image")).path == first
        for name in (str(alike), str(tmp_path / "1.png"), "https://example.org/1.png"):
            with pytest.raises(ForbiddenError):
                await store.resolve(name, "image")
            assert await store.path_of(name) == name
            assert (await store.grant_mention(name)).path in (None, alike)
    closed = store_with(tmp_path, allow_request_paths=False)
    closed.grant_resources([Resource(kind="image", path=second)])
    assert await named(closed, f"describe {first}") == {str(first): None}


async def test_allowed_directories_exclude_their_neighbours_and_links_out_of_them(
    tmp_path: Path, picture: Path
) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "link.png").symlink_to(picture)
    store = store_with(tmp_path, allowed_dirs=(picture.parent,))
    assert (await store.resolve(str(picture), "image")).path == picture
    with pytest.raises(ForbiddenError):
        await store.resolve(str(picture.parent / ".." / "secret.png"), "image")
    with pytest.raises(ForbiddenError):
        await store_with(tmp_path, allowed_dirs=(allowed,)).resolve(str(allowed / "link.png"), "image")


async def test_the_file_that_was_checked_is_the_one_that_is_read(tmp_path: Path) -> None:
    """The file system and the spelling of a path disagree about ".." behind a link."""
    root, outside = tmp_path / "root", tmp_path / "etc" / "x.txt"
    inside = root / "a" / "etc" / "x.txt"
    for path in (inside, outside):
        path.parent.mkdir(parents=True)
        path.write_text(path.parent.parent.name)
    (root / "a" / "b" / "c").mkdir(parents=True)
    (root / "link").symlink_to(root / "a" / "b" / "c")
    name = f"{root}/link/../../etc/x.txt"
    for allow_request_paths in (True, False):
        store = store_with(tmp_path, allowed_dirs=(root,), allow_request_paths=allow_request_paths)
        for found in (await store.resolve(name, "text"), await store.grant(name)):
            assert found.path == inside


async def test_a_server_reads_no_path_of_a_request_outside_the_allowed_directories(
    tmp_path: Path, picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = store_with(tmp_path, allow_request_paths=False)
    assert await named(closed, f"see {picture}") == {str(picture): None}
    with pytest.raises(ForbiddenError, match="upload"):
        await closed.grant(str(picture))
    monkeypatch.chdir(tmp_path)
    store = store_with(tmp_path, allowed_dirs=(picture.parent,), allow_request_paths=False)
    assert (await store.grant(picture.name)).path == picture
    with pytest.raises(ForbiddenError, match="upload"):
        await store.grant(f"../{picture.parent.name}/none.png")


async def test_a_text_named_as_an_image_is_planned_as_an_image_and_refused(
    store: ResourceStore, tmp_path: Path
) -> None:
    for name in ("page.jpg", "NOTES"):
        (tmp_path / name).write_text("<html>not found</html>")
    assert (await store.grant_mention(str(tmp_path / "NOTES"))).kind == "text"
    page = str(tmp_path / "page.jpg")
    assert (await store.grant_mention(page)).kind == "image"
    with pytest.raises(InputError, match=r"page\.jpg is a text file, and an image file is needed"):
        await store.resolve(page, "image")


async def test_an_unreadable_mention_is_an_error_only_when_a_task_uses_it(store: ResourceStore) -> None:
    resource = await store.grant_mention("missing.jpg")
    assert (resource.kind, resource.path) == ("image", None)
    with pytest.raises(InputError, match=r"missing\.jpg does not exist"):
        await store.resolve("missing.jpg", "image")
    await store.grant_mention("notes.txt")
    with pytest.raises(InputError, match=r"notes\.txt does not exist"):
        await store.text_of("notes.txt")
    for name in ("~nouser/x.png", "a" * 300 + ".png", "a\0.png", "http://[abc/x.png"):
        assert not list(store.access.known_names(name))
        with pytest.raises(InputError, match=r"cannot be (read|fetched)|does not exist"):
            await store.grant(name)
        if not name.startswith("http"):
            with pytest.raises(InputError):
                await store.resolve(name, "image")
        assert (await store.grant_mention(name)).path is None
        with pytest.raises(InputError, match=r"cannot be (read|fetched)|does not exist"):
            await store.resolve(name, "image")


async def test_a_mistyped_name_is_suggested_where_requests_name_files(picture: Path, tmp_path: Path) -> None:
    mistyped = f"{picture.parent}/{picture.stem.upper()}t{picture.suffix}"
    with pytest.raises(InputError, match=f"did you mean {picture}\\?"):
        await store_with(tmp_path).grant(mistyped)
    for name in (str(tmp_path / "quite-another.wav"), str(tmp_path / "no-folder" / picture.name)):
        with pytest.raises(InputError, match="check its name"):
            await store_with(tmp_path).grant(name)
    served = store_with(tmp_path, allow_request_paths=False, allowed_dirs=(tmp_path,))
    with pytest.raises(InputError, match="check its name"):
        await served.grant(mistyped)


async def test_the_content_and_the_size_of_a_file_are_checked(
    store: ResourceStore, picture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disguised, empty, broken = (tmp_path / name for name in ("song.mp3", "empty.jpg", "broken.png"))
    disguised.write_bytes(picture.read_bytes())
    empty.touch()
    broken.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    assert (await store.grant(str(disguised))).kind == "image"
    missing = tmp_path / "none.jpg"
    for path, message in ((empty, "is empty"), (missing, "does not exist"), (broken, "is damaged")):
        with pytest.raises(InputError, match=message):
            await store.grant(str(path))
    await store.grant(str(picture))
    with pytest.raises(InputError, match="is an image file, and an audio file is needed"):
        await store.resolve(str(picture), "audio")
    with pytest.raises(InputError, match="JARVIS_MAX_FILE_BYTES"):
        await store_with(tmp_path, max_file_bytes=10).grant(str(picture))
    allowed = {"allowed_dirs": (picture.parent,)}
    with pytest.raises(InputError, match="JARVIS_MAX_FILE_BYTES"):
        await store_with(tmp_path, **allowed, max_file_bytes=10).resolve(str(picture), "image")
    monkeypatch.setattr("jarvis_agent.media.limits.MAX_PIXELS", 10)
    with pytest.raises(InputError, match="more than 10; make it smaller"):
        await store_with(tmp_path, **allowed).resolve(str(picture), "image")


async def attached_before(store: ResourceStore, block: dict[str, Any]) -> tuple[Resource, ...]:
    """The files of an earlier turn that had this attachment."""
    _, (turn,), _ = await store.open(Request(input="Go on"), [ChatTurn("Look", "", blocks=(block,))])
    return turn.resources


async def test_an_attachment_has_the_same_name_in_each_process(store: ResourceStore, picture: Path) -> None:
    data = base64.b64encode(picture.read_bytes()).decode()
    block = {"type": "image", "base64": data, "mime_type": "image/png"}
    kept = await store.grant_block(block)
    assert kept.path is not None
    assert (kept.kind, kept.path.parent) == ("image", store.directory.path)
    assert await store.resolve(kept.name, "image") == kept
    assert await attached_before(store, block) == (kept,)
    assert await store.grant(f"data:image/png;base64,{data}") == kept
    for content in (picture.read_bytes(), b"\x89PNG"):  # an interrupted process wrote a part of it
        kept.path.write_bytes(content)
        assert await ResourceStore(store.settings, directory=store.directory.path).grant_block(block) == kept
        assert kept.path.read_bytes() == picture.read_bytes()
    assert [path.name for path in store.directory.path.iterdir()] == [kept.name]


@pytest.mark.parametrize(
    "url",
    [
        "DATA:IMAGE/PNG;BASE64,{plain}",
        " data:image/png;base64,{wrapped}",
        "data:;base64,{safe}",
        'data:image/png;codecs="a, b";base64,{plain}',
    ],
)
async def test_a_data_url_is_read_wherever_a_file_is_named(
    store: ResourceStore, picture: Path, url: str
) -> None:
    """In `files`, in content blocks of each form, in a plan and in a tool's argument."""
    content = picture.read_bytes()
    plain, wrapped = base64.b64encode(content).decode(), base64.encodebytes(content).decode()
    safe = base64.urlsafe_b64encode(content).decode().rstrip("=")
    url = url.format(plain=plain, wrapped=wrapped, safe=safe)
    found = [await store.grant(url), await store.resolve(url, "image")]
    blocks: list[dict[str, Any]] = [
        {"type": "image", "url": url},
        {"type": "image", "base64": url, "mime_type": "image/png"},
        {"type": "image_url", "image_url": url},
        {"type": "input_audio", "input_audio": {"data": url, "format": "wav"}},
        {"type": "file", "file": {"file_data": url}},
    ]
    found += [await store.grant_block(block) for block in blocks]
    assert {(file.kind, file.path and file.path.read_bytes()) for file in found} == {("image", content)}


async def test_texts_in_data_urls_and_blocks_are_files(store: ResourceStore) -> None:
    note = await store.grant("data:text/plain;charset=iso-8859-7,%be%d3%be")
    page = {"type": "text-plain", "text": "a % b, ü", "mime_type": "text/plain"}
    assert await store.text_of(note) == "ΎΣΎ"
    assert await store.text_of(await store.grant_block(page)) == "a % b, ü"


async def test_errors_do_not_repeat_a_file(store: ResourceStore, picture: Path) -> None:
    data = base64.b64encode(picture.read_bytes() * 50).decode()
    for act in (
        store.grant(data),
        store.grant(f"data:image/png;base64{data}"),
        store.resolve(f"data:image/png;base64,{data}", "audio"),
        store.resolve(data, "image"),
        store.grant_block({"type": "image", "url": data}),
    ):
        with pytest.raises(InputError) as refused:
            await act
        assert len(str(refused.value)) < 250


async def test_an_unusable_attachment_is_an_error_or_if_it_is_older_logged(
    store: ResourceStore, caplog: pytest.LogCaptureFixture
) -> None:
    for field in ({"file_id": "file-1"}, {"base64": "%%%"}, {"base64": 5}, {"source_type": "base64"}):
        block = {"type": "image", "mime_type": "image/png", **field}
        caplog.clear()
        assert await attached_before(store, block) == ()
        assert "an attachment of an earlier turn is left out" in caplog.text
        with pytest.raises(InputError, match="base64"):
            await store.grant_block(block)


async def test_an_earlier_address_is_fetched_when_a_task_uses_it(store: ResourceStore) -> None:
    url = "http://127.0.0.1:9/cat.png"
    (recalled,) = await attached_before(store, {"type": "image", "url": url})
    assert (recalled.kind, recalled.name, recalled.path) == ("image", url, None)
    with pytest.raises(ForbiddenError, match="private address"):
        await store.resolve(url, "image")


async def test_file_names_are_replaced_by_text_or_path_and_sentences_are_not(
    store: ResourceStore, picture: Path, tmp_path: Path
) -> None:
    note = tmp_path / "note.txt"
    note.write_text("héllo", encoding="utf-8")
    await store.grant(str(note))
    assert await store.text_of(str(note)) == "héllo"
    assert await store.text_of("note.md") == "note.md"
    await store.grant(str(picture))
    for name in ("cat.png", "in/cat.png", "elsewhere/cat.png", str(picture)):
        assert await store.path_of(name) == str(picture)
    for form in ("Who took {}", "谁拍了{}", "in/dog.png, {}", "https://a.org/{}"):
        assert await store.path_of(text := form.format("in/cat.png")) == text
    spaced = picture.rename(picture.with_name("my cat.png"))
    await store.grant(str(spaced))
    for name in ("my cat.png", "in/my cat.png"):
        assert await store.path_of(name) == str(spaced)


async def test_names_of_text_files_in_a_text_are_replaced_by_their_contents(
    store: ResourceStore, picture: Path, tmp_path: Path
) -> None:
    contents = {"a.txt": "ALPHA", "my a.txt": "MINE", "t.csv": "x,y\n1,2", "notes": "no name"}
    for name, content in contents.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        await store.grant(str(tmp_path / name))
    await store.grant(str(picture))
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    for text, expected in {
        "Summarise a.txt.": "Summarise ALPHA.",
        "总结a.txt的内容": "总结ALPHA的内容",
        f"Compare `{tmp_path}/a.txt' with my a.txt, a.txt": "Compare `ALPHA' with MINE, ALPHA",
        "the total of t.csv": "the total of x,y\n1,2",
    }.items():
        assert await store.text_of(text) == expected
    for text in (
        "see data.txt, aa.txt, x/a.txt, a.txt.gz, a.txt/b and a-a.txt",
        f"what is in {picture}",
        "my notes",
        f"read {tmp_path}/secret.txt",
    ):
        assert await store.text_of(text) == text
    assert await store.text_of("the total of t.csv and a.txt", ["t.csv"]) == "the total of t.csv and ALPHA"


async def test_a_named_text_file_that_cannot_be_read_or_is_too_long_is_an_error(
    store: ResourceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("ten words " * 10, encoding="utf-8")
        await store.grant(str(tmp_path / name))
    monkeypatch.setattr("jarvis_agent.media.store.MAX_CHARS", 150)
    assert len(await store.text_of("Read a.txt")) == 104
    with pytest.raises(InputError, match="more than 150 characters; name fewer"):
        await store.text_of("Read a.txt and b.txt")
    (tmp_path / "a.txt").unlink()
    with pytest.raises(InputError, match=r"a\.txt"):
        await store.text_of("Read a.txt")


NAMES = (
    "photo#1.png", "scan 2.png", "page(1).png", "照片（1）.png", "50% off, 1.png", "a & b.png", "wow!.png",
    "dad's 1.png", "scan - copy.png", "[draft] 2.png", "【终稿】1.png", "c++ 3.png", "a.c",
    "two  spaces 1.png", "~1.png", "日本語 1.png", "é1.png", "my photos/a b.png", "d.geojson", "x/1.png",
)  # fmt: skip
ALIKE = {
    "U\u0308ber 3.png": "Über 3.png",
    "Shot at 9.41\u202fAM.png": "Shot at 9.41 AM.png",
    "mom’s 3.png": "mom's 3.png",
    "2019–2020.png": "2019-2020.png",
    "宽（3）.png": "宽(3).png",
    "Case A.PNG": "case a.png",
    "from here/dragged (4).png": r"from\ here/dragged\ \(4\).png",
}


async def named(store: ResourceStore, text: str) -> dict[str, Path | None]:
    """The files that a text names, by their names in it."""
    return {file.name: file.path for file in await store.grant_mentions(text, [])}


@pytest.fixture
def folder(tmp_path: Path, picture: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with pictures whose names end others."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("1.png", "2.png", "3.png", "b.png", "copy.png", "t.png"):
        (folder / name).write_bytes(picture.read_bytes())
    return folder


@pytest.mark.parametrize("form", ["How large is {}?", "描述{}里的猫", "Describe “{}”.", "{}", "图片「{}」"])
async def test_the_longest_name_of_a_file_in_a_text_is_found_whatever_its_letters(
    store: ResourceStore, folder: Path, form: str
) -> None:
    cases = {**{name: name for name in NAMES}, **ALIKE}
    for file in cases:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes((folder / "2.png").read_bytes())
    for file, written in cases.items():
        assert await named(store, form.format(written)) == {written: folder / file}


async def test_a_shorter_file_is_not_read_for_a_longer_name_that_is_missing(
    store: ResourceStore, folder: Path
) -> None:
    missing = ("photo#2.png", "x+3.png", "scan&3.png", "page[1]2.png", "sub/2.png", "'scan 3.png'")
    for name in (*missing, "《3.png"):
        files = await named(store, f"describe {name}")
        assert list(files.values()) == ([folder / "3.png"] if name[0] == "《" else [None]), name
    for form in ("describe {}", "@{}", "({})", "**{}**", "图：{}。", "l'image {}", "2.png,{}"):
        text = form.format("3.png")
        assert (await named(store, text))["3.png"] == folder / "3.png", text


async def test_an_attached_file_is_meant_by_its_name_before_others(
    store: ResourceStore, folder: Path, picture: Path
) -> None:
    attached = picture.rename(picture.with_name("2.png"))
    await store.grant(str(attached))
    assert await named(store, "compare 2.PNG with 3.png") == {"2.PNG": attached, "3.png": folder / "3.png"}
    assert (await store.grant_mention("other/2.png")).path is None
    other = (folder / "3.png").rename(folder / "2-.png")
    assert await named(store, "compare 2.png with 2-.png") == {"2.png": attached, "2-.png": other}
    request = Request(input="describe 2.png", files=[str(attached), str(folder / "1.png")])
    files, _, _ = await store.open(request)
    assert {file.name: file.path for file in files} == {"2.png": attached, request.files[1]: folder / "1.png"}


async def test_only_results_that_an_answer_of_the_chat_names_may_be_read_again(
    store: ResourceStore, folder: Path, tmp_path: Path
) -> None:
    made = tmp_path / "out" / "run 1" / "0-canny.png"
    made.parent.mkdir(parents=True)
    made.write_bytes((folder / "1.png").read_bytes())
    for name, opened in ((made, [made]), (made.parents[1] / ".." / "work" / "1.png", []), ("1.png", [])):
        history: list[Any] = [HumanMessage("Draw"), AIMessage(f"It is in {name}.")]
        _, turns, _ = await store.open(Request(input="Describe it", chat_history=history))
        assert [file.path for file in turns[0].resources] == opened, name
    closed = store_with(tmp_path, allow_request_paths=False)
    _, turns, _ = await closed.open(Request(input="Describe it", chat_history=history))
    assert turns[0].resources == ()


async def test_an_upload_is_meant_by_the_name_that_its_client_gave(tmp_path: Path, picture: Path) -> None:
    uploads = tmp_path / "uploads"
    for name in ("9f0c/my-memo-1.png", "9f0d/2.png"):
        (uploads / name).parent.mkdir(parents=True)
        (uploads / name).write_bytes(picture.read_bytes())
    store = store_with(tmp_path, allow_request_paths=False, allowed_dirs=(uploads,))
    await store.grant("9f0c/my-memo-1.png")
    upload = uploads / "9f0c" / "my-memo-1.png"
    for name in ("my memo#1.png", "my-memo-1.png", "My memo (1).png", r"C:\me\my-memo-1.png"):
        assert await named(store, f"describe {name}") == {name: upload}
        assert (await store.resolve(name, "image")).path == upload
    for name in ("2.png", "*/2.png", "9f0d/", "~/2.png", str(picture)):
        assert set((await named(store, f"describe {name}")).values()) <= {None}, name


def attached(name: str, content: bytes, mime: str = "application/octet-stream") -> dict[str, Any]:
    data = base64.b64encode(content).decode()
    return {"type": "file", "base64": data, "mime_type": mime, "filename": name}


@pytest.mark.parametrize(
    ("name", "mime", "content", "kind", "suffix"),
    [
        ("sales.csv", "application/octet-stream", b"a,b\n1,2\n", "table", ".csv"),
        ("Sales.TSV", "text/plain", b"a\tb\n1\t2\n", "table", ".tsv"),
        ("film.ass", "text/plain", b"Dialogue: 0,0:00:01.00,,,,0,0,0,,Hi\n", "text", ".ass"),
        ("notes", "text/csv", b"a,b\n1,2\n", "table", ".csv"),
        ("sales.csv", "text/csv", b"<!doctype html><p>Sign in</p>", "text", ".html"),
    ],
)
async def test_an_attached_text_is_of_the_kind_that_its_name_says(
    name: str, mime: str, content: bytes, kind: str, suffix: str, store: ResourceStore
) -> None:
    file = await store.grant_block(attached(name, content, mime))
    assert (file.name, file.kind, file.path and file.path.suffix) == (name, kind, suffix)


async def test_attached_files_of_one_name_are_told_apart(store: ResourceStore) -> None:
    texts = {"a.txt": b"one", "a-3.txt": b"two", "b.txt": b"three", "a-4.txt": b"four", "a-2.txt": b"five"}
    sent = [attached(name.replace("-3", "").replace("-4", ""), text) for name, text in texts.items()]
    message = HumanMessage([{"type": "text", "text": "How long is a.txt?"}, *sent, sent[0]])
    files, _, _ = await store.open(Request(messages=[message]))
    assert {file.name: await store.text_of(file) for file in files} == {
        name: text.decode() for name, text in texts.items()
    }
    assert [await store.text_of(name) for name in ("a.txt", "a-2.txt")] == ["one", "five"]


async def test_paths_and_addresses_of_files_are_found(store: ResourceStore, folder: Path) -> None:
    (folder / "my scans").mkdir()
    scan = (folder / "2.png").rename(folder / "my scans" / "a 2.png")
    relative = ("my scans/a 2.png", r"my scans\a 2.png", "./my scans/a 2.png", "../work/my scans/a 2.png")
    for name in (*relative, str(scan)):
        assert await named(store, f"describe {name} and this") == {name: scan}
    name = scan.as_uri()
    assert await named(store, f"describe {name}") == {name: scan}
    assert (await store.grant(name)).path == scan


async def test_a_folder_or_a_pattern_stands_for_its_files(
    store: ResourceStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "in").mkdir()
    (folder / "empty").mkdir()
    for name in ("b.png", "a 1.png", "c.jpg", ".d.png"):
        (folder / "in" / name).write_bytes((folder / "1.png").read_bytes())
    (folder / "in" / "e.bin").write_bytes(bytes(range(256)))
    for below in ("deep/f.png", ".thumbs/g.png"):
        (folder / "in" / below).parent.mkdir()
        (folder / "in" / below).write_bytes((folder / "1.png").read_bytes())
    inside = ["in/a 1.png", "in/b.png", "in/c.jpg"]
    for text, names in {
        "describe all pictures in in/": inside,
        "描述in/里的图": inside,
        "describe in/*.png": inside[:2],
        "describe in/* and 3.png": [*inside, "3.png"],
        "describe in/[a-b].png and [t.png]": ["in/b.png", "t.png"],
        "描述[!a-s].png和t.png": ["1.png", "2.png", "3.png", "t.png"],
        "describe in/*.{jpg,gif}.": ["in/c.jpg"],
        "name {b,copy}.png, {t,u}.{png,PNG} and {1..2}.png": [f"{n}.png" for n in ("b", "copy", "t", 1, 2)],
        "describe in/{x,y}.png and {name}.png": ["in/{x,y}.png"],
        "describe in/**/*.png": ["in/a 1.png", "in/b.png", "in/deep/f.png"],
        "describe in/**/f.png": ["in/deep/f.png"],
        "describe in/{b.png,c.jpg}": ["in/b.png", "in/c.jpg"],
        "how large are ?.png?": ["1.png", "2.png", "3.png", "b.png", "t.png"],
        "2*3, and/or, in in": [],
        "describe in/z.png, *.gif and empty/": ["in/z.png", "*.gif", "empty/"],
    }.items():
        assert list(await named(store, text)) == names, text
    for name in ("in", str(folder / "in")):
        files, _, _ = await store.open(Request(input="describe them", files=[name, f"{name}/b.png"]))
        assert [file.name for file in files] == [f"{name}/{Path(file).name}" for file in inside]
    monkeypatch.setattr("jarvis_agent.media.store.MAX_FILES", 2)
    notes: list[str] = []
    assert [file.name for file in await store.grant_mentions("in/", notes)] == inside[:2]
    assert notes == ["2 of the 4 files of “in/” are used; a request has at most 2"]


def test_new_paths_are_unique_and_stay_in_the_directory_of_the_run(store: ResourceStore) -> None:
    paths = {store.directory.new_path(".png", stem) for stem in ("a", "a", "../../a", "") for _ in range(25)}
    assert len(paths) == 100
    assert {path.parent for path in paths} == {store.directory.path}
    left = store.directory.new_path(".png", "0-task")
    left.write_bytes(b"x")
    again = ResourceStore(store.settings, directory=store.directory.path)
    assert again.directory.new_path(".png", "0-task") != left
    assert len({ResourceStore(store.settings).directory.path for _ in range(200)}) == 200


def test_the_directory_is_removed_if_it_is_empty(store: ResourceStore) -> None:
    store.directory.prepare()
    store.directory.close()
    assert not store.directory.path.exists()
    store.directory.prepare()  # A thread that calls it cannot be cancelled with its run, and may come late.
    assert not store.directory.path.exists()


def test_a_run_that_was_stopped_makes_no_directory(tmp_path: Path) -> None:
    directory = RunDirectory(Settings(), tmp_path / "run")
    directory.close()
    directory.prepare()
    assert not directory.path.exists()


async def test_a_turn_that_is_remembered_and_sent_again_counts_once(tmp_path: Path) -> None:
    said = [HumanMessage("Who are you?"), AIMessage("I am Jarvis."), HumanMessage("Hello"), AIMessage("Hi")]
    request = Request.of({"input": "And now?", "chat_history": said})
    _, turns, _ = await ResourceStore(Settings(), directory=tmp_path).open(request, [ChatTurn("Hello", "Hi")])
    assert [turn.request for turn in turns] == ["Who are you?", "Hello"]


async def test_a_file_with_blanks_in_its_name_is_read_and_not_its_name(tmp_path: Path) -> None:
    store = store_with(tmp_path, allowed_dirs=(tmp_path,))
    for name in ("my notes.txt", "invoice #42 (copy).txt"):
        (tmp_path / name).write_text("Milk", encoding="utf-8")
        assert await store.text_of(str(tmp_path / name)) == "Milk"
    (tmp_path.parent / "my notes.txt").write_text("secret", encoding="utf-8")
    assert await store.text_of(f"{tmp_path}/../my notes.txt") == f"{tmp_path}/../my notes.txt"


def test_an_address_in_a_plan_is_no_path_of_the_working_directory() -> None:
    with pytest.raises(ForbiddenError, match="may not read 'https://example"):
        AccessPolicy(Settings(), for_tool=True).open("https://example.org/a.png", is_planned=True)
