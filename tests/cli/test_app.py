"""The command line as such: global options anywhere, exit codes, one sentence for every error."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from confluent_kafka import KafkaError, KafkaException

import dispatcher
from dispatcher.adapters import logs
from dispatcher.cli import exits, main
from dispatcher.cli.app import Options, Root, app
from dispatcher.errors import BrokerError, CallFailed, ConfigError, DispatcherError, RefusedError, WaitTimeout
from dispatcher.settings import Settings
from tests.waiting import eventually

CANARY = "sk-canary-7fQ2/+x=9"
# A process of its own, on a loaded machine of two cores.
PROCESS_S = 60


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings from outside, and none left behind."""
    for name in [name for name in os.environ if name.startswith("DISPATCHER_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)
    os.environ.pop("NO_COLOR", None)


class Seen:
    """A command line with a command that only looks at its options."""

    def __init__(self) -> None:
        self.options: Options | None = None
        self.failure: BaseException | None = None
        self.raiser: Callable[[], BaseException] | None = None
        self.app = typer.Typer(cls=Root, pretty_exceptions_enable=False)
        self.app.callback()(app.registered_callback.callback)  # type: ignore[union-attr, type-var]
        self.app.command("look")(self._look)
        group = typer.Typer()
        group.command("deep")(self._look)
        group.command("own")(self._own)
        self.app.add_typer(group, name="group")

    def _look(self, ctx: typer.Context) -> None:
        self.options = ctx.obj
        if self.raiser is not None:
            raise self.raiser()
        if self.failure is not None:
            raise self.failure

    def _own(self, ctx: typer.Context, timeout: float = typer.Option(1.0, "--timeout")) -> None:
        self.options = ctx.obj
        self.own_timeout = timeout

    def run(self, *arguments: str) -> Options:
        """Run one line and give what the command saw."""
        self.app(args=list(arguments), standalone_mode=False, obj=Options())
        assert self.options is not None
        return self.options


@pytest.fixture
def seen() -> Seen:
    """A command that looks."""
    return Seen()


GLOBALS = ["-b", "k:1", "-X", "client.id=c", "--config", "f.toml", "--json", "-q", "-vv", "--no-color", "-y", "--timeout", "2m"]


@pytest.mark.parametrize("command", [["look"], ["group", "deep"]])
def test_global_options_work_anywhere(seen: Seen, command: list[str]) -> None:
    """Before the command, after it, and between a group and its command: the same options."""
    lines = [GLOBALS + command, command + GLOBALS, [command[0], *GLOBALS, *command[1:]]]
    for line in lines:
        options = seen.run(*line)
        assert options.flags == {"kafka.bootstrap_servers": "k:1"}
        assert (options.properties, options.config) == (["client.id=c"], Path("f.toml"))
        assert (options.json, options.quiet, options.verbose, options.yes) == (True, True, 2, True)
        assert (options.color, options.timeout_s) == (False, 120.0)


def test_options_on_both_sides_add_up(seen: Seen) -> None:
    """Repeatable ones are collected, of the others the later one counts."""
    options = seen.run("-v", "-X", "a=1", "-b", "first", "look", "-v", "-X", "b=2", "-b", "second")
    assert (options.verbose, options.properties) == (2, ["a=1", "b=2"])
    assert options.flags == {"kafka.bootstrap_servers": "second"}


def test_a_command_may_have_an_option_of_its_own(seen: Seen) -> None:
    """Its own spelling wins below it, the global one before it still works."""
    options = seen.run("--timeout", "3s", "group", "own", "--timeout", "5", "--json")
    assert (seen.own_timeout, options.timeout_s, options.json) == (5.0, 3.0, True)


def test_every_registered_command_takes_the_global_options() -> None:
    """No command of the product is left out, whoever wrote it."""
    root = typer.main.get_command(app)

    def walk(command: object, path: str) -> Iterator[tuple[str, set[str]]]:
        below = getattr(command, "commands", {})
        if not below:
            yield path, {spelling for option in command.params for spelling in option.opts}  # type: ignore[attr-defined]
        for name, child in below.items():
            yield from walk(child, f"{path} {name}")

    spellings = {"-b", "-X", "--config", "--json", "-q", "-v", "--no-color", "-y", "--timeout"}
    lacking = {path: spellings - have for path, have in walk(root, "dispatcher") if not spellings <= have}
    assert lacking == {}


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (CallFailed("it failed", "look"), 1),
        (ConfigError("wrong", "mend"), 2),
        (BrokerError("no Kafka"), 3),
        (WaitTimeout("late", "wait for id"), 4),
        (RefusedError("no"), 5),
        (typer.Exit(4), 4),
        (KeyboardInterrupt(), 130),
        (typer.Abort(), 130),
        (BrokenPipeError(), 1),
    ],
)
def test_exit_codes(
    seen: Seen, failure: BaseException, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of end has its code; our errors print a sentence and a hint on stderr, nothing on stdout."""
    monkeypatch.setattr("dispatcher.cli.app", seen.app)
    seen.failure = failure
    assert code == main(["look"])
    out, err = capsys.readouterr()
    assert out == ""
    if isinstance(failure, DispatcherError):
        hint = f"hint: {failure.hint}\n" if failure.hint else ""
        assert err == f"error: {failure.message}\n{hint}"
    else:
        assert err == ""


def test_an_interrupt_that_comes_out_as_another_exception_is_one(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised inside a callback of a client library it may be swallowed, and the call fails with something else (seen in the demo)."""
    monkeypatch.setattr("dispatcher.cli.app", seen.app)

    class Swallowing(SystemError):
        """What the library makes of it."""

        def __init__(self) -> None:
            super().__init__("returned a result with an exception set")
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    seen.raiser = Swallowing
    assert main(["look"]) == 130


def test_an_interrupt_that_nobody_can_raise_comes_again(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a finalizer, or where a library calls back from C, Python only prints what is raised: a worker lived on after its Ctrl-C."""
    monkeypatch.setattr("dispatcher.cli.app", seen.app)

    class Deaf:
        """What nobody can interrupt."""

        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def looked() -> SystemError:
        deaf = Deaf()
        del deaf
        eventually(lambda: False, 10, "an interrupt")
        return SystemError()

    seen.raiser = looked
    assert main(["look"]) == 130


def test_kafka_exceptions_become_code_3(seen: Seen, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that nobody caught is a sentence all the same."""
    monkeypatch.setattr("dispatcher.cli.app", seen.app)
    seen.failure = KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, CANARY))
    assert main(["look"]) == 3
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert "canary" not in err


