"""The root command and its global options, which may stand before and after the subcommand.

Users of kcat and rpk write `dispatcher -b x replies` and `dispatcher replies -b x` alike. So the root declares each option once, and
`Root` hangs a copy of it on every command below; Click parses each where it stands, and all of them end in one `Options`.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from dispatcher.core.durations import parse_duration
from dispatcher.errors import ConfigError

if TYPE_CHECKING:
    from dispatcher.adapters.config import Loaded
    from dispatcher.settings import KafkaSettings, Settings

_GLOBAL = "Global options (before or after the command)"
_EXIT_CODES = (
    "Exit codes: 0 done, 1 the call or an item of a batch failed, 2 usage or configuration, 3 Kafka unreachable or refusing, "
    "4 timed out waiting, 5 refused, 130 interrupted."
)
# What rich would take for markup, and leave out: the names of tables, such as [budgets].
_MARKUP = re.compile(r"\[(?=[a-z#/@])")
# What `--help` lists, in this order; a command without a place here stands under "Other".
_PANELS = {
    "Run": ("dev", "worker", "demo"),
    "Requests and replies": ("submit", "ask", "wait", "cancel", "show", "replies", "requests", "replay", "dlq", "usage"),
    "Operate": ("lanes",),
    "Set up": ("topics", "config", "schema", "broker", "sample-upstream", "version"),
}

# After an interrupt that met a finalizer, or a library that is not Python's: when it has long been left.
AGAIN_S = 0.05


@dataclass
class Options:
    """The global options of one command line, and the settings that follow from them. It is `ctx.obj` of every command.

    `flags` holds further settings by dotted name (`worker.slot`): a command whose own options set some puts them there before it
    asks for `settings()`, which loads once.
    """

    properties: list[str] = field(default_factory=list)
    config: Path | None = None
    json: bool = False
    quiet: bool = False
    verbose: int = 0
    color: bool = True
    yes: bool = False
    timeout_s: float | None = None
    class_name: str | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False
    _loaded: Loaded | None = None

    def interrupt(self, _number: int, _frame: object) -> NoReturn:
        """Handle a signal that ends a command. It is noted, too: raised inside a client library it may come out as another exception."""
        self.interrupted = True
        raise KeyboardInterrupt

    @staticmethod
    def interrupt_again(otherwise: Callable[[sys.UnraisableHookArgs], object], failure: sys.UnraisableHookArgs) -> None:
        """Take what was raised where nothing can be (`sys.unraisablehook`): an interrupt would be lost there, and comes again at once."""
        if not isinstance(failure.exc_value, KeyboardInterrupt):
            otherwise(failure)
            return
        # From a thread: here, too, it would only be ignored. The main one is the one that may wait for something.
        again = threading.Timer(AGAIN_S, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        again.daemon = True
        again.start()

    def __post_init__(self) -> None:
        self.color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def settings(self) -> Settings:
        """Settle the settings: flag > -X > environment > file > default. Raises ConfigError, also for a class that makes no difference."""
        if self.class_name is not None:
            raise ConfigError("--class is for commands about the requests of one class: this one is about those of all", "leave it out")
        return self.loaded().settings

    def class_settings(self) -> Settings:
        """The same for a command about requests, as the class has them that was named. ConfigError where there are some, and none was."""
        from dispatcher.client.classes import of_class  # `version` needs no client

        return of_class(self.loaded().settings, self.class_name)

    def request_settings(self) -> Settings:
        """The same for a command about single requests, which say their class themselves where none was named."""
        from dispatcher.client.classes import as_class  # as above

        return as_class(self.loaded().settings, self.class_name)

    def loaded(self) -> Loaded:
        """Settle the settings and where each came from; read once, since a file may change under a running command."""
        if self._loaded is None:
            from dispatcher.adapters.config import load_with_sources  # `version` needs no pydantic

            self._loaded = load_with_sources(file=self.config, flags=self._all_flags(), properties=self.properties, environ=os.environ)
            if self.verbose:
                self._log()
        return self._loaded

    def given_kafka(self) -> KafkaSettings | None:
        """Give the broker that somebody named, which is used as it is; None for the default address, which is nobody's choice."""
        loaded = self.loaded()
        return loaded.settings.kafka if ("kafka", "bootstrap_servers") in loaded.sources else None

    def secrets(self) -> list[str]:
        """List every secret known so far, for the error path: it must not print one, and must not fail over a missing one."""
        given = _secrets_in(self.properties) if self.properties else []
        if self._loaded is None:
            return given
        from dispatcher.adapters.config import known_secrets  # as above

        return given + known_secrets(self._loaded.settings, os.environ)

    def add(self, name: str, value: Any) -> None:  # noqa: ANN401 - each option has its own type
        """Take one global option, wherever it stood. What may be repeated adds up, of the others the last one counts."""
        if value is None or value is False or value in (0, []):
            return
        if name == "properties":
            self.properties += [_pair(text) for text in value]
        elif name == "verbose":
            self.verbose += value
        elif name == "brokers":
            self.flags["kafka.bootstrap_servers"] = value
        elif name == "timeout":
            self.timeout_s = _timeout(value)
        elif name == "no_color":
            self.color = False
            os.environ["NO_COLOR"] = "1"  # rich and the programs that we start ask the environment
        else:
            setattr(self, name, value)

    def _log(self) -> None:
        """Let librdkafka's own lines come out: with -v they are what explains a connection that fails."""
        from dispatcher.adapters import logs

        logs.configure(self.loaded().settings, self.secrets())

    def _all_flags(self) -> dict[str, Any]:
        """Join what the command set and what -v and -q say about the log."""
        level = {"logs.level": "debug"} if self.verbose else {"logs.level": "warning"} if self.quiet else {}
        return level | self.flags


