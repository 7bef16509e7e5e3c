"""Shakespeare-like text: speeches of several speakers, and languages whose perplexity is known."""

from __future__ import annotations

import numpy as np

WORDS = {
    "HAMLET": "to be or not that is the question whether tis nobler in mind suffer slings and arrows",
    "OPHELIA": "good my lord how does your honour for this many a day I have remembrances of yours",
    "POLONIUS": "neither a borrower nor lender be for loan oft loses both itself and friend",
    "GHOST": "I am thy father's spirit doomed for a certain term to walk the night",
}


def speeches(length: int = 400, seed: int = 0) -> dict[str, str]:
    """A text of about this many characters for each speaker, from the speaker's own words."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, words in WORDS.items():
        text = ""
        while len(text) < length:
            text += " ".join(rng.choice(words.split(), 6)) + rng.choice([".\n", "!\n", ", "])
        found[name] = text
    return found


def bigram_text(table: np.ndarray, letters: str, length: int, seed: int) -> str:
    """A text in which every letter depends on the one before it, with the probabilities of a row of the table."""
    rng = np.random.default_rng(seed)
    state, found = 0, []
    for _ in range(length):
        state = int(rng.choice(len(letters), p=table[state]))
        found.append(letters[state])
    return "".join(found)


def best_perplexity(table: np.ndarray) -> float:
    """exp of the entropy rate of such a language: no model has a lower perplexity on enough of its text."""
    return float(np.exp(-(stationary(table)[:, None] * table * np.log(table)).sum()))


def unigram_perplexity(table: np.ndarray) -> float:
    """The perplexity of a model that knows nothing but how frequent the letters are."""
    share = stationary(table)
    return float(np.exp(-(share * np.log(share)).sum()))


def stationary(table: np.ndarray) -> np.ndarray:
    """How frequent the letters are in the long run."""
    values, vectors = np.linalg.eig(table.T)
    found = np.real(vectors[:, np.argmax(np.real(values))])
    return found / found.sum()
