"""Shared by parts that use public data: refuse a run without it, or with the test data in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.data.federation import Federation


def require_public_data(part: str, federation: Federation, admits_test_data: bool | None = None) -> None:
    """Raise an error if there is no public data, or if it is the test data and the user has not admitted that.

    Args:
        part: The name of the part, for the error.
        federation: The clients and their data.
        admits_test_data: Whether the user has admitted the test data; None if the part never does.
    """
    if len(federation.public) == 0:
        raise HoldfastError(f"{part} needs public data: hold some out with --public 0.05 or federate(..., public=0.05)")
    if federation.leaks and not admits_test_data:
        remedy = "" if admits_test_data is None else ", or set allow_test_leak=true"
        raise HoldfastError(
            f"{part}: the public data is the test data, which makes test accuracy meaningless; hold out training data "
            f"instead with --public 0.05{remedy}"
        )
