"""Options of a deployment, also arguments in Ray's config file."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ModelOptions(BaseModel):
    """Number of replicas and their resources.

    ``replicas`` sets a fixed number; otherwise Ray scales between ``min_replicas`` and ``max_replicas`` by the number
    of requests per replica.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    replicas: int | None = Field(None, ge=1, description="As many replicas; unset: as many as are needed.")
    min_replicas: int = Field(1, ge=0, description="Fewest replicas.")
    max_replicas: int = Field(1, ge=1, description="Most replicas.")
    target_ongoing_requests: float = Field(
        2.0, gt=0, description="Requests that wait or run for each replica, which Ray aims at."
    )
    max_ongoing_requests: int = Field(
        64, ge=1, description="Concurrent requests per replica; further ones wait in the caller's handle."
    )
    upscale_delay_s: float = Field(10.0, ge=0, description="How long there must be too few before there are more.")
    downscale_delay_s: float = Field(300.0, ge=0, description="How long there must be too many before there are fewer.")
    look_back_period_s: float = Field(30.0, gt=0, description="Over how long the mean of requests is taken.")
    cpus: float = Field(1.0, gt=0, description="Cores of a replica; it runs its model on all of them.")
    memory_bytes: int | None = Field(None, ge=1, description="Memory that Ray sets aside for a replica.")
    grace_s: float = Field(30.0, gt=0, description="How long a replica that goes may take for what it has begun.")
    revision: str = Field("", description="Another one replaces the replicas, one after the other.")

    @model_validator(mode="after")
    def _check_range(self) -> ModelOptions:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"found min_replicas {self.min_replicas}, expected at most max_replicas {self.max_replicas}"
            )
        return self


class Options(ModelOptions):
    """Store and how it is served."""

    store: str = Field(description="Folder that every node has, or an address: s3://, gs://, https://.")
    settings: dict[str, Any] = Field({}, description="Settings of the server, by their names (docs/settings.md).")
    models: dict[str, ModelOptions] = Field({}, description="Models that have replicas of their own.")
    models_per_replica: int | None = Field(
        None, ge=1, description="Most models of a replica, which loads those it is asked for; unset: all of the store."
    )