def _pair(text: str) -> str:
    """Check the shape of an -X, without repeating it: half of one may be a password."""
    name, separator, _ = text.partition("=")
    if not separator or not name.strip():
        raise ConfigError("-X needs NAME=VALUE", "for example: -X security.protocol=SASL_SSL")
    return text


def _secrets_in(properties: list[str]) -> list[str]:
    """Pick the values of -X that must not be repeated: all but those of properties that are known to hold no secret."""
    from dispatcher.librdkafka import is_plain_property  # `version` needs no pydantic

    pairs = [(name.strip(), value) for name, _, value in (text.partition("=") for text in properties)]
    return [value for name, value in pairs if not is_plain_property(name) and not is_plain_property(name.replace("_", "."))]


def _timeout(text: str) -> float:
    """Read --timeout, in seconds; what would not wait at all can find nothing out."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"--timeout: {error}", "for example: --timeout 30s") from None
    if not seconds:
        raise ConfigError("--timeout: more than 0", "for example: --timeout 500ms")
    return seconds


class Root(TyperGroup):
    """The root group: gives its global options to every command below it, and each command its place in `--help`."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - typer's own keywords, passed on
        super().__init__(**attributes)
        shared = [p for p in self.params if getattr(p, "rich_help_panel", None) == _GLOBAL]
        for command in self.commands.values():
            _share(shared, command)
        places = {name: (panel, place) for panel, names in _PANELS.items() for place, name in enumerate(names)}
        for name, command in self.commands.items():
            command.rich_help_panel = places.get(name, ("Other", 0))[0]  # type: ignore[attr-defined]
        order = list(_PANELS)
        self.commands = dict(
            sorted(
                self.commands.items(),
                key=lambda item: (order.index(places[item[0]][0]), places[item[0]][1]) if item[0] in places else (9, 0),
            )
        )


