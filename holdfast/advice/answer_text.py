"""The answer of ``advise`` in words, for the terminal and the page."""

from __future__ import annotations

from holdfast.advice.answer import Answer, Cost, Rival
from holdfast.advice.budget import Budget
from holdfast.comparison.score_text import ScoreText
from holdfast.comparison.stats import NOT_SEEN, verdict

FRESH_DATA = (
    "The gain is measured on the test data, with seeds that no choice has seen. Seeds vary the initial weights, who "
    "takes part in a round, and the batches; who holds which data stays the same."
)

CLOSE = "What came close, or could not be told from the leader in the race:"


def headline(answer: Answer) -> str:
    """Return the answer in one line."""
    if answer.recommended:
        return f"Use {answer.method} with a learning rate of {answer.lr:.3g}."
    return f"FedAvg is enough, with a learning rate of {answer.lr:.3g}."


def reasons(answer: Answer) -> list[str]:
    """Say what the answer rests on."""
    text, metric = ScoreText(answer.metric.percent), answer.metric
    unit = " points" if metric.percent else ""
    found, said = answer.confirmation, list[str]()
    if found is None:
        said.append(f"No other method led the race by validation {metric.spoken}: nothing had to be confirmed.")
        return [*said, whole_cost("FedAvg", answer.cost, answer.rounds)] if answer.cost else said
    leader, seeds = answer.raced[0], f"on {len(found.seeds)} fresh seeds"
    test = f"validation {metric.spoken}, one-sided paired t test, p = {found.chance:.2g}; the limit is {answer.level:g}"
    if answer.recommended:
        said.append(f"It beat well-tuned FedAvg {seeds} ({test}).")
    else:
        said.append(
            f"{leader.method} led, but {seeds} it was not better than well-tuned FedAvg with confidence ({test})."
        )
    if found.gain is not None:
        gain = f"{text.difference(found.gain.mean)}{unit}, 95% interval {text.interval(found.gain)}"
        who = "Expected gain over FedAvg" if answer.recommended else f"{leader.method} against FedAvg"
        said.append(f"{who} in test {metric.spoken}: {gain}. {FRESH_DATA}")
        if answer.recommended and found.gain.low is not None and found.gain.low <= 0 <= (found.gain.high or 0.0):
            said.append("The interval has 0 in it: on the test data the gain is not certain.")
    said.append(whole_cost(leader.method, found.cost, answer.rounds))
    said.append(relative_cost(found.cost, found.baseline_cost))
    return said


def whole_cost(method: str, cost: Cost, rounds: int) -> str:
    """Say what the training costs.

    Args:
        method: The method that is trained.
        cost: What a round of it costs.
        rounds: The rounds of the training.

    Returns:
        A sentence.

    >>> whole_cost("scaffold", Cost(0.2, 3e6), 50)
    'All 50 rounds of scaffold take about 10s on this machine and 150 MB of traffic.'
    """
    time = Budget(rounds * cost.seconds).text()
    traffic = f"{rounds * cost.bytes / 1e6:.3g} MB of traffic"
    return f"All {rounds} rounds of {method} take about {time} on this machine and {traffic}."


def relative_cost(cost: Cost, baseline: Cost) -> str:
    """Compare the cost of a round with that of FedAvg's.

    >>> relative_cost(Cost(0.2, 3e6), Cost(0.1, 2e6))
    "A round takes 2 times as long as FedAvg's, and 1.5 times the traffic."
    """
    time, traffic = cost.seconds / baseline.seconds, cost.bytes / baseline.bytes
    return f"A round takes {time:.2g} times as long as FedAvg's, and {traffic:.2g} times the traffic."


def close_rivals(answer: Answer) -> list[str]:
    """Name those that stayed in the race to the end and between which and the leader no difference was seen.

    FedAvg is not among them if it lost the confirmation.
    """
    text, unit = ScoreText(answer.metric.percent), " points" if answer.metric.percent else ""
    left = [
        r
        for r in answer.raced[1:]
        if r.out is None and r.behind is not None and verdict(r.behind) in ("", NOT_SEEN)
        if not (answer.recommended and r.method == answer.baseline.method)
    ]
    return [
        f"{r.method}: {text.value(r.mean)} over {r.seeds} seeds, {behind(r, text)}{unit} from the leader" for r in left
    ]


def behind(rival: Rival, text: ScoreText) -> str:
    """Write how far a rival is from the leader, with its interval."""
    assert rival.behind is not None
    return f"{text.difference(-rival.behind.mean)} {interval_of_negative(rival, text)}".strip()


def interval_of_negative(rival: Rival, text: ScoreText) -> str:
    """Write the interval of the rival's score minus the leader's."""
    d = rival.behind
    if d is None or d.low is None or d.high is None:
        return ""
    return f"[{text.difference(-d.high)}, {text.difference(-d.low)}]"


def again(answer: Answer) -> list[str]:
    """Say when the question should be asked again."""
    said = [
        f"The answer is about {answer.rounds} rounds: ask again before training much longer or shorter.",
        "Ask again when clients join or leave, or when what they hold changes: the label mix above all.",
    ]
    edges = [s.method for s in [answer.baseline, *answer.screened] if s.at_edge]
    if answer.baseline.method in edges or answer.method in edges:
        said.append(
            "The best learning rate is the smallest or largest that was tried: start from another --lr to be sure."
        )
    return said


def lines(answer: Answer, look: bool = True) -> list[str]:
    """Return the whole answer for a terminal.

    Args:
        answer: The answer.
        look: Whether to begin with what the federation looks like.

    Returns:
        The lines.
    """
    close = close_rivals(answer)
    out = [*(answer.look.sentences() if look else ()), *([""] if look else []), headline(answer), *reasons(answer)]
    if close:
        out += ["", CLOSE, *(f"  {line}" for line in close)]
    out += ["", *again(answer), f"The race cost {answer.spent} of {answer.budget}."]
    return [*out, "", "Train with:", f"  {answer.command}"] if answer.command else out
