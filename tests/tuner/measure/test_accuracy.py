import numpy as np
import pytest

from routecast.datasets.errors import UsageError
from routecast.tuner.measure.accuracy import AccuracyLimit, check_reference, losses


def test_metrics_follow_their_definitions():
    reference = {"y": np.array([1.0, 2.0, -2.0, 0.0])}
    output = {"y": np.array([1.0, 2.5, -2.0, 0.0])}
    found = losses(output, reference)
    assert found["l0"] == 0.25
    assert found["l1"] == pytest.approx(0.125)
    assert found["l2"] == pytest.approx(0.0625)
    assert found["lInf"] == pytest.approx(0.5)
    a, b = output["y"], reference["y"]
    assert found["cos"] == pytest.approx(1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_worst_output_counts():
    reference = {"a": np.ones(3), "b": np.ones(3)}
    found = losses({"a": np.ones(3), "b": np.array([1.0, 1.0, 3.0])}, reference)
    assert found["lInf"] == 2.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_always_fail(bad):
    with pytest.raises(ValueError, match="NaN or infinity"):
        losses({"y": np.array([1.0, bad])}, {"y": np.ones(2)})


def test_missing_output_and_wrong_shape_are_told():
    with pytest.raises(ValueError, match="output y is missing"):
        losses({}, {"y": np.ones(2)})
    with pytest.raises(ValueError, match="shape"):
        losses({"y": np.ones(3)}, {"y": np.ones(2)})


def test_zero_vectors_have_no_angle():
    zero, one = np.zeros(3), np.ones(3)
    assert losses({"y": zero}, {"y": zero})["cos"] == 0.0
    assert losses({"y": one}, {"y": zero})["cos"] == 1.0


def test_reference_of_zeros_or_nan_is_refused():
    with pytest.raises(UsageError, match="all zeros"):
        check_reference({"y": np.zeros(4)}, 0)
    with pytest.raises(UsageError, match="itself gives NaN"):
        check_reference({"y": np.array([np.nan])}, 0)
    check_reference({"y": np.zeros(4), "z": np.ones(1)}, 0)


def test_limit_names_metric_and_threshold():
    limit = AccuracyLimit("l1", 0.1)
    assert limit.reason({"l1": 0.1}) == ""
    assert limit.reason({"l1": 0.2}) == "l1 loss 0.2 is above the limit 0.1"
    with pytest.raises(UsageError, match="accuracy metric"):
        AccuracyLimit("l3")
