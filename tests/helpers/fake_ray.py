"""A stand-in for Ray: actors are threads of this process, and an actor can be made to die."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    """What Ray raises."""


class Ref:
    """What ``remote`` returns."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()


class Method:
    def __init__(self, actor: Actor, name: str) -> None:
        self.actor, self.name = actor, name

    def remote(self, *args: Any) -> Ref:
        ref = Ref()
        self.actor.refs.append(ref)

        def call() -> None:
            try:
                found = getattr(self.actor.made, self.name)(*(a.content if isinstance(a, Put) else a for a in args))
            except Exception as error:
                found, failed = None, error
            else:
                failed = None
            if not ref.future.done():
                ref.future.set_exception(failed) if failed else ref.future.set_result(found)

        if self.actor.dead:
            ref.future.set_exception(RayError("The actor died.\nmore"))
        else:
            threading.Thread(target=call, daemon=True).start()
        return ref


class Actor:
    def __init__(self, made: Any) -> None:
        self.made, self.refs, self.dead = made, list[Ref](), False

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)

    def die(self) -> None:
        """End the actor: whatever it owes fails, and nobody hears of what its thread still does."""
        self.dead = True
        for ref in self.refs:
            if not ref.future.done():
                ref.future.set_exception(RayError("The actor died.\nmore"))


class Put:
    def __init__(self, content: Any) -> None:
        self.content = content


class FakeRay:
    """The functions of Ray that are used."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, **resources: float) -> None:
        self.resources, self.up = resources, False
        self.actors: list[Actor] = []
        self.options: list[dict[str, Any]] = []
        self.shares: list[dict[str, Any]] = []
        self.refuse: Exception | None = None

    def init(self, **options: Any) -> None:
        self.options.append(options)
        if self.refuse is not None:
            raise self.refuse
        self.up = True

    def is_initialized(self) -> bool:
        return self.up

    def shutdown(self) -> None:
        self.up = False

    def cluster_resources(self) -> dict[str, float]:
        return self.resources

    def put(self, content: Any) -> Put:
        return Put(content)

    def remote(self, **share: Any) -> Callable[[type], Any]:
        self.shares.append(share)

        def decorate(kind: type) -> Any:
            def make(*args: Any) -> Actor:
                self.actors.append(Actor(kind(*(a.content if isinstance(a, Put) else a for a in args))))
                return self.actors[-1]

            return SimpleNamespace(remote=make)

        return decorate

    def wait(self, refs: Sequence[Ref], timeout: float) -> tuple[list[Ref], list[Ref]]:
        end = time.monotonic() + timeout
        while not (ready := [ref for ref in refs if ref.future.done()]) and time.monotonic() < end:
            time.sleep(0.005)
        return ready, [ref for ref in refs if ref not in ready]

    def get(self, ref: Ref) -> Any:
        return ref.future.result()

    def kill(self, actor: Actor) -> None:
        actor.die()
