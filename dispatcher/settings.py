"""One frozen settings model: every limit of the product, with its unit in the name and the reason for its value.

How values get here (flag > `-X` > environment > file > default) is `load` in `dispatcher/adapters/config`; this module only
says what exists, what it may be, and which values contradict each other. Secrets are `SecretStr`: they do not print.
"""

from __future__ import annotations

import os
import socket
from decimal import Decimal, InvalidOperation
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator, model_validator

from dispatcher.librdkafka import RESERVED_PROPERTIES, is_plain_property

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
AgentName = Annotated[str, Field(min_length=1, max_length=200)]
Alias = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
# As providers and gateways name them: `gpt-4.1`, `openai/gpt-oss-120b`, `anthropic.claude-sonnet-4-5-v1:0`.
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,99}$")]


def _exact(given: object) -> object:
    """A number as the decimal that was written: 0.42 is 42 hundredths, and not the nearest double."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return given
    try:
        return Decimal(str(given))
    except InvalidOperation:
        raise ValueError("must be a number") from None


Usd = Annotated[Decimal, BeforeValidator(_exact), Field(ge=0, le=1_000_000, max_digits=20)]

MIB = 1024 * 1024
# Measured: see LimitSettings.margin_s.
MARGIN_MIN_S = 0.015


class Section(BaseModel):
    """A table of the configuration: frozen, and without room for names it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