def _share(shared: list[Any], command: Any) -> None:  # noqa: ANN401 - Click's classes are private in typer
    """Hang a copy of each global option on a command and all below it, but for the spellings that the command has itself."""
    taken = {spelling for option in command.params for spelling in (*option.opts, *option.secondary_opts)}
    for option in shared:
        twin = copy.copy(option)
        twin.opts = [spelling for spelling in option.opts if spelling not in taken]
        if twin.opts:
            twin.name = f"global_{option.name}"
            twin.expose_value = False
            twin.callback = _taker(option.name)
            command.params.append(twin)
    for shown in (command, *command.params):
        shown.help = None if shown.help is None else _MARKUP.sub(r"\\[", shown.help)
    for option in command.params:
        if getattr(option, "is_flag", False) and option.metavar is None:
            option.metavar = ""  # typer would print `<bool>` behind an option that takes no value
    # A line that lacks its command is an error on stderr, like all others, and not a page on stdout.
    command.no_args_is_help = False
    for below in getattr(command, "commands", {}).values():
        _share(shared, below)


def _taker(name: str) -> Callable[[typer.Context, Any, Any], Any]:
    """Make the callback of an option below the root: the value goes to `ctx.obj`, not to the command."""

    def take(ctx: typer.Context, _parameter: Any, value: Any) -> Any:  # noqa: ANN401 - Click's signature
        ctx.ensure_object(Options).add(name, value)
        return value

    return take


app = typer.Typer(
    name="dispatcher",
    cls=Root,
    help="Runs agents' API calls one after another per key, in order, over Apache Kafka.",
    epilog=_EXIT_CODES,
    invoke_without_command=True,
    # The traceback page of typer shows local variables, and with them secrets.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_option = partial(typer.Option, rich_help_panel=_GLOBAL, show_default=False)
_Brokers = Annotated[str | None, _option("-b", "--brokers", metavar="HOST:PORT,…", help="Kafka's bootstrap servers.")]
_Properties = Annotated[list[str] | None, _option("-X", metavar="NAME=VALUE", help="A librdkafka property; repeatable.")]
_Config = Annotated[Path | None, _option("--config", metavar="FILE", help="Configuration (TOML).")]
_Json = Annotated[bool, _option("--json", metavar="", help="One JSON object a line on stdout.")]
_Quiet = Annotated[bool, _option("-q", "--quiet", metavar="", help="No progress and no notes on stderr.")]
_Verbose = Annotated[int, _option("-v", "--verbose", count=True, metavar="", help="Log more, and show tracebacks.")]
_NoColor = Annotated[bool, _option("--no-color", is_eager=True, metavar="", help="Plain text.")]
_Yes = Annotated[bool, _option("-y", "--yes", metavar="", help="Answer questions with yes.")]
_Timeout = Annotated[str | None, _option("--timeout", metavar="TIME", help="Longest wait, more than 0: 500ms, 30s, 2m.")]


_Class = Annotated[str | None, _option("--class", metavar="NAME", help="Whose requests, where there are classes of them.")]


_Version = Annotated[bool, typer.Option("--version", metavar="", help="As the command version.", show_default=False)]


@app.callback()
def _root(
    ctx: typer.Context,
    brokers: _Brokers = None,
    properties: _Properties = None,
    config: _Config = None,
    json: _Json = False,
    quiet: _Quiet = False,
    verbose: _Verbose = 0,
    no_color: _NoColor = False,
    yes: _Yes = False,
    timeout: _Timeout = None,
    class_name: _Class = None,
    version: _Version = False,
) -> None:
    """Take the global options that stand before the command."""
    options = ctx.ensure_object(Options)
    given: dict[str, Any] = {"no_color": no_color, "brokers": brokers, "properties": properties, "config": config, "json": json}
    given |= {"quiet": quiet, "verbose": verbose, "yes": yes, "timeout": timeout, "class_name": class_name}
    for name, value in given.items():
        options.add(name, value)
    if version:
        from dispatcher.cli.version import say_versions  # most commands do without

        say_versions(as_json=options.json)
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        with contextlib.redirect_stdout(sys.stderr):  # rich prints the help itself; on stdout it would be taken for data
            ctx.get_help()
        raise typer.Exit(ConfigError.exit_code)
