"""The small language of methods, splits and models: ``a(1) + b(x=2, y=[3, 4])``.

A sum is calls joined by ``+``. A call is a name with optional arguments in parentheses. A value is a number, ``true``,
``false``, ``none``, a word, a quoted string or a list of values. Nothing is evaluated.

>>> [str(call) for call in parse("fedbug(0.4) + feddyn(alpha=0.01)")]
['fedbug(0.4)', 'feddyn(alpha=0.01)']
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from holdfast.core.errors import HoldfastError

Value = int | float | bool | str | None | tuple["Value", ...]

TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<word>[A-Za-z_][\w.-]*)
    | (?P<string>'[^']*'|"[^"]*")
    | (?P<mark>[()\[\],=+])
    )""",
    re.VERBOSE,
)
DEEPEST, LONGEST = 20, 100  # nesting of lists, digits of a number
WORDS: dict[str, Value] = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class Call:
    """A name with its arguments, as written.

    Attributes:
        name: The name.
        args: The positional arguments.
        kwargs: The named arguments.
    """

    name: str
    args: tuple[Value, ...] = ()
    kwargs: dict[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        inside = [show(v) for v in self.args] + [f"{k}={show(v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(inside)})" if inside else self.name


def show(value: Value) -> str:
    """Write a value in the form that ``parse`` reads.

    >>> show((1, 0.5, "samples", None))
    '[1, 0.5, samples, none]'
    """
    if isinstance(value, tuple):
        return f"[{', '.join(show(v) for v in value)}]"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z_][\w.-]*", value) and value.lower() not in WORDS
        return value if plain else (f"'{value}'" if "'" not in value else f'"{value}"')
    return repr(value)


def parse(text: str) -> list[Call]:
    """Read a sum of calls.

    >>> parse("dirichlet(0.5, balanced=true)")
    [Call(name='dirichlet', args=(0.5,), kwargs={'balanced': True})]
    """
    return _ExpressionReader(text).sum()


class _ExpressionReader:
    """A recursive-descent parser over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.kind, self.token = "", ""
        self.next()

    def fail(self, expected: str) -> HoldfastError:
        seen = f"{self.token!r}" if self.token else "the end"
        return HoldfastError(f"cannot read {self.text!r}: expected {expected}, found {seen}")

    def next(self) -> None:
        rest = self.text[self.at :]
        if not rest.strip():
            self.kind, self.token, self.at = "end", "", len(self.text)
            return
        match = TOKEN.match(rest)
        if not match:
            self.token = rest.strip()[:12]
            raise self.fail("a name, a number or one of ( ) [ ] , = +")
        self.kind = match.lastgroup or ""
        self.token = match[self.kind]
        # A "+" after a call is always a mark, even in "a+1": a number cannot follow it there anyway.
        self.at += match.end()

    def take(self, mark: str) -> bool:
        if self.kind == "mark" and self.token == mark:
            self.next()
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            raise self.fail(f"{mark!r}")

    def sum(self) -> list[Call]:
        calls = [self.call()]
        while self.take("+"):
            calls.append(self.call())
        if self.kind != "end":
            raise self.fail("'+' or the end")
        return calls

    def call(self) -> Call:
        if self.kind != "word":
            raise self.fail("a name")
        name = self.token
        self.next()
        args: list[Value] = []
        kwargs: dict[str, Value] = {}
        if self.take("("):
            while not self.take(")"):
                self.argument(args, kwargs)
                if not (self.kind == "mark" and self.token == ")") and not self.take(","):
                    raise self.fail("',' or ')'")
        return Call(name, tuple(args), kwargs)

    def argument(self, args: list[Value], kwargs: dict[str, Value]) -> None:
        if self.kind == "word" and re.match(r"\s*=", self.text[self.at :]):
            name = self.token
            self.next()
            self.expect("=")
            if name in kwargs:
                raise HoldfastError(f"cannot read {self.text!r}: {name} is given twice; keep one of them")
            kwargs[name] = self.value()
        elif kwargs:
            raise self.fail("name=value after the first named argument")
        else:
            args.append(self.value())

    def value(self, depth: int = 0) -> Value:
        kind, token = self.kind, self.token
        if self.take("["):
            if depth == DEEPEST:
                raise HoldfastError(f"cannot read {self.text[:40]!r}...: lists may be nested at most {DEEPEST} deep")
            items: list[Value] = []
            while not self.take("]"):
                items.append(self.value(depth + 1))
                if not (self.kind == "mark" and self.token == "]"):
                    self.expect(",")
            return tuple(items)
        if kind not in ("number", "word", "string"):
            raise self.fail("a value")
        self.next()
        if kind == "string":
            return token[1:-1]
        if kind == "word":
            return WORDS.get(token.lower(), token)
        if len(token) > LONGEST:
            raise HoldfastError(
                f"cannot read {self.text[:40]!r}...: a number has {len(token)} digits, at most {LONGEST} are allowed"
            )
        return int(token) if re.fullmatch(r"[+-]?\d+", token) else float(token)
