"""Callees: where they are, what is sent to them, and how much they take."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from dispatcher.settings.section import MIB, Alias, Count, ModelName, Positive, Section

# More than any callee takes, and less than a count that workers tell each other has room for.
Most = Annotated[int, Field(ge=1, le=10**12)]
# Measured: see LimitSettings.margin_s.
MARGIN_MIN_S = 0.015


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
    # limits are of something else, such as one model; what it says of them then counts for those of [limits] that name a model.
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


class LimitSettings(Section):
    """How much callees take: of the calls that match all that is named here, no more begin. Nothing is limited unless it is said.

    The workers of a group share it, and have the same in their settings.
    """

    # Which calls: those with this credential, to this upstream, of this model as requests name it. One of them at least.
    credential: Alias | None = None
    upstream: Alias | None = None
    model: ModelName | None = None
    # Open at once.
    concurrency: Most | None = None
    # In any window of so many seconds: calls, and tokens that go in and come out.
    requests: Most | None = None
    tokens: Most | None = None
    window_s: Annotated[float, Field(gt=0, le=86_400)] | None = None
    # How the callee counts. "window": no more in any window, whenever it begins; "bucket": refilled all the time, so that a whole bucket
    # may be used at once, and twice as much in one window. The first is never more than the second lets through: it is the default.
    counting: Literal["window", "bucket"] = "window"
    # The callee counts when a call arrives, and we when it is sent: what one call is later on its way than the call a window behind it.
    # So much longer is a window here, and so much later is a bucket refilled that was full. Unset: a hundredth of the window, and
    # MARGIN_MIN_S at least; 0 where the callee is known to be lenient.
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
