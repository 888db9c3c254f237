"""What turns names into paths, and paths into names, with the paths of Windows on any system."""

from io import BytesIO
from pathlib import Path, PureWindowsPath
from typing import Any, Self

import pytest
from starlette.requests import Request

from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.settings import Settings
from jarvis_agent.interfaces.common.uploads_and_outputs import FileUrls, PublicNames, save_upload
from jarvis_agent.media.run_directory import RunDirectory

RUN = "20250101-120000-8f0c"


class WindowsPath(PureWindowsPath):
    """A path of Windows that is absolute and no link."""

    def absolute(self) -> Self:
        return self

    resolve = absolute


RUNS: Any = WindowsPath(r"C:\srv\served")


def is_one_file(name: str) -> bool:
    """Whether Windows keeps a file of this name in the directory that it is made in."""
    path = PureWindowsPath(name)
    return len(path.parts) == 1 and not (path.drive or path.is_reserved() or set(name) & set('<>:"|?*'))


@pytest.mark.parametrize(
    "name",
    [
        r"C:\ada\a.txt",
        r"..\..\a.txt",
        "a.txt:hidden",
        "C:a.txt",
        "con.txt",
        "NUL",
        "a. ",
        "a?.txt",
        "照片.txt",
    ],
)
def test_names_of_clients_and_tools_are_one_file_on_windows(tmp_path: Path, name: str) -> None:
    upload = save_upload(tmp_path, name, BytesIO(b"words"), 5, 10, 10)
    made = RunDirectory(Settings(output_dir=tmp_path)).new_path(".txt", f"0-{name}")
    assert is_one_file(upload.name.partition("/")[2])
    assert is_one_file(made.name)


def test_clients_see_urls_and_no_paths_of_windows() -> None:
    file = rf"{RUNS}\{RUN}\0-canny.png"
    assert PublicNames({RUNS: "/outputs/"}).of({"path": file}) == {"path": f"/outputs/{RUN}/0-canny.png"}
    scope = {"type": "http", "scheme": "http", "path": "/", "root_path": "", "query_string": b""}
    request = Request({**scope, "headers": [(b"host", b"here")], "state": {"api_key": None}})
    urls = FileUrls(RUNS, request)
    assert urls.to_urls(f"It is at {file}.") == f"It is at http://here/outputs/{RUN}/0-canny.png."


def test_a_path_of_windows_in_a_request_is_a_file() -> None:
    assert mentions(r"Describe C:\photos\cat.jpg and .\b.wav") == [r"C:\photos\cat.jpg", r".\b.wav"]
