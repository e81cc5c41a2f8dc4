from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from routecast.datasets.errors import UsageError
from routecast.datasets.importers import Format, Imported, detect, import_files, reading

Load = Callable[..., Imported]


def test_content_tells_the_format(tmp_path: Path, samples: ModuleType) -> None:
    contents = {
        Format.TRTEXEC_CACHE: samples.text([samples.header()]),
        Format.TORCH_TENSORRT_CACHE: samples.text([samples.torch_header()]),
        Format.TRTEXEC_TIMES: samples.times([1.0]),
        Format.TRTEXEC_PROFILE: samples.profile({"a": 1.0}),
        Format.TRTEXEC_LOG: "\n".join(["make: Entering directory", *samples.run_log("--onnx=a")]),
        None: "hello",
    }
    for expected, text in contents.items():
        assert detect(text, tmp_path) is expected


class Harmful:
    """Would make a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("unpickled"),)


def test_a_pickle_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in (2, 4, 5):
        (tmp_path / "cache.pt").write_bytes(pickle.dumps(Harmful(), protocol))
        (reason,) = import_files([tmp_path / "cache.pt"]).files[0].skipped
        assert "is a pickle or an archive, which is never opened" in reason
    assert not (tmp_path / "unpickled").exists()


def test_a_layer_listing_holds_no_times(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no times; import --exportProfile"):
        detect('{"Layers": ["a"], "Bindings": []}', tmp_path)


def test_a_file_that_is_too_large_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LIMIT", 2**20)
    (tmp_path / "big.log").write_bytes(b"x" * (2**20 + 1))
    (reason,) = import_files([tmp_path / "big.log"]).files[0].skipped
    assert "has 1 MiB and files of up to 1 MiB are imported; split it by lines" in reason


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        import_files([tmp_path / "none.json"])


def test_one_bad_file_does_not_keep_others_out(tmp_path: Path, samples: ModuleType, network: Path, load: Load) -> None:
    (tmp_path / "bad.bin").write_bytes(b"\xff\xfe\x00nothing")
    (tmp_path / "run.log").write_text("\n".join(samples.run_log("--onnx=net.onnx")))
    imported = import_files([tmp_path / "bad.bin", tmp_path / "run.log", tmp_path])
    assert [report.measurements for report in imported.files] == [0, 1, 0]
    assert "is not a regular file" in next(iter(imported.files[2].skipped))
