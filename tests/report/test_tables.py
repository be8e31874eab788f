"""Tests of triplepoint.report.tables and .facts."""

from triplepoint.report.facts import cost_of, facts, rule_rows, run_rows
from triplepoint.report.series import index
from triplepoint.report.tables import FOREST_LIMIT, candidate_rows, column_groups, forest_scale


def row(rows, label):
    return next(r for r in rows if r.label.startswith(label))


def test_the_criterion_names_the_row_that_decides(screen):
    rows = candidate_rows(screen[2], "best_checkpoint")
    assert [r.label for r in rows if "decides" in r.label] == ["Best checkpoint (decides)"]


def test_change_has_sign_interval_and_place(screen):
    cell = row(candidate_rows(screen[2], None), "Fixed step").cells[1]
    assert cell.main.replace("\xa0", " ") == "+3.1 %"
    assert "+2.5 to +3.8" in cell.sub
    # the widest interval of the fixture ends at 1.3 * 0.031; the axis reaches 46 of 50 there
    assert cell.forest["at"] == round(50 + 46 * 0.031 / (1.3 * 0.031), 1)


def test_a_probability_is_shown_where_there_is_one_to_stand_by():
    def told(**forecast):
        found = {"op": "dyt", "forecast": {"delta_rel": 0.1, "interval": [0.0, 0.2], **forecast}}
        return row(candidate_rows({"candidates": [found]}, None), "Forecast").cells[1].sub

    assert "with probability" in told(probability=0.91, where="inside")
    for silent in ({"probability": 0.5, "where": "mild"}, {"probability": 0.91, "where": "outside"}, {"probability": None}):  # fmt: skip
        assert "probability" not in told(**silent)


def test_a_plan_in_miniature_is_shown_by_its_sign_alone():
    sizes = [{"k": 15.8, "delta_rel": 0.118}, {"k": 3.99, "delta_rel": 0.163}]

    def told(**small):
        found = {"op": "dyt", "miniature": {"sizes": sizes, "delta_rel": 0.2, **small}}
        return row(candidate_rows({"candidates": [found]}, None), "The plan in miniature").cells[1]

    assert told(trusted=True, winner="baseline").main == "candidate higher"
    assert told(trusted=True, winner="candidate").main == "candidate lower"
    assert told(trusted=False, winner=None).main == "no trusted sign"
    assert (
        told(trusted=False, winner=None).sub.replace("\xa0", " ")
        == "+11.8 % at 1/15.8\n+16.3 % at 1/3.99"
    )


def test_one_collapsed_arm_does_not_flatten_the_interval_plots():
    ends = [{"endpoints": {"fixed_step": {"delta_rel": d, "interval": None}}} for d in (0.01, 4.0)]
    assert forest_scale(ends) == FOREST_LIMIT
    cell = row(candidate_rows({"candidates": ends}, None), "Fixed step").cells[2]
    assert cell.forest == {"at": 96.0, "low": 96.0, "high": 96.0}


def test_quantities_nobody_has_are_left_out(screen):
    labels = [r.label for r in candidate_rows({"candidates": [{"op": "dyt"}]}, None)]
    assert labels == ["Verdict"]


def test_column_groups_are_even():
    assert [(at, len(group)) for at, group in column_groups([{}] * 9)] == [(0, 3), (3, 3), (6, 3)]
    assert column_groups([]) == []


def test_runs_have_one_row_per_arm_and_seed(screen):
    manifest, records, _ = screen
    rows = run_rows(index(records, manifest["arms"]))
    assert [(r["arm"].name, r["seed"]) for r in rows][:3] == [
        ("layernorm", "0"),
        ("layernorm", "1"),
        ("dyt:paper", "0"),
    ]
    assert rows[0]["time"].replace("\xa0", " ") == "46.2 ms"


def test_rules_answer_in_words():
    says = [rule_rows([{"name": "r", "says": s}])[0]["says"] for s in (True, False, None, "keep")]
    assert says == ["replace", "keep", "cannot say", "keep"]


def test_facts_leave_out_what_is_unknown():
    groups = dict(facts({"data": None, "seeds": [0]}, {"steps": 40_000, "lr": None}))
    assert groups == {"Plan": [("Planned steps", "40,000")], "Run": [("seeds", "0")]}


def test_cost_without_a_known_share_has_no_bar():
    assert cost_of({"spent_s": 60, "at_stake_s": None, "spent_share": None})["share"] is None
    assert cost_of(None) is None