class KafkaSettings(Section):
    """How to reach Kafka. `properties` are plain librdkafka properties (dotted names), applied to every client."""

    bootstrap_servers: str = "localhost:9092"
    properties: dict[str, SecretStr] = Field(default_factory=dict)

    @field_validator("properties")
    @classmethod
    def _keep_guarantees(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name in value:
            if name in RESERVED_PROPERTIES:
                raise ValueError(f"{name} carries a guarantee and is set by the dispatcher: remove it")
        return value


class TopicSettings(Section):
    """Names, sizes and retention of the topics; `dispatcher topics init` creates them so."""

    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")] = "dispatcher"
    partitions: Count = 12
    replication_factor: Count = 1
    # Topics beside the default one that a request may name for its reply; the sender chooses, so only listed ones are written.
    reply_topics: tuple[str, ...] = ()
    request_max_bytes: Count = 1 * MIB
    reply_max_bytes: Count = 8 * MIB
    dead_letter_max_bytes: Count = 8 * MIB
    request_retention_days: Positive = 7
    reply_retention_days: Positive = 7
    dead_letter_retention_days: Positive = 30

    @property
    def requests(self) -> str:
        return f"{self.prefix}.requests"

    @property
    def replies(self) -> str:
        return f"{self.prefix}.replies"

    @property
    def dead_letters(self) -> str:
        return f"{self.prefix}.dlq"

    @property
    def parked(self) -> str:
        return f"{self.prefix}.parked"

    @property
    def journal(self) -> str:
        return f"{self.prefix}.journal"

    @property
    def state(self) -> str:
        return f"{self.prefix}.state"

    @property
    def control(self) -> str:
        return f"{self.prefix}.control"

    @property
    def workers(self) -> str:
        return f"{self.prefix}.workers"

    @property
    def parked_max_bytes(self) -> int:
        """A parked request is the request and a little more: where it came from, what was tried, when it is due."""
        return self.request_max_bytes + 64 * 1024


class WorkerSettings(Section):
    """One worker process: its place in the group, what it may hold, and how long things may take."""

    group: Annotated[str, Field(min_length=1, max_length=200)] = "dispatcher"
    # Stable name of this worker: the transactional.id is group + slot, so that a restart settles what its predecessor left open. One that
    # is given is also its name in the group (static membership) wherever that helps: see `adapters/kafka/seat.py`. The default one never
    # comes back.
    slot: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,150}$")] = Field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}")
    ordering: Literal["partition", "key"] = "partition"
    # Whose turn it is in a lane: the oldest request's; or its agents take turns (start-time fair queueing), and order is per agent.
    fairness: Literal["fifo", "agent"] = "fifo"
    publishing: Literal["exactly_once", "at_least_once"] = "exactly_once"
    protocol: Literal["auto", "consumer", "cooperative", "eager"] = "auto"
    # What an orderly end does with the partitions of a worker that has a slot: the others get them at once, or they are kept for a restart
    # in its place, until its session times out; a worker that crashed may then not be back before that.
    on_stop: Literal["leave", "keep"] = "leave"
    # Open calls of this process at once, and of one of its partitions (lanes per key; a strict partition has one).
    inflight_max: Count = 1000
    partition_inflight_max: Count = 1000
    # Client library for calls. Both give the same results to hostile callees; aiohttp takes a fifth of the CPU per call.
    http_engine: Literal["aiohttp", "httpx"] = "aiohttp"
    # Time for calls in hand when partitions are taken away or on SIGTERM; longer than call_timeout_s, so that they are finished, not cut.
    drain_s: Positive = 75
    # Buffer of one partition: what it can finish in drain_s, since kept partitions live on it while another drains. Thresholds, as the two
    # below: from there on nothing more is fetched, and what was fetched ahead (some 12 MiB of a partition) comes all the same.
    lane_buffer_max_records: Count = 4000
    lane_buffer_max_bytes: Count = 16 * MIB
    # The same for all partitions of this worker together: what one process may hold in memory.
    buffer_max_records: Count = 100_000
    buffer_max_bytes: Count = 256 * MIB
    # Parked requests of one partition that are known by their place alone (about 200 bytes each, 2 kB for the first of a key), not
    # counted by `buffer_max_bytes`; beyond it the partition stands.
    parked_max_records: Count = 100_000
    # How long a request that is sent again under its id is answered from the record instead of being called; 0: never. Clients that hear no
    # answer send again within minutes.
    dedup_window_s: Annotated[float, Field(ge=0, le=30 * 86_400)] = 3600
    # Requests of one partition that are remembered for that (about 230 bytes each); beyond it the oldest are forgotten before their time.
    # A new owner reads them before its first call, at some 15 us each: 12 full partitions take it about 5 s.
    dedup_max_entries: Count = 25_000
    # Requests that may wait behind a halted key; newer ones are dead-lettered at once.
    halted_max_records: Count = 1000
    # What to do where retention removed requests that were never executed, or the position is of a former topic of this name: stop that
    # partition, or go on at its first record, counted and logged; and where the broker has lost the log's end: forget what has ended beyond
    # it. A position that is missing or beyond the end always stops it.
    on_gap: Literal["stop", "continue"] = "stop"
    # Start of one transaction (or commit) to the start of the next under load; an idle worker publishes at once.
    commit_interval_ms: Annotated[int, Field(ge=0, le=10_000)] = 20
    # An open transaction is a lease on every reader of its partitions: short, and never held across a call.
    transaction_timeout_s: Annotated[float, Field(ge=1, le=900)] = 10
    max_poll_interval_s: Annotated[float, Field(ge=1, le=86_400)] = 300
    # How often the request topic is looked at: nobody tells a worker that it was deleted, made anew or grown.
    topic_check_s: Annotated[float, Field(ge=1, le=3600)] = 30
    # How often it tells of its lanes in the workers topic; one small record each.
    report_interval_s: Annotated[float, Field(ge=0.1, le=60)] = 2
    # Longest time that a callee's own hints (429, 503 with Retry-After) may hold one request that has no deadline.
    wait_max_s: Positive = 600
    on_wrong_partition: Literal["refuse", "warn"] = "refuse"
    # Health and metrics; port 0 takes a free one and logs it.
    http_host: str = "127.0.0.1"
    http_port: Annotated[int, Field(ge=0, le=65_535)] = 9464

    @property
    def commit_budget_s(self) -> float:
        """Longest time that one publication may need to end: the transaction's timeout and the broker's sweep (10 s)."""
        return self.transaction_timeout_s + 10

    @property
    def instance_id(self) -> str | None:
        """The name that it may have in the group (`group.instance.id`); None where no slot was given."""
        return self.slot if "slot" in self.model_fields_set else None

    @model_validator(mode="after")
    def _fits(self) -> WorkerSettings:
        if self.on_stop == "keep" and self.instance_id is None:
            raise ValueError(
                'on_stop = "keep" is for a worker that comes back under the same name: give it one (slot), or leave on_stop out'
            )
        if self.drain_s + self.commit_budget_s >= self.max_poll_interval_s:
            raise ValueError(
                f"drain_s ({self.drain_s:g}) + {self.commit_budget_s:g} s to publish must be less than "
                f"max_poll_interval_s ({self.max_poll_interval_s:g}): lower drain_s or raise max_poll_interval_s"
            )
        return self


