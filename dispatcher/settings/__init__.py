"""One frozen settings model: every limit of the product, with its unit in the name and the reason for its value.

How values get here (flag > `-X` > environment > file > default) is `load` in `dispatcher/adapters/config`; this module only
says what exists, what it may be, and which values contradict each other. Secrets are `SecretStr`: they do not print.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from dispatcher.librdkafka import is_plain_property
from dispatcher.settings.callees import MARGIN_MIN_S, CredentialSettings, LimitSettings, UpstreamSettings
from dispatcher.settings.classes import ClassName, ClassSettings
from dispatcher.settings.kafka import KafkaSettings, TopicSettings
from dispatcher.settings.money import BudgetSettings, ModelSettings, UsageSettings
from dispatcher.settings.section import MIB, AgentName, Alias, ModelName, Section
from dispatcher.settings.worker import WorkerSettings

__all__ = [
    "MARGIN_MIN_S",
    "MIB",
    "AgentSettings",
    "BudgetSettings",
    "ClassSettings",
    "CredentialSettings",
    "KafkaSettings",
    "LimitSettings",
    "LogSettings",
    "ModelSettings",
    "Section",
    "Settings",
    "TopicSettings",
    "UpstreamSettings",
    "UsageSettings",
    "WorkerSettings",
]


class AgentSettings(Section):
    """An agent, by the name that its requests say."""

    # Its share of a lane, where worker.fairness is "agent": so many turns for one of an agent that is not listed.
    weight: Annotated[float, Field(ge=0.001, le=1000)] = 1


class LogSettings(Section):
    """JSON lines on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    # Keys appear as an HMAC under this secret; without one, under a random one of the process.
    key_secret: SecretStr | None = None


class Settings(Section):
    """Everything that can be set. Frozen: one is made at start and handed down."""

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    topics: TopicSettings = Field(default_factory=TopicSettings)
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    logs: LogSettings = Field(default_factory=LogSettings)
    usage: UsageSettings = Field(default_factory=UsageSettings)
    models: dict[ModelName, ModelSettings] = Field(default_factory=dict)
    budgets: dict[Alias, BudgetSettings] = Field(default_factory=dict)
    credentials: dict[Alias, CredentialSettings] = Field(default_factory=dict)
    upstreams: dict[Alias, UpstreamSettings] = Field(default_factory=dict)
    limits: dict[Alias, LimitSettings] = Field(default_factory=dict)
    agents: dict[AgentName, AgentSettings] = Field(default_factory=dict)
    classes: dict[ClassName, ClassSettings] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _aliases_exist(self) -> Settings:
        for name, upstream in self.upstreams.items():
            for place, alias in enumerate(upstream.credentials, 1):
                if alias not in self.credentials:
                    # The alias is not repeated: a secret put there by mistake looks just like one.
                    known = ", ".join(self.credentials) or "nothing"
                    raise ValueError(f"item {place} of upstreams.{name}.credentials is not in [credentials], which has {known}")
        return self

    @model_validator(mode="after")
    def _limits_meet(self) -> Settings:
        for name, limit in self.limits.items():
            for of, known in (("credential", self.credentials), ("upstream", self.upstreams)):
                if getattr(limit, of) is not None and getattr(limit, of) not in known:
                    # As above: the alias is not repeated.
                    raise ValueError(f"limits.{name}.{of} is not in [{of}s], which has {', '.join(known) or 'nothing'}")
            if limit.upstream and limit.credential and limit.credential not in self.upstreams[limit.upstream].credentials:
                raise ValueError(f"limits.{name} limits no call: its credential is none of upstreams.{limit.upstream}.credentials")
        return self

    @model_validator(mode="after")
    def _budgets_are_held(self) -> Settings:
        if self.budgets and self.worker.on_wrong_partition == "warn":
            raise ValueError(
                'worker.on_wrong_partition = "warn" executes requests of one key in several partitions, and each would have the whole of '
                "its budget: leave it out while there are [budgets], or take those away meanwhile"
            )
        for name, budget in self.budgets.items():
            if budget.is_shared and self.worker.publishing != "exactly_once":
                raise ValueError(
                    f"budgets.{name} is shared by all partitions, which is kept only where worker.publishing is exactly_once: leave that "
                    "out, or give budgets to keys"
                )
            for place, alias in enumerate(budget.credentials, 1):
                if not alias.endswith("*") and alias not in self.credentials:
                    # As above: the alias is not repeated.
                    known = ", ".join(self.credentials) or "nothing"
                    raise ValueError(f"item {place} of budgets.{name}.credentials is not in [credentials], which has {known}")
        return self

    @model_validator(mode="after")
    def _budgets_are_told_apart(self) -> Settings:
        known: dict[tuple[str, str], str] = {}
        for name, budget in self.budgets.items():
            for of in ("keys", "credentials", "agents"):
                for place, pattern in enumerate(getattr(budget, of), 1):
                    other = known.setdefault((of, pattern), name)
                    if other != name:
                        # As above: what is written there is not repeated.
                        words = f"item {place} of budgets.{name}.{of} stands in budgets.{other}, too"
                        raise ValueError(f"{words}, and one of them would not count: keep one")
        return self

    @model_validator(mode="after")
    def _classes_are_kept(self) -> Settings:
        if not self.classes:
            return self
        if self.worker.protocol == "cooperative":
            raise ValueError(
                'worker.protocol = "cooperative" gives partitions of one number to several workers, and with [classes] they need one: '
                'leave it out, or use "eager"'
            )
        return self

    @model_validator(mode="after")
    def _replies_last(self) -> Settings:
        window_s, kept_s = self.worker.dedup_window_s, self.topics.reply_retention_days * 86_400
        if window_s > kept_s:
            raise ValueError(
                f"worker.dedup_window_s ({window_s:g}) is longer than replies are kept ({kept_s:g} s): what is sent again is answered "
                "with the recorded reply, so lower it or raise topics.reply_retention_days"
            )
        return self

    @property
    def request_topics(self) -> tuple[str, ...]:
        """The topics that requests are taken from."""
        return tuple(view.topics.requests for view in self.views)

    @property
    def kinds(self) -> tuple[str, ...]:
        """All classes that there are, also where these are the settings of one."""
        return tuple(self.classes) or self.topics.kinds

    def of_class(self, name: str) -> Settings:
        """These settings as one class has them: `topics.requests` is its own."""
        return self.model_copy(update={"topics": self.topics.of_class(name, self.kinds), "classes": {}})

    @property
    def views(self) -> tuple[Settings, ...]:
        """These settings as each class has them, in the order of `request_topics`; where there are no classes they themselves."""
        return tuple(self.of_class(name) for name in self.kinds) or (self,)

    @property
    def meant(self) -> tuple[Settings, ...]:
        """Those of `views` that are meant where nobody names another class: their own, where they are those of one, else all."""
        return (self,) if self.topics.kind else self.views

    def view_of(self, topic: str) -> Settings | None:
        """These settings as the class of a request topic has them; None where it is no topic of ours."""
        return next((view for view in self.views if view.topics.requests == topic), None)

    def secret_values(self) -> list[str]:
        """List the secrets that stand in the settings themselves, for redaction; those in variables and files are not read."""
        found = [value for name, value in self.kafka.properties.items() if not is_plain_property(name)]
        found += [given.value for given in self.credentials.values() if given.value is not None]
        if self.logs.key_secret is not None:
            found.append(self.logs.key_secret)
        texts = [value.get_secret_value() for value in found]
        return [text for text in texts if text.lower() not in {"true", "false"}]
