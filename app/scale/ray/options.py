"""What can be said of a deployment; each is an argument in Ray's own config file as well."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ModelOptions(BaseModel):
    """How many replicas there are, and what each may use.

    With ``replicas`` there are as many; else Ray keeps from ``min_replicas`` to ``max_replicas``, by how many requests
    wait and run for each of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    replicas: int | None = Field(None, ge=1, description="As many replicas; unset: as many as are needed.")
    min_replicas: int = Field(1, ge=0, description="Fewest replicas.")
    max_replicas: int = Field(1, ge=1, description="Most replicas.")
    target_ongoing_requests: float = Field(
        2.0, gt=0, description="Requests that wait or run for each replica, which Ray aims at."
    )
    max_ongoing_requests: int = Field(
        64, ge=1, description="Requests that a replica has at once; more wait with whoever passes them on."
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
    """A store, and how it is served."""

    store: str = Field(description="Folder that every node has, or an address: s3://, gs://, https://.")
    settings: dict[str, Any] = Field({}, description="Settings of the server, by their names (docs/settings.md).")
    models: dict[str, ModelOptions] = Field({}, description="Models that have replicas of their own.")
    models_per_replica: int | None = Field(
        None, ge=1, description="Most models of a replica, which loads those it is asked for; unset: all of the store."
    )
