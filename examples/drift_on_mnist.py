"""Client drift, seen and fought: three methods on MNIST, whose clients mostly hold one or two classes.

    holdfast data fetch mnist
    python examples/drift_on_mnist.py

``cosine`` is the mean cosine between two clients' updates: 1 if all pull in the same direction, below 0 if they pull
against each other.
"""

from __future__ import annotations

import holdfast

METHODS = ("fedavg", "scaffold", "fedbug(0.4)+feddyn(0.1)")


def main(data: str = "mnist", rounds: int = 20) -> dict[str, holdfast.Result]:
    federation = holdfast.federate(holdfast.load(data), "dirichlet(0.1)", clients=20, validation=0.1)
    found = {}
    for method in METHODS:
        result = holdfast.run(method, federation, "mlp", rounds=rounds, cohort=5, epochs=2, lr=0.05, drift=True)
        drift = result.history[-1].drift
        print(
            f"{method:24} accuracy {result.score.accuracy:.3f}  cosine {drift['cosine']:+.2f}  "
            f"updates {drift['distance']:.3f} of the model's length"
        )
        found[method] = result
    return found


if __name__ == "__main__":
    main()
