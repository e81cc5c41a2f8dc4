"""How likely settings break a route, counted."""

import json

import numpy as np
import pytest

from routecast.costmodel.risks import UNKNOWN, Risks
from routecast.datasets.route import Route

BAD, GOOD = Route({"a.bad": "on"}), Route({"a.good": "on"})
BOTH = Route({**BAD, **GOOD})


def risk(risks: Risks, route: Route) -> float:
    return float(-np.expm1(risks.survival(route.items()).sum()))


def test_what_often_breaks_is_told_from_what_was_only_there() -> None:
    risks = Risks.fit([(GOOD, False)] * 20 + [(BOTH, True)] * 8)
    assert risk(risks, GOOD) < 0.02
    assert risk(risks, BAD) > 0.7
    assert risk(risks, BOTH) == pytest.approx(risk(risks, BAD), abs=0.02)


def test_few_routes_leave_doubt() -> None:
    risks = Risks.fit([(BAD, True)])
    assert UNKNOWN < risk(risks, BAD) < 0.5
    assert risk(risks, GOOD) == pytest.approx(UNKNOWN)
    assert risk(risks, Route()) == 0.0
    assert risk(Risks.fit([]), BOTH) == pytest.approx(1 - (1 - UNKNOWN) ** 2)


def test_json_keeps_them() -> None:
    risks = Risks.fit([(Route({"compiler.mha:step": "32"}), True), (GOOD, False)])
    again = Risks.from_json(json.loads(json.dumps(risks.to_json())))
    assert again.of == pytest.approx(risks.of, abs=1e-5)
