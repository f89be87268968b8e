"""Several checks of one thing that takes long to make: all are run, and a failure names each that failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def run_all(checks: Sequence[Callable[..., None]], *arguments: object) -> None:
    """Call every check with the same arguments; raise what they raised, as one group.

    Raises:
        ExceptionGroup: of one exception a failed check, each with a note of the check's name.
    """
    errors: list[Exception] = []
    for check in checks:
        try:
            check(*arguments)
        except Exception as error:  # the other checks are run as well
            error.add_note(f"check: {check.__name__}")
            errors.append(error)
    if errors:
        names = ", ".join(error.__notes__[-1].removeprefix("check: ") for error in errors)
        raise ExceptionGroup(f"{len(errors)} of {len(checks)} checks failed: {names}", errors)
