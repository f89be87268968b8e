"""Table [text] of a model's config.toml: how texts become the inputs of the model."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.schema import Section


class TextConfig(Section):
    """Conversion of texts to token inputs. Inputs are found by name where a key is left out."""

    max_tokens: Annotated[int, Field(ge=2, le=2**20)] | None = Field(
        default=None,
        description="Most tokens of a text, special tokens included; default: as tokenizer.json has it, else 512.",
    )
    input_ids: str | None = Field(default=None, description="Input that takes token ids, (N, L).")
    attention_mask: str | None = Field(default=None, description="Input that takes 1 for tokens, 0 for padding.")
    token_type_ids: str | None = Field(
        default=None, description="Input that takes 0 for the first string of a pair, 1 for the second."
    )
    position_ids: str | None = Field(default=None, description="Input that takes the position of each token.")
