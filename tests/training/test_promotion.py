from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest

from routecast.datasets.environment import Environment
from routecast.datasets.errors import UsageError
from routecast.datasets.records import Records
from routecast.datasets.route import Route
from routecast.training.out_of_fold import ModelRows, OutOfFold, RouteRows
from routecast.training.promotion import FILE, TOLERANCE, Remembered, contest, remembered, save_out_of_fold

TRUTH = np.array([-0.3, 0.0, 0.2, 0.5])
ROUTES = tuple(Route({"a": str(number)}) for number in range(4))


def out_of_fold(predicted, family="cnn", fingerprint="f", environment="e") -> OutOfFold:
    n, empty = len(TRUTH), np.zeros(0)
    rows = RouteRows(
        (fingerprint,) * n, (environment,) * n, ("m",) * n, (family,) * n, ROUTES, np.ones(n), TRUTH, np.zeros(n),
        np.array(predicted, float), TRUTH - 1, TRUTH + 1, *(np.zeros(n) for _ in range(6)),
    )  # fmt: skip
    return OutOfFold(rows, ModelRows((), (), (), (), empty, empty, empty, empty, empty, empty, empty))


@dataclass(frozen=True)
class FakeEnsemble:
    """Members are the log ratios that they predict for the four routes; the ensemble predicts their mean."""

    members: list[np.ndarray]
    backends: frozenset[str] = frozenset({"onnxruntime"})
    asked: list[int] = field(default_factory=list)

    @property
    def familiarity(self):
        return SimpleNamespace(backends=self.backends)

    def view(self, graph, environment):
        self.asked.append(len(self.members))
        return self

    def predict(self, routes):
        @dataclass
        class Said:
            log_ratio: np.ndarray

        mean = np.mean(self.members, axis=0)
        return Said(np.array([mean[ROUTES.index(route)] for route in routes]))


RECORDS = Records(
    graphs={"f": None, "g": None},
    environments={"e": Environment("onnxruntime", "1.20", "Some CPU"), "gpu": Environment("tensorrt", "11.1", "GPU")},
)
NOTHING = Remembered({}, {})
RIGHT, WRONG = TRUTH, -TRUTH


def test_the_better_order_wins():
    found = contest(out_of_fold(RIGHT), FakeEnsemble([WRONG]), NOTHING, RECORDS)
    assert (found.challenger, found.champion, found.models, found.routes) == (1.0, 0.0, 1, 4)
    assert found.won


def test_the_worse_and_the_equal_do_not_win():
    assert not contest(out_of_fold(WRONG), FakeEnsemble([RIGHT]), NOTHING, RECORDS).won
    assert not contest(out_of_fold(RIGHT), FakeEnsemble([RIGHT]), NOTHING, RECORDS).won


def test_a_champion_is_not_judged_by_what_it_remembers(tmp_path):
    """It now predicts its training rows rightly; out of fold it had them wrong, and that counts."""
    save_out_of_fold(out_of_fold(WRONG), tmp_path)
    champion = FakeEnsemble([RIGHT, RIGHT])
    found = contest(out_of_fold([-0.3, 0.0, 0.5, 0.2]), champion, remembered(tmp_path), RECORDS)
    assert found.champion == 0.0
    assert found.won
    assert champion.asked == []


def test_new_rows_of_a_known_family_are_predicted_by_the_member_that_did_not_see_it(tmp_path):
    save_out_of_fold(out_of_fold(WRONG), tmp_path)  # family cnn was held out by member 1
    champion = FakeEnsemble([RIGHT, WRONG])
    found = contest(out_of_fold(RIGHT, fingerprint="g"), champion, remembered(tmp_path), RECORDS)
    assert found.champion == 0.0
    assert champion.asked == [1]


def test_rows_of_a_new_family_are_predicted_by_the_whole_champion(tmp_path):
    save_out_of_fold(out_of_fold(WRONG), tmp_path)
    champion = FakeEnsemble([2 * RIGHT, WRONG])
    found = contest(out_of_fold(WRONG, "vit", "g"), champion, remembered(tmp_path), RECORDS)
    assert found.champion == 1.0
    assert champion.asked == [2]


def test_seen_and_new_rows_of_one_model_are_mixed(tmp_path):
    stored = out_of_fold(WRONG)
    save_out_of_fold(stored, tmp_path)
    memory = remembered(tmp_path)
    first = ("f", "e", str(ROUTES[0]))
    partly = replace(memory, predicted={first: -0.3})
    found = contest(out_of_fold(RIGHT), FakeEnsemble([WRONG, RIGHT]), partly, RECORDS)
    assert found.champion == 1.0


def test_nothing_held_out_is_nothing_to_compare():
    found = contest(out_of_fold(np.full(4, np.nan)), FakeEnsemble([RIGHT]), NOTHING, RECORDS)
    assert (found.models, found.won) == (0, False)
    assert "nothing shows that champion 3 is beaten" in found.verdict("champion 3")


def test_what_is_saved_is_remembered(tmp_path):
    save_out_of_fold(out_of_fold(RIGHT), tmp_path)
    memory = remembered(tmp_path)
    assert memory.predicted == {("f", "e", f"a={n}"): value for n, value in enumerate(TRUTH)}
    assert memory.members == {"cnn": 1}


def test_no_file_is_no_memory_and_a_damaged_one_an_error(tmp_path):
    assert remembered(tmp_path) == NOTHING
    (tmp_path / FILE).write_bytes(b"PAR1 no more")
    with pytest.raises(UsageError, match="is damaged"):
        remembered(tmp_path)


def joined(first: OutOfFold, second: OutOfFold) -> OutOfFold:
    """Both sets of rows in one."""
    one, other = vars(first.routes), vars(second.routes)
    rows = {name: one[name] + other[name] if isinstance(one[name], tuple) else np.concatenate([one[name], other[name]])
            for name in one}  # fmt: skip
    return replace(first, routes=RouteRows(**rows))


def test_only_backends_that_both_know_are_judged():
    """The champion never saw a GPU: there it can only guess, and being better there is no merit."""
    both = joined(out_of_fold(WRONG), out_of_fold(RIGHT, fingerprint="g", environment="gpu"))
    champion = FakeEnsemble([RIGHT])
    found = contest(both, champion, NOTHING, RECORDS)
    assert (found.challenger, found.champion, found.models, found.routes) == (0.0, 1.0, 1, 4)
    assert (found.gained, found.lost, found.won) == (("tensorrt",), (), False)
    assert len(champion.asked) == 1


def test_a_further_backend_breaks_a_tie_and_forgives_a_little():
    both = joined(out_of_fold(RIGHT), out_of_fold(WRONG, fingerprint="g", environment="gpu"))
    found = contest(both, FakeEnsemble([RIGHT]), NOTHING, RECORDS)
    assert found.won
    assert found.verdict("champion 1").endswith("; it also knows tensorrt")
    assert replace(found, challenger=1 - 0.9 * TOLERANCE).won
    assert not replace(found, challenger=1 - 1.1 * TOLERANCE).won
    assert not replace(found, gained=()).won


def test_a_challenger_that_lacks_a_backend_of_the_champion_does_not_win():
    champion = FakeEnsemble([WRONG], backends=frozenset({"onnxruntime", "tensorrt"}))
    found = contest(out_of_fold(RIGHT), champion, NOTHING, RECORDS)
    assert found.challenger > found.champion
    assert not found.won
    assert "has not learned tensorrt, which champion 2 knows" in found.verdict("champion 2")
