"""The `batching` table of config.toml: how requests share runs."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, StrictBool, model_validator

from app.schema import Section

DEFAULT_MAX_ITEMS: Final = 8
MAX_ITEMS: Final = 1024

Size = Annotated[int, Field(ge=1, le=MAX_ITEMS)]


class BatchingConfig(Section):
    """Batching of a model's requests; see docs/batching.md."""

    enabled: Literal["auto"] | StrictBool = Field(
        default="auto", description="Whether requests may share a run; auto: where it was measured to help."
    )
    max_batch_size: Size | None = Field(
        default=None,
        description=f"Items of one run, at most; default: the largest size allowed, else {DEFAULT_MAX_ITEMS}.",
    )
    allowed_batch_sizes: Annotated[tuple[Size, ...], Field(min_length=1, max_length=16)] | None = Field(
        default=None,
        description="Sizes that code is made for, 1 always; others are run in parts. Default: powers of two.",
    )
    max_queue_delay_us: Annotated[int, Field(ge=0, le=10_000_000)] = Field(
        default=0, description="How long a request may wait for others to share its run, in microseconds."
    )

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        largest, most = max(self.allowed_batch_sizes or (1,)), self.max_batch_size
        if most is not None and largest > most:
            raise ValueError(f"allowed_batch_sizes: found {largest}, expected at most max_batch_size, {most}")
        return self

    @property
    def most(self) -> int:
        """Return the largest number of items in a run."""
        return self.max_batch_size or max(self.allowed_batch_sizes or (DEFAULT_MAX_ITEMS,))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return all batch sizes that may be compiled, rising."""
        if self.allowed_batch_sizes is not None:
            return tuple(sorted({1, *self.allowed_batch_sizes}))
        return tuple(sorted({*(1 << power for power in range(self.most.bit_length())), self.most}))
