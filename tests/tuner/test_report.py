from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from routecast.datasets.graph import Graph, Node, Tensor
from routecast.datasets.measurement import LocalTime
from routecast.datasets.route import Route
from routecast.tuner.drawing import COLOURS, shorten
from routecast.tuner.report import milliseconds, operator_times, write_comparison, write_report
from routecast.tuner.results import TuneResult
from routecast.tuner.sources import compare_result


class _Page(HTMLParser):
    """What a browser would see: text, identifiers, and addresses it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = ""
        self.identifiers: list[str] = []
        self.loads: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.identifiers.append(value or "")
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#"):
                self.loads.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "br"):
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


def _read(path: Path) -> _Page:
    text = path.read_text(encoding="utf-8")
    page = _Page(text)
    assert page.open == []
    assert page.loads == []
    assert "url(http" not in text
    assert "@import" not in text
    assert len(set(page.identifiers)) == len(page.identifiers)
    page.text = " ".join(page.text.split())
    return page


def test_the_report_says_what_was_found(result: TuneResult, tmp_path: Path) -> None:
    page = _read(write_report(result, None, tmp_path / "sub" / "report.html"))
    for text in (
        result.verdict,
        "1.27×",
        "interval 1.24 to 1.29",
        "0.990 – 1.008",
        "session.threads=2",
        "Made-up CPU for tests",
        "pruning loss",
        "26.6 %",
        "8.9 %",
        "inaccurate",
        "routecast tune",
        "TuneConfig(builds=6)",
        "--builds 6 --shapes x:1x3",
        "made-up warning about <operators>",
        "cos 0.4 > 0.01 <in output y>",
    ):
        assert text in page.text, text


def test_the_graphs_size_is_shown(result: TuneResult, tmp_path: Path) -> None:
    tensors = (
        Tensor((1, 4), "float32"),
        Tensor((1_000_000,), "float32", constant=True),
        Tensor((1, 4), "float32"),
    )
    graph = Graph((Node("Mul", "mul", (0, 1), (2,), flops=2.5e9),), tensors, (0,), (2,), 21)
    page = _read(write_report(result, graph, tmp_path / "report.html"))
    assert "1 operators, 2.5 GFLOP, 4 MB of weights, opset 21" in page.text


def test_a_default_winner_is_reported_as_such(result: TuneResult, tmp_path: Path) -> None:
    kept = replace(
        result,
        winner=Route(),
        ratio=1.0,
        ratio_low=1.0,
        ratio_high=1.0,
        latency_ms=10.0,
        verdict="keep the default route",
        artifact=None,
    )
    page = _read(write_report(kept, None, tmp_path / "report.html"))
    assert "no other was surely faster" in page.text
    assert "1.00×" in page.text


def test_a_tune_without_predictions_or_successes_has_a_report(result: TuneResult, tmp_path: Path) -> None:
    control, *_, inaccurate, _ = result.measurements
    bare = replace(
        result,
        measurements=(replace(control, local_profile=()), inaccurate),
        predictions=(),
        strategy="random",
        winner=Route(),
        ratio=1.0,
        ratio_low=1.0,
        ratio_high=1.0,
    )
    page = _read(write_report(bare, None, tmp_path / "report.html"))
    assert "The strategy random made no predictions" in page.text


def test_texts_of_models_and_messages_are_escaped(result: TuneResult, tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>$\\frac{'
    rows = tuple(replace(row, model=evil, message=evil) for row in result.measurements)
    harmful = replace(result, model_name=evil, measurements=rows, warnings=(evil,), verdict=evil)
    for path in (
        write_report(harmful, None, tmp_path / "report.html"),
        write_comparison(compare_result(harmful), tmp_path / "comparison.html"),
    ):
        assert "<script" not in path.read_text(encoding="utf-8")
        assert evil in _read(path).text


def test_settings_that_look_like_markup_are_drawn_as_text(result: TuneResult, tmp_path: Path) -> None:
    odd = Route({"knob.<b>$x_1$": "a&b"})
    first = replace(result.measurements[1], route=odd)
    page = _read(write_report(replace(result, measurements=(first,)), None, tmp_path / "report.html"))
    assert "knob.<b>$x_1$=a&b" in page.text


def test_figures_take_their_colours_from_the_page(result: TuneResult, tmp_path: Path) -> None:
    text = write_report(result, None, tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 3
    for name, colour in COLOURS.items():
        assert colour not in text
        assert f"--{name}:" in text
    drawn = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", text))
    assert drawn <= {"#ffffff"}


def test_figures_are_the_same_every_time(result: TuneResult, tmp_path: Path) -> None:
    one = write_report(result, None, tmp_path / "one.html").read_bytes()
    assert write_report(result, None, tmp_path / "other.html").read_bytes() == one


def test_a_comparison_of_several_models(result: TuneResult, tmp_path: Path) -> None:
    from routecast.tuner.comparison import summarise

    (model,) = compare_result(result).models
    models = [replace(model, model=f"toy {number}") for number in range(3)]
    comparison = summarise(models, source="a history", predictor="a model", notes=("a note",))
    page = _read(write_comparison(comparison, tmp_path / "comparison.html"))
    for text in ("toy 0", "toy 2", "a note", "First choices", "15 measured ratios"):
        assert text in page.text, text


def test_operator_times_are_summed_and_sorted() -> None:
    default = [LocalTime("a", "Conv", 1.0), LocalTime("b", "Relu", 0.5), LocalTime("c", "Conv", 2.0)]
    winner = [LocalTime("a", "FusedConv", 2.5)]
    rows = operator_times(default, winner)
    assert [(row.op, row.default_ms, row.winner_ms) for row in rows] == [
        ("Conv", 3.0, None),
        ("FusedConv", None, 2.5),
        ("Relu", 0.5, None),
    ]


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0.01234, "0.0123 ms"), (7.9, "7.9 ms"), (1234.5, "1234 ms")])
def test_milliseconds(value: float | None, text: str) -> None:
    assert milliseconds(value) == text


def test_long_labels_keep_both_ends() -> None:
    assert shorten("short") == "short"
    text = shorten("start" + 100 * "x" + "end", 20)
    assert len(text) <= 20
    assert text.startswith("start")
    assert text.endswith("end")