class CredentialSettings(Section):
    """A secret that a worker adds to a call. Messages name its alias, never its value."""

    header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,100}$")] = "Authorization"
    value: SecretStr | None = None
    value_env: str | None = None
    value_file: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> CredentialSettings:
        given = [n for n in ("value", "value_env", "value_file") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError("needs exactly one of value, value_env and value_file")
        return self


class UpstreamSettings(Section):
    """A callee, by alias: where it is, what may be sent to it, and how patient we are."""

    base_url: Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")]
    # Whose prices its answers have, as genai-prices names it (openai, anthropic, google, deepseek, openrouter ...). Unset: known by the
    # base URL, where that is the provider's own; what a gateway passes on is priced only where this, or [models], says how.
    provider: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,50}$")] | None = None
    # Aliases that may be sent there. Empty: the callee takes no credential, and none is ever sent.
    credentials: tuple[Alias, ...] = ()
    methods: tuple[str, ...] = ("GET", "POST")
    # Loopback, private and link-local addresses are refused unless this is true.
    allow_private: bool = False
    # May a message with key apikey:A name another credential of this upstream?
    allow_other_credential: bool = False
    call_timeout_s: Positive = 60
    connect_timeout_s: Positive = 10
    # Longest time from sending a request to the head of its answer, and between two parts of the body. Unset: only call_timeout_s counts,
    # since a model that thinks for a minute sends nothing meanwhile, and a call that is cut off too early is paid for and made again.
    first_byte_timeout_s: Positive | None = None
    idle_timeout_s: Positive | None = None
    # Give the first call of a request less than call_timeout_s where calls like it (this upstream, model, streamed or not) are known to
    # take less: their P99 of the last 100, times the multiplier, and not under the floor. Off, since it is a wager: what is slow for once
    # is called twice, and billed twice. On, a lane that waits for an answer which will not come goes on sooner.
    adaptive_timeout: bool = False
    timeout_multiplier: Annotated[float, Field(ge=1)] = 1.5
    timeout_floor_s: Positive = 10
    attempts_max: Annotated[int, Field(ge=1, le=100)] = 3
    backoff_base_s: Positive = 1
    backoff_max_s: Positive = 30
    # The circuit breaker, one per worker. It opens after so many failures of the callee in a row; 0: not by that, and with no
    # breaker_rate there is none. As DESIGN.md asks; sony/gobreaker and Polly's former default, too.
    breaker_failures: Annotated[int, Field(ge=0, le=1000)] = 5
    # How long it stays open until one request is sent as its probe: a provider that restarts is back by then.
    breaker_open_s: Positive = 30
    # It opens, too, where this share of the calls in a window fails, once there are enough of them to tell; left out: not by that.
    breaker_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    breaker_window_s: Positive = 60
    # Fewer calls tell no share (Polly asks for 100, resilience4j for as many; calls of models are slow, and fewer).
    breaker_min_calls: Count = 20
    # A 429 that says when to come again holds all calls with its credential until then, not its own key alone. False where the callee's
    # limits are of something else, such as one model.
    hint_holds_credential: bool = True
    # Most bytes of an answer that are kept; a longer one ends as reply_too_large.
    response_max_bytes: Count = 7 * MIB
    # Request headers that a message may set, in lower case.
    request_headers: tuple[str, ...] = (
        "accept",
        "accept-language",
        "anthropic-beta",
        "anthropic-version",
        "content-type",
        "openai-beta",
        "openai-organization",
        "openai-project",
        "x-request-id",
    )
    # Response headers that a reply shows, in lower case; a trailing * takes all with that beginning.
    response_headers: tuple[str, ...] = ("content-type", "retry-after", "retry-after-ms", "request-id", "x-request-id", "x-ratelimit-*")

    @model_validator(mode="after")
    def _clocks_can_run_out(self) -> UpstreamSettings:
        for name in ("first_byte_timeout_s", "idle_timeout_s"):
            limit_s = getattr(self, name)
            if limit_s is not None and limit_s >= self.call_timeout_s:
                raise ValueError(
                    f"{name} ({limit_s:g}) is not less than call_timeout_s ({self.call_timeout_s:g}), which ends each call before: "
                    "lower it, or leave it out"
                )
        if self.adaptive_timeout and self.timeout_floor_s >= self.call_timeout_s:
            raise ValueError(
                f"adaptive_timeout can do nothing where timeout_floor_s ({self.timeout_floor_s:g}) is not less than call_timeout_s "
                f"({self.call_timeout_s:g}): lower the floor, or leave it off"
            )
        return self

    @property
    def has_breaker(self) -> bool:
        """Whether anything opens its circuit breaker."""
        return self.breaker_failures > 0 or self.breaker_rate is not None


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