def test_a_bug_is_one_sentence_and_a_traceback_only_with_v(
    seen: Seen, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected exception names its kind and place; its text, which may hold a secret, is masked even with -v."""
    monkeypatch.setattr("dispatcher.cli.app", seen.app)
    seen.failure = KeyError(CANARY)
    assert main(["look", "-X", f"sasl.password={CANARY}"]) == 1
    quiet = capsys.readouterr().err
    assert quiet.startswith("error: internal error: KeyError at test_app.py:")
    assert "-v" in quiet
    assert "Traceback" not in quiet
    assert main(["look", "-v", "-X", f"sasl.password={CANARY}"]) == 1
    loud = capsys.readouterr().err
    assert "Traceback" in loud
    assert "canary" not in quiet + loud


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ([], "Usage:"),
        (["nonsense"], "error: no such command"),
        (["version", "--nonsense"], "error: no such option"),
        (["version", "extra"], "error: got unexpected extra argument"),
        (["config"], "error: missing command"),
        (["--timeout", "soon", "version"], "error: --timeout"),
        (["--timeout", "0", "version"], "error: --timeout: more than 0"),
        (["version", "--timeout", "0ms"], "error: --timeout: more than 0"),
        (["version", "-X", CANARY.rstrip("=9")], "error: -X needs NAME=VALUE"),
        (["version", "-X"], "error:"),
        (["config", "show", "--config", "/nowhere.toml"], "error: the configuration file /nowhere.toml does not exist"),
        (["config", "show", "-X", "acks=1"], "carries a guarantee"),
        (["worker"], "no [upstreams.NAME] is configured"),
        (["config", "check", "-X", f"no.such.property={CANARY}"], "no.such.property"),
        (["config", "check", "-X", f"socket.timeout.ms={CANARY}"], "socket.timeout.ms"),
    ],
)
def test_usage_and_configuration_errors_are_code_2(line: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage and wrong settings: exit code 2, stderr only, no traceback, no value."""
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err
    assert "canary" not in err


def test_help_lists_sections_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` is data: exit code 0, on stdout; no command stands under "Other"."""
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "Set up" in out
    assert "Exit codes" in out
    assert "Other" not in out


def test_a_word_that_is_not_among_those_of_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    """What it may be, in one sentence."""
    assert main(["usage", "--by", "hour"]) == 2
    assert "error: invalid value for '--by': 'hour' is not one of 'key', 'agent', 'model', 'day'\n" in capsys.readouterr().err


def test_help_names_tables_of_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    """In brackets, as they stand in the file: they are no markup."""
    assert main(["usage", "--help"]) == 0
    assert "[budgets]" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version of the product, as text and as an object."""
    assert main(["version"]) == 0
    assert f"dispatcher {dispatcher.__version__}\n" in capsys.readouterr().out
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dispatcher"] == dispatcher.__version__
    assert main(["--version"]) == 0
    assert f"dispatcher {dispatcher.__version__}\n" in capsys.readouterr().out
    assert main(["--version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dispatcher"] == dispatcher.__version__


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    """A configuration with secrets in every place."""
    file = tmp_path / "d.toml"
    file.write_text(
        f"""
[kafka]
sasl_password = "{CANARY}"
"ssl.key.password" = "{CANARY}"
client_id = "tést \\u007f"
[logs]
key_secret = "{CANARY}"
[credentials."team.a"]
value = "Bearer {CANARY}"
[upstreams.openai]
base_url = "https://api.openai.com/v1"
credentials = ["team.a"]
"""
    )
    return file


def test_config_show_is_toml_without_secrets(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is shown is TOML that names each source; it reads back, and no secret is in it."""
    assert main(["config", "show", "--config", str(config_file), "-b", "k:1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "canary" not in out
    shown = tomllib.loads(out)
    assert shown["kafka"] == {"bootstrap_servers": "k:1", "sasl.password": "***", "ssl.key.password": "***", "client.id": "tést \x7f"}
    assert shown["credentials"]["team.a"]["value"] == "***"
    assert shown["upstreams"]["openai"]["methods"] == ["GET", "POST"]
    assert 'bootstrap_servers = "k:1"  # flag' in out
    assert f"# {config_file}" in out
    config_file.write_text(out)
    assert main(["config", "show", "--config", str(config_file)]) == 0


def test_config_show_as_json(config_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One object: dotted names with value and source."""
    monkeypatch.setenv("DISPATCHER_WORKER__GROUP", "g")
    assert main(["config", "show", "--config", str(config_file), "--json"]) == 0
    out = capsys.readouterr().out
    shown = json.loads(out)
    assert shown["worker.group"] == {"value": "g", "source": "DISPATCHER_WORKER__GROUP"}
    assert shown["kafka.sasl.password"] == {"value": "***", "source": str(config_file)}
    assert "canary" not in out
    assert len(out.splitlines()) == 1


def test_config_check(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A usable configuration is said to be one; what may surprise is a warning on stderr."""
    toml = config_file.read_text().replace('"ssl.key.password"', "# ") + "call_timeout_s = 100\n"
    config_file.write_text(toml)
    assert main(["config", "check", "--config", str(config_file)]) == 0
    out, err = capsys.readouterr()
    assert out == "the configuration is usable\n"
    assert "upstreams.openai.call_timeout_s (100) is longer than worker.drain_s (75)" in err
    assert main(["config", "check", "--config", str(config_file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.1", 1), ("localhost", 1), ("[::1]", 1), ("10.1.2.3", 1), ("api.example", 0)])
def test_config_check_warns_of_addresses_that_no_call_reaches(
    host: str, expected: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A private callee without allow_private is seen before every request dies of it."""
    path = tmp_path / "dispatcher.toml"
    path.write_text(f'[upstreams.u]\nbase_url = "http://{host}:8080/v1"\n')
    assert main(["config", "check", "--config", str(path)]) == 0
    assert capsys.readouterr().err.count("u.allow_private = true") == expected
    path.write_text(f'[upstreams.u]\nbase_url = "http://{host}:8080/v1"\nallow_private = true\n')
    assert main(["config", "check", "--config", str(path)]) == 0
    assert "allow_private" not in capsys.readouterr().err


def test_config_check_resolves_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A secret that a worker could not have is found here."""
    file = tmp_path / "d.toml"
    file.write_text('[credentials.team-a]\nvalue_env = "NO_SUCH_VARIABLE"\n')
    assert main(["config", "check", "--config", str(file)]) == 2
    assert "credential team-a: the variable NO_SUCH_VARIABLE is not set" in capsys.readouterr().err


def test_settings_load_once_and_take_a_commands_own_flags(tmp_path: Path) -> None:
    """A command puts its options into `flags`; a file that changes under a running command does not change it."""
    file = tmp_path / "d.toml"
    file.write_text('[worker]\ngroup = "one"\n')
    options = Options(config=file, verbose=1, flags={"worker.slot": "s"})
    first = options.settings()
    file.write_text('[worker]\ngroup = "two"\n')
    assert options.settings() is first
    assert (first.worker.group, first.worker.slot, first.logs.level) == ("one", "s", "debug")
    assert Options(quiet=True).settings().logs.level == "warning"


def test_the_error_path_knows_secrets_from_files(config_file: Path) -> None:
    """After loading, every secret that can be had is kept out of errors."""
    options = Options(config=config_file)
    options.settings()
    assert {CANARY, f"Bearer {CANARY}"} == set(options.secrets())
    assert exits.exit_code(CallFailed("x"), options) == 1


def test_only_what_may_be_a_secret_is_masked(seen: Seen, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint stays readable though a known plain property has a word of it; what is not known to be plain is masked."""
    monkeypatch.setattr("dispatcher.cli.app", seen.app)
    seen.failure = BrokerError("no", f"broker, kafka:9092, my-client and {CANARY}")
    plain = ["-X", "debug=broker", "-X", "bootstrap.servers=kafka:9092", "-X", "client_id=my-client"]
    assert main(["look", *plain, "-X", f"sasl.pasword={CANARY}"]) == 3
    assert capsys.readouterr().err.endswith("hint: broker, kafka:9092, my-client and ***\n")


def test_v_lets_librdkafka_speak(capsys: pytest.CaptureFixture[str]) -> None:
    """With -v its lines come out as ours do, on stderr and masked; without it a command is quiet."""
    try:
        options = Options(verbose=1, properties=[f"sasl.password={CANARY}"])
        options.settings()
        logs.kafka_logger().warning("%s [%s] %s", "FAIL", "rdkafka#producer-1", CANARY)
    finally:
        logs.configure(Settings())
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (line["event"], line["message"]) == ("kafka_client", "***")


def process(*arguments: str) -> subprocess.Popen[str]:
    """Start the real program."""
    line = [sys.executable, "-m", "dispatcher", *arguments]
    return subprocess.Popen(line, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_python_m_dispatcher() -> None:
    """The module is the program."""
    with process("version") as running:
        out, err = running.communicate(timeout=PROCESS_S)
    assert (running.returncode, err) == (0, "")
    assert out.startswith("dispatcher ")


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`dispatcher … | head -0`: quiet, and not a success."""
    read, write = os.pipe()
    os.close(read)
    line = [sys.executable, "-m", "dispatcher", "config", "show"]
    ended = subprocess.run(line, stdout=write, stderr=subprocess.PIPE, text=True, timeout=PROCESS_S, check=False)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_version_loads_no_client_library() -> None:
    """A command that needs nothing starts fast: no client library is loaded for it."""
    slow = ("confluent_kafka", "aiohttp", "httpx", "structlog")
    code = f"import sys; from dispatcher.cli import main; main(['version']); print([m for m in {slow} if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PROCESS_S, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
