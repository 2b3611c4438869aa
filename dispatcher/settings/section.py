"""A table of the configuration, and what stands in several of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
AgentName = Annotated[str, Field(min_length=1, max_length=200)]
Alias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
# As providers and gateways name them: `gpt-4.1`, `openai/gpt-oss-120b`, `anthropic.claude-sonnet-4-5-v1:0`.
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,99}$")]

MIB = 1024 * 1024


class Section(BaseModel):
    """A table of the configuration: frozen, and without room for names it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)