class BudgetSettings(Section):
    """What a lane key may cost in a day. Each key that it is for has a budget of its own."""

    # Lane keys, or a beginning of them and a *: `apikey:team-a`, `doc:*`. Of several budgets the one that names most of a key counts.
    keys: Annotated[tuple[Annotated[str, Field(pattern=r"^[^*]{1,1024}\*?$|^\*$")], ...], Field(min_length=1)]
    usd_per_day: Usd
    # Set aside before each call, and given back as far as it costs less: the most that a call may cost. One that costs more is the only
    # way to spend more than usd_per_day; what nobody can price costs this much.
    reserve_usd: Annotated[Usd, Field(gt=0)]
    # Then: a dead letter budget_exhausted at once, or its lane waits until the next day begins.
    when_spent: Literal["refuse", "wait"] = "refuse"
    # When a day begins, in hours after midnight UTC: -1 is midnight in Berlin in winter.
    day_starts_at_h: Annotated[float, Field(ge=-14, le=14)] = 0

    @model_validator(mode="after")
    def _pays_one_call(self) -> BudgetSettings:
        if self.reserve_usd > self.usd_per_day:
            raise ValueError(
                f"reserve_usd ({self.reserve_usd}) is more than usd_per_day ({self.usd_per_day}), so that no call could ever be made: "
                "raise the budget or lower the reserve"
            )
        return self


class LimitSettings(Section):
    """How much callees take: of the calls that match all that is named here, no more begin. Nothing is limited unless it is said."""

    # Which calls: those with this credential, to this upstream, of this model as requests name it. One of them at least.
    credential: Alias | None = None
    upstream: Alias | None = None
    model: ModelName | None = None
    # Open at once.
    concurrency: Count | None = None
    # In any window of so many seconds: calls, and tokens that go in and come out.
    requests: Count | None = None
    tokens: Count | None = None
    window_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    # How the callee counts. "window": no more in any window, whenever it begins; "bucket": refilled all the time, so that a whole bucket
    # may be used at once, and twice as much in one window. The first is never more than the second lets through: it is the default.
    counting: Literal["window", "bucket"] = "window"
    # The callee counts when a call arrives, and we when it is sent: what one call is later on its way than the call a window behind it.
    # So much longer is a window here. Unset: a hundredth of it, and MARGIN_MIN_S at least; 0 where the callee is known to be lenient.
    margin_s: Annotated[float, Field(ge=0, le=3600)] | None = None

    @property
    def slack_s(self) -> float:
        """The margin."""
        return max(MARGIN_MIN_S, (self.window_s or 0.0) / 100) if self.margin_s is None else self.margin_s

    @model_validator(mode="after")
    def _says_what_and_whose(self) -> LimitSettings:
        if self.credential is None and self.upstream is None and self.model is None:
            raise ValueError("says nothing of whose limit it is: name a credential, an upstream or a model")
        per_window = self.requests is not None or self.tokens is not None
        if self.concurrency is None and not per_window:
            raise ValueError("limits nothing: give concurrency, requests or tokens")
        if per_window is (self.window_s is None):
            needs = "requests and tokens need window_s" if per_window else "window_s needs requests or tokens"
            raise ValueError(f"{needs}: so many in so many seconds")
        return self


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

    def secret_values(self) -> list[str]:
        """List the secrets that stand in the settings themselves, for redaction; those in variables and files are not read."""
        found = [value for name, value in self.kafka.properties.items() if not is_plain_property(name)]
        found += [given.value for given in self.credentials.values() if given.value is not None]
        if self.logs.key_secret is not None:
            found.append(self.logs.key_secret)
        texts = [value.get_secret_value() for value in found]
        return [text for text in texts if text.lower() not in {"true", "false"}]
