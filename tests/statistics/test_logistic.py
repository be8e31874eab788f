"""Tests of triplepoint.statistics.logistic."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from triplepoint.errors import StatisticsError
from triplepoint.statistics import logistic_regression


def cells(n=60):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2)) * [1.0, 3.0]
    return x, rng.random(n) < 1 / (1 + np.exp(-(0.5 + x @ [1.0, -0.4])))


@pytest.mark.parametrize("ridge", [0.3, 5.0])
def test_agrees_with_another_library(ridge):
    x, y = cells()
    theirs = LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=1000).fit(x, y)
    ours = logistic_regression(x, y, ridge=ridge)
    assert ours.coefficients == pytest.approx(theirs.coef_[0], abs=1e-6)
    assert ours.intercept == pytest.approx(theirs.intercept_[0], abs=1e-6)
    assert ours.p(x) == pytest.approx(theirs.predict_proba(x)[:, 1], abs=1e-6)


def test_two_by_two_counts_in_closed_form():
    # 8 of 10 against 3 of 12: log odds ratio, and Woolf's variance 1/a + 1/b + 1/c + 1/d
    x = np.array([1] * 10 + [0] * 12)[:, None]
    y = [1] * 8 + [0] * 2 + [1] * 3 + [0] * 9
    fit = logistic_regression(x, y)
    assert fit.intercept == pytest.approx(np.log(3 / 9))
    assert fit.coefficients[0] == pytest.approx(np.log(8 / 2) - np.log(3 / 9))
    assert fit.covariance[1, 1] == pytest.approx(1 / 8 + 1 / 2 + 1 / 3 + 1 / 9)
    assert fit.covariance[0, 0] == pytest.approx(1 / 3 + 1 / 9)


def test_separated_classes_have_a_fit_with_a_ridge_alone():
    x, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), [0, 0, 1, 1]
    assert 0 < logistic_regression(x, y, ridge=1.0).coefficients[0] < 10
    with pytest.raises(
        StatisticsError, match="no finite maximum: a plane separates.*\nAdd cells, drop a feature, or pass a ridge"
    ):  # fmt: skip
        logistic_regression(x, y)


def test_features_that_determine_each_other_are_refused():
    x, y = cells()
    with pytest.raises(StatisticsError, match="or features determine each other"):
        logistic_regression(np.column_stack([x[:, 0], 2 * x[:, 0]]), y)


def test_one_class_and_one_dimension_are_refused():
    with pytest.raises(StatisticsError, match="logistic_regression is undefined: all 2 labels"):
        logistic_regression(np.zeros((2, 1)), [1, 1])
    with pytest.raises(StatisticsError, match=r"got shape \[3\].\nFor one feature pass `x\[:, None\]`"):  # fmt: skip
        logistic_regression(np.zeros(3), [1, 0, 1])


def test_a_far_start_needs_shorter_steps_and_gets_there():
    # a heavy feature: full Newton steps from 0 overshoot
    x = np.array([[-30.0], [0.1], [0.2], [0.3], [40.0], [0.15]])
    y = [0, 1, 0, 1, 1, 0]
    fit = logistic_regression(x, y)
    score = np.array(y) - fit.p(x)
    assert [score.sum(), score @ x[:, 0]] == pytest.approx([0, 0], abs=1e-8)
