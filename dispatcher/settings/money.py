"""What calls cost, and what they may cost."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from dispatcher.settings.section import ModelName, Section


def _exact(given: object) -> object:
    """A number as the decimal that was written: 0.42 is 42 hundredths, and not the nearest double."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return given
    try:
        return Decimal(str(given))
    except InvalidOperation:
        raise ValueError("must be a number") from None


Usd = Annotated[Decimal, BeforeValidator(_exact), Field(ge=0, le=1_000_000, max_digits=20)]


class ModelSettings(Section):
    """A model: named in metrics, and priced so where it has prices here, in US dollars per million tokens; else as genai-prices has it."""

    # One price for every token, in and out, cached or not.
    usd_per_million: Usd | None = None
    # Or one for each kind; what is read from a cache or written into one costs as other input where it has no price.
    input_usd_per_million: Usd | None = None
    output_usd_per_million: Usd | None = None
    cache_read_usd_per_million: Usd | None = None
    cache_write_usd_per_million: Usd | None = None

    @property
    def has_price(self) -> bool:
        """Whether it is priced here."""
        return self.usd_per_million is not None or self.input_usd_per_million is not None

    @model_validator(mode="after")
    def _one_way_to_price(self) -> ModelSettings:
        parts = [name for name in type(self).model_fields if name != "usd_per_million" and getattr(self, name) is not None]
        if self.usd_per_million is not None and parts:
            raise ValueError(f"usd_per_million is the price of every token, and {parts[0]} another one: keep one of them")
        if parts and (self.input_usd_per_million is None or self.output_usd_per_million is None):
            raise ValueError("needs both input_usd_per_million and output_usd_per_million: what has no price would cost nothing")
        return self


class UsageSettings(Section):
    """What is told of tokens and money beside the prices."""

    # The model that `savings_usd` compares with: what the same tokens would have cost there. Unset: nothing is compared.
    reference_model: ModelName | None = None


_Names = tuple[Annotated[str, Field(pattern=r"^[^*]{1,1024}\*?$|^\*$")], ...]


class BudgetSettings(Section):
    """What a lane key, a credential or an agent may cost in a day. Each one that it is for has a budget of its own."""

    # Whose it is: of lane keys, of aliases of credentials, or of agents, as requests name them. Each is a name, or a beginning of names and
    # a *: `apikey:team-a`, `doc:*`. Of several budgets for keys (credentials, agents) the one that names most counts; a call may be under
    # one of each kind. Those of credentials and agents are shared by all partitions.
    keys: _Names = ()
    credentials: _Names = ()
    agents: _Names = ()
    usd_per_day: Usd
    # Set aside before each call, and given back as far as it costs less: the most that a call may cost. One that costs more is the only
    # way to spend more than usd_per_day; what nobody can price costs this much.
    reserve_usd: Annotated[Usd, Field(gt=0)]
    # Then: a dead letter budget_exhausted at once, or its lane waits until the next day begins.
    when_spent: Literal["refuse", "wait"] = "refuse"
    # When a day begins, in hours after midnight UTC: -1 is midnight in Berlin in winter.
    day_starts_at_h: Annotated[float, Field(ge=-14, le=14)] = 0

    @property
    def is_shared(self) -> bool:
        """Whether partitions share it: a key belongs to one alone."""
        return not self.keys

    @model_validator(mode="after")
    def _says_whose(self) -> BudgetSettings:
        if (len([names for names in (self.keys, self.credentials, self.agents) if names])) != 1:
            raise ValueError("says whose it is in one way: give one of keys, credentials and agents; another budget may give another one")
        return self

    @model_validator(mode="after")
    def _pays_one_call(self) -> BudgetSettings:
        if self.reserve_usd > self.usd_per_day:
            raise ValueError(
                f"reserve_usd ({self.reserve_usd}) is more than usd_per_day ({self.usd_per_day}), so that no call could ever be made: "
                "raise the budget or lower the reserve"
            )
        return self
