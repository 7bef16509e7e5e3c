"""What a race costs in time: the clock, shared out among trials, and the same after a restart."""

from __future__ import annotations

import json

from helpers.exact_errors import raises_exactly
from helpers.small_race import small_race
from holdfast.advice.trial_costs import COSTS, TrialCosts


def test_the_time_that_passed_is_shared_out_by_training(tmp_path):
    costs = TrialCosts(tmp_path)
    costs.share_out(12.0, {"a": 1.0, "b": 3.0})
    assert (costs.of("a", 1.0), costs.of("b", 3.0)) == (3.0, 9.0)
    assert costs.of("c", 2.0) == 2.0, "the clock was not looked at"
    costs.share_out(1.0, {"c": 2.0})
    again = TrialCosts(tmp_path)
    assert again.known == {"a": 3.0, "b": 9.0, "c": 1.0}


def test_a_budget_in_time_counts_all_time_of_its_trials(tmp_path):
    race = small_race(tmp_path / "race", budget="1h", stop=stop_after(16))
    assert not race.finished
    known = json.loads((tmp_path / "race" / COSTS).read_text())
    assert all(name.startswith("runs/fedavg-") for name in known), "the stage that was stopped has no costs yet"
    histories = {name: (tmp_path / "race" / name / "history.jsonl").read_text().splitlines() for name in known}
    trained = sum(json.loads(line)["seconds"] for lines in histories.values() for line in lines)
    assert sum(known.values()) > trained


def stop_after(rounds: int):
    left = iter(range(rounds))
    return lambda: next(left, None) is None


def test_a_damaged_file_is_named(tmp_path):
    for content in ("{", "[]", '{"a": null}'):
        (tmp_path / COSTS).write_text(content)
        with raises_exactly(f"{tmp_path / COSTS} is damaged: start the race over with --overwrite"):
            TrialCosts(tmp_path)


def test_an_overwritten_race_forgets_its_costs(tmp_path):
    folder = tmp_path / "race"
    small_race(folder, budget="1h", stop=stop_after(8))
    (folder / COSTS).write_text("{")
    assert not small_race(folder, budget="1h", stop=stop_after(1), overwrite=True).finished
    assert not (folder / COSTS).exists()


def test_runs_without_any_round_cost_nothing(tmp_path):
    costs = TrialCosts(tmp_path)
    costs.share_out(1.0, {"a": 0.0})
    assert costs.of("a", 0.0) == 0.0
