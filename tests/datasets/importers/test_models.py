from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from routecast.datasets.errors import UsageError
from routecast.datasets.importers import ImportRequest, import_files
from routecast.datasets.importers import models as finding

GPU = "NVIDIA H100 PCIe"


@pytest.fixture
def cache(tmp_path: Path, samples: ModuleType) -> Callable[..., Path]:
    """Writes a cache about a model, in a folder of its own."""

    def cache(onnx: str, name: str = "tuned.json") -> Path:
        path = tmp_path / "caches" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(samples.text([samples.header(onnx=onnx), samples.row(0, samples.route(), 2.0)]))
        return path

    return cache


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Writes the network of the samples anywhere."""
    spec = importlib.util.spec_from_file_location("importer_conftest", Path(__file__).with_name("conftest.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.write_network


def reason(path: Path, **request: object) -> str:
    imported = import_files([path], ImportRequest(**{"device": GPU, **request}))  # type: ignore[arg-type]
    if imported.records.measurements:
        return f"imported {imported.records.measurements[0].model}"
    (found,) = imported.files[0].skipped
    return found


def test_a_model_is_found_by_the_end_of_its_path(
    tmp_path: Path, cache: Callable[..., Path], make: Callable[..., Path]
) -> None:
    path = cache("/home/other/work/models/deep/net.onnx")
    assert reason(path).startswith("no file 'net.onnx' beside it or in --models")
    make(tmp_path / "caches" / "deep" / "net.onnx")
    assert reason(path) == "imported net"


def test_a_model_is_found_by_name_in_the_folders_named(
    tmp_path: Path, cache: Callable[..., Path], make: Callable[..., Path]
) -> None:
    path = cache("C:\\models\\net.onnx")
    make(tmp_path / "zoo" / "a" / "b" / "net.onnx")
    assert reason(path) == "no file 'net.onnx' beside it or in --models: name its folder, or the file with --model"
    assert reason(path, folders=(tmp_path / "zoo",)) == "imported net"


def test_of_two_models_none_is_guessed(tmp_path: Path, cache: Callable[..., Path], make: Callable[..., Path]) -> None:
    path = cache("/m/net.onnx")
    one, _ = make(tmp_path / "zoo" / "a" / "net.onnx"), make(tmp_path / "zoo" / "b" / "net.onnx")
    folders = (tmp_path / "zoo",)
    assert reason(path, folders=folders) == "2 files are called 'net.onnx': name the right one with --model"
    assert reason(path, folders=folders, model=one) == "imported net"


def test_a_path_in_a_file_leads_to_no_other_folder(
    tmp_path: Path, cache: Callable[..., Path], make: Callable[..., Path]
) -> None:
    secret = make(tmp_path / "secret" / "net.onnx")
    (tmp_path / "zoo").mkdir()
    assert reason(cache(str(secret))).startswith("no file")
    assert reason(cache("../secret/net.onnx")).startswith("no file")
    assert reason(cache(f"x/../../secret/{secret.name}"), folders=(tmp_path / "zoo",)).startswith("no file")
    for odd in ("..", "/", "net.onnx\0.txt", "."):
        assert reason(cache(odd)) == finding.UNNAMED
    (tmp_path / "zoo" / "net.onnx").symlink_to(secret)
    assert reason(cache("net.onnx"), folders=(tmp_path / "zoo",)).startswith("no file")


def test_links_inside_the_folder_are_one_file(
    tmp_path: Path, cache: Callable[..., Path], make: Callable[..., Path]
) -> None:
    inside = make(tmp_path / "zoo" / "a" / "net.onnx")
    (tmp_path / "zoo" / "net.onnx").symlink_to(inside)
    assert reason(cache("net.onnx"), folders=(tmp_path / "zoo",)) == "imported net"


def test_a_folder_too_large_to_search_is_refused(
    tmp_path: Path, cache: Callable[..., Path], make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "zoo" / "net.onnx")
    make(tmp_path / "zoo" / "other.onnx")
    monkeypatch.setattr(finding, "MOST_FILES", 1)
    with pytest.raises(UsageError, match="holds more than 1 files; name a smaller folder"):
        reason(cache("net.onnx"), folders=(tmp_path / "zoo",))


def test_a_missing_folder_is_an_error(tmp_path: Path, cache: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        reason(cache("net.onnx"), folders=(tmp_path / "none",))


def test_one_model_does_not_stand_for_two(
    tmp_path: Path, cache: Callable[..., Path], make: Callable[..., Path]
) -> None:
    network = make(tmp_path / "renamed.onnx")
    paths = [cache("a.onnx", "a.json"), cache("b.onnx", "b.json")]
    imported = import_files(paths, ImportRequest(model=network, device=GPU))
    assert [report.measurements for report in imported.files] == [1, 0]
    assert "it is about 'b.onnx' while another file is about 'a.onnx'" in next(iter(imported.files[1].skipped))


def test_dynamic_axes_need_shapes(tmp_path: Path, cache: Callable[..., Path], make: Callable[..., Path]) -> None:
    network = make(tmp_path / "net.onnx", batch="batch")
    assert "dynamic axis 0" in reason(cache("net.onnx"), model=network)
    assert reason(cache("net.onnx"), model=network, shapes={"x": (2, 64)}) == "imported net"


def test_a_file_that_is_no_model_is_said(tmp_path: Path, cache: Callable[..., Path]) -> None:
    (tmp_path / "caches").mkdir()
    (tmp_path / "caches" / "net.onnx").write_bytes(b"\x93NUMPY")
    assert "is not an ONNX file" in reason(cache("net.onnx"))
