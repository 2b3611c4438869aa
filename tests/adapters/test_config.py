"""Settings: precedence, spellings, and errors that name everything but the value."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dispatcher.adapters.config import Loaded, describe, known_secrets, load, load_with_sources, resolve_secrets
from dispatcher.errors import ConfigError
from dispatcher.librdkafka import RESERVED_PROPERTIES
from dispatcher.settings import Settings

CANARY = "sk-canary-7fQ2/+x=9"

UPSTREAM = """
[upstreams.openai]
base_url = "https://api.openai.com/v1"
"""


class Given:
    """The four sources of one test; `toml` is written to a file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def loaded(
        self,
        toml: str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        properties: Sequence[str] = (),
        flags: Mapping[str, Any] | None = None,
    ) -> Loaded:
        """Load from what is given."""
        file = None
        if toml is not None:
            file = self.directory / "d.toml"
            file.write_text(toml)
        return load_with_sources(file=file, flags=flags or {}, properties=properties, environ=environ or {})

    def settings(self, *arguments: Any, **named: Any) -> Settings:
        """Load the settings alone."""
        return self.loaded(*arguments, **named).settings

    def refused(self, *arguments: Any, **named: Any) -> str:
        """Give the sentence and the hint with which it is refused."""
        with pytest.raises(ConfigError) as caught:
            self.loaded(*arguments, **named)
        assert caught.value.exit_code == 2
        assert caught.value.__cause__ is None, "a chained pydantic error would print its input"
        return str(caught.value)


@pytest.fixture
def given(tmp_path: Path) -> Given:
    """Sources with their own directory."""
    return Given(tmp_path)


def property_of(settings: Settings, name: str) -> str | None:
    """Look a Kafka property up."""
    value = settings.kafka.properties.get(name)
    return None if value is None else value.get_secret_value()


def test_later_sources_cover_earlier_ones(given: Given) -> None:
    """Flag > -X > environment > file > default, for one setting that all four can set."""
    layers: list[dict[str, Any]] = [
        {"flags": {"kafka.bootstrap_servers": "flag:1"}},
        {"properties": ["bootstrap.servers=x:1"]},
        {"environ": {"DISPATCHER_KAFKA__BOOTSTRAP_SERVERS": "env:1"}},
        {"toml": '[kafka]\nbootstrap_servers = "file:1"\n'},
        {},
    ]
    expected = ["flag:1", "x:1", "env:1", "file:1", "localhost:9092"]
    for first, servers in enumerate(expected):
        merged = {key: value for layer in layers[first:] for key, value in layer.items()}
        assert servers == given.settings(**merged).kafka.bootstrap_servers


def test_one_value_of_a_layer_leaves_the_others_below(given: Given) -> None:
    """Layers cover value by value, not table by table."""
    toml = UPSTREAM + "attempts_max = 7\ncall_timeout_s = 5\n"
    settings = given.settings(toml, environ={"DISPATCHER_UPSTREAMS__openai__ATTEMPTS_MAX": "2"})
    assert (2, 5.0) == (settings.upstreams["openai"].attempts_max, settings.upstreams["openai"].call_timeout_s)


def test_load_gives_the_settings_alone(tmp_path: Path) -> None:
    """`load` is `load_with_sources` without the sources."""
    assert load(file=None, flags={"worker.slot": "s"}, properties=[], environ={}).worker.slot == "s"


def test_a_slot_that_is_given_is_a_name_in_the_group(given: Given) -> None:
    """From wherever it comes. The default one never comes back: Kafka would wait for it."""
    assert None is given.settings().worker.instance_id
    assert "s" == given.settings('[worker]\nslot = "s"\n').worker.instance_id
    assert "s" == given.settings(environ={"DISPATCHER_WORKER__SLOT": "s"}).worker.instance_id
    assert "s" == given.settings(flags={"worker.slot": "s"}).worker.instance_id


def test_nothing_is_kept_for_a_worker_without_a_slot(given: Given) -> None:
    """It would not be known again."""
    assert "keep" == given.settings('[worker]\nslot = "s"\non_stop = "keep"\n').worker.on_stop
    with pytest.raises(ConfigError, match="slot"):
        given.settings('[worker]\non_stop = "keep"\n')


@pytest.mark.parametrize(
    ("toml", "name"),
    [
        ('sasl_password = "p"', "sasl.password"),
        ('"sasl.password" = "p"', "sasl.password"),
        ('log_level = "p"', "log_level"),
    ],
)
def test_kafka_properties_in_a_file(given: Given, toml: str, name: str) -> None:
    """Underscores stand for dots, quoted dotted names work; the one property with an underscore of its own keeps it."""
    assert property_of(given.settings(f"[kafka]\n{toml}\n"), name) == "p"


def test_numbers_and_truth_become_the_text_that_librdkafka_reads(given: Given) -> None:
    """`socket_timeout_ms = 1000` and `… = true` need no quotes."""
    settings = given.settings("[kafka]\nsocket_timeout_ms = 1000\nsocket_keepalive_enable = true\n")
    assert property_of(settings, "socket.timeout.ms") == "1000"
    assert property_of(settings, "socket.keepalive.enable") == "true"


def test_an_unquoted_dotted_name_is_explained(given: Given) -> None:
    """TOML reads it as a table: the error says so, and how to write it."""
    text = given.refused(f'[kafka]\nsasl.oauthbearer.client.secret = "{CANARY}"\n')
    assert "kafka.sasl.oauthbearer.client.secret is a table" in text
    assert '"sasl.oauthbearer.client.secret" = …' in text
    assert CANARY not in text


def test_a_property_given_twice_is_refused(given: Given) -> None:
    """Two spellings of one property in one file: nobody can know which is meant."""
    assert "kafka.sasl.password is given twice" in given.refused('[kafka]\nsasl_password = "a"\n"sasl.password" = "b"\n')


@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTIES))
def test_reserved_properties_are_refused_everywhere(given: Given, name: str) -> None:
    """What carries a guarantee is refused with the reason: with dots, with underscores, by -X and by variable."""
    under = name.replace(".", "_")
    texts = [
        given.refused(f'[kafka]\n"{name}" = "1"\n'),
        given.refused(f'[kafka]\n{under} = "1"\n'),
        given.refused(properties=[f"{name}=1"]),
        given.refused(properties=[f"{under}=1"]),
        given.refused(environ={f"DISPATCHER_KAFKA__{under.upper()}": "1"}),
    ]
    assert all(name in text and "carries a guarantee" in text for text in texts)


@pytest.mark.parametrize(
    ("toml", "name", "hint"),
    [
        ("[worekr]\n", "worekr", "did you mean worker?"),
        ("[worker]\ngruop = 'x'\n", "worker.gruop", "did you mean group?"),
        (UPSTREAM + "method = ['GET']\n", "upstreams.openai.method", "did you mean methods?"),
        ("[credentials.a]\nvalue_fiel = 'x'\n", "credentials.a.value_fiel", "did you mean value_file?"),
        ("[kafka]\nboostrap_servers = 'x:1'\n", "kafka.boostrap_servers", "did you mean kafka.bootstrap_servers?"),
        ("zzz = 1\n", "zzz", ""),
    ],
)
def test_unknown_names_in_a_file(given: Given, toml: str, name: str, hint: str) -> None:
    """An unknown name, at the top or below, is an error with its full name and a suggestion."""
    text = given.refused(toml)
    assert f"{name} " in text
    assert "does not exist" in text
    assert hint in text


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("DISPATCHER_KAFAK__BOOTSTRAP_SERVERS", "did you mean DISPATCHER_KAFKA__BOOTSTRAP_SERVERS?"),
        ("DISPATCHER_KAFKA_BOOTSTRAP_SERVERS", "did you mean DISPATCHER_KAFKA__BOOTSTRAP_SERVERS?"),
        ("DISPATCHER_WORKER__GRUOP", "did you mean DISPATCHER_WORKER__GROUP?"),
        ("DISPATCHER_WORKER__GROUP__X", ""),
        ("DISPATCHER_WORKER_HTTP_PORT", "did you mean DISPATCHER_WORKER__HTTP_PORT?"),
        ("DISPATCHER_UPSTREAMS__openai__METHOD", "did you mean DISPATCHER_UPSTREAMS__openai__METHODS?"),
        ("DISPATCHER_CREDENTIALS__VALUE", ""),
        ("DISPATCHER_KAFKA__PROPERTIES", "right under kafka"),
        ("DISPATCHER_ZZZ", "two underscores"),
    ],
)
def test_unknown_variables(given: Given, variable: str, hint: str) -> None:
    """A mistyped variable is an error, at the top level too, and never ignored; its value is not shown."""
    text = given.refused(environ={variable: CANARY})
    assert variable in text
    assert hint in text
    assert CANARY not in text


def test_variables_of_kubernetes_are_not_ours(given: Given) -> None:
    """A Service named `dispatcher` puts variables with our prefix into every pod; the worker starts all the same."""
    environ = {
        "DISPATCHER_SERVICE_HOST": "10.0.0.1",
        "DISPATCHER_SERVICE_PORT": "9464",
        "DISPATCHER_SERVICE_PORT_METRICS": "9464",
        "DISPATCHER_PORT": "tcp://10.0.0.1:9464",
        "DISPATCHER_PORT_9464_TCP": "tcp://10.0.0.1:9464",
        "DISPATCHER_PORT_9464_TCP_ADDR": "10.0.0.1",
        "DISPATCHER_METRICS_SERVICE_HOST": "10.0.0.1",
    }
    assert given.settings(environ=environ).worker.http_port == 9464


@pytest.mark.parametrize(
    ("text", "methods"),
    [('["GET"]', ("GET",)), ("GET,POST", ("GET", "POST")), (" GET , POST ", ("GET", "POST")), ("[]", ())],
)
def test_lists_in_variables(given: Given, text: str, methods: tuple[str, ...]) -> None:
    """A list is JSON or separated by commas."""
    settings = given.settings(UPSTREAM, environ={"DISPATCHER_UPSTREAMS__openai__METHODS": text})
    assert methods == settings.upstreams["openai"].methods


def test_numbers_and_truth_in_variables(given: Given) -> None:
    """Text from the environment becomes what the setting is; an empty variable counts as not set."""
    environ = {
        "DISPATCHER_WORKER__INFLIGHT_MAX": "7",
        "DISPATCHER_WORKER__DRAIN_S": "1.5",
        "DISPATCHER_WORKER__GROUP": "",
        "DISPATCHER_UPSTREAMS__openai__ALLOW_PRIVATE": "yes",
    }
    settings = given.settings(UPSTREAM, environ=environ)
    assert (7, 1.5, "dispatcher") == (settings.worker.inflight_max, settings.worker.drain_s, settings.worker.group)
    assert settings.upstreams["openai"].allow_private is True


@pytest.mark.parametrize("variable", ["team-a", "TEAM_A", "TEAM-A"])
def test_a_variable_finds_the_alias_that_a_shell_cannot_spell(given: Given, variable: str) -> None:
    """`export` takes no hyphen, so TEAM_A means the file's team-a."""
    toml = '[credentials.team-a]\nvalue_env = "X"\n'
    settings = given.settings(toml, environ={f"DISPATCHER_CREDENTIALS__{variable}__HEADER": "X-Api-Key"})
    assert list(settings.credentials) == ["team-a"]
    assert settings.credentials["team-a"].header == "X-Api-Key"


def test_an_alias_in_capitals_that_nobody_has_is_a_new_one_in_small_letters(given: Given) -> None:
    """Variables are written in capitals; one with small letters in it is meant as written."""
    environ = {"DISPATCHER_UPSTREAMS__CRM__BASE_URL": "http://crm", "DISPATCHER_UPSTREAMS__Crm2__BASE_URL": "http://crm2"}
    assert sorted(given.settings(environ=environ).upstreams) == ["Crm2", "crm"]


def test_a_flag_of_a_setting_that_does_not_exist_is_an_error(given: Given) -> None:
    """A slip in a command of ours is found, not ignored."""
    assert "worker.nope does not exist (from a flag)" in given.refused(flags={"worker.nope": "x"})


def test_a_higher_layer_replaces_where_a_credential_comes_from(given: Given) -> None:
    """The file says value_file, the environment a value: the environment wins, it does not collide."""
    toml = '[credentials.team-a]\nvalue_file = "/nowhere"\n'
    settings = given.settings(toml, environ={"DISPATCHER_CREDENTIALS__team-a__VALUE": CANARY})
    assert resolve_secrets(settings, {}) == {"team-a": CANARY}
    assert "exactly one of value" in given.refused(toml + 'value_env = "X"\n')


def test_secrets_from_files_by_variable(given: Given, tmp_path: Path) -> None:
    """`…_FILE` of any secret names a file that holds it; one line end at its end is not part of it."""
    secret = tmp_path / "secret"
    secret.write_text(f"{CANARY}\n")
    environ = {
        "DISPATCHER_KAFKA__SASL_PASSWORD_FILE": str(secret),
        "DISPATCHER_LOGS__KEY_SECRET_FILE": str(secret),
        "DISPATCHER_CREDENTIALS__team-a__VALUE_FILE": str(secret),
        "DISPATCHER_KAFKA__SASL_OAUTHBEARER_ASSERTION_FILE": "/a/path",
    }
    settings = given.settings(environ=environ)
    assert property_of(settings, "sasl.password") == CANARY
    assert property_of(settings, "sasl.oauthbearer.assertion.file") == "/a/path", "a property of that name, not a file to read"
    assert settings.logs.key_secret is not None
    assert settings.logs.key_secret.get_secret_value() == CANARY
    assert resolve_secrets(settings, environ) == {"team-a": CANARY}
    both = environ | {"DISPATCHER_KAFKA__SASL_PASSWORD": "x"}
    assert "kafka.sasl.password is given twice" in given.refused(environ=both)
    gone = {"DISPATCHER_KAFKA__SASL_PASSWORD_FILE": CANARY}
    text = given.refused(environ=gone)
    assert "does not exist" in text
    assert CANARY not in text, "people put the secret itself into the …_FILE variable"


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ('[topics]\npartitions = "12"\n', "topics.partitions must be a whole number"),
        ("[worker]\nhttp_port = true\n", "worker.http_port must be a whole number"),
        ("[worker]\nhttp_port = 70000\n", "worker.http_port must be at most 65535"),
        ("[worker]\ndrain_s = 0\n", "worker.drain_s must be greater than 0"),
        ("[worker]\ndrain_s = nan\n", "worker.drain_s must be a finite number"),
        ("[worker]\nwait_max_s = inf\n", "worker.wait_max_s must be a finite number"),
        ("[worker]\ngroup = 5\n", "worker.group must be text"),
        ('[worker]\ngroup = ""\n', "worker.group must be at least one character long"),
        ('[logs]\nlevel = "loud"\n', "logs.level must be one of debug, info, warning, error"),
        (UPSTREAM + 'methods = "GET"\n', "upstreams.openai.methods must be a list of texts"),
        (UPSTREAM + "methods = [1]\n", "upstreams.openai.methods.0 must be text"),
        ('[upstreams.x]\nbase_url = "ftp://x"\n', "upstreams.x.base_url must be a URL that begins with http"),
        ('[logs]\nlevel = "loud"\n', 'for example logs.level = "debug"'),
        ("[upstreams.x]\n", "upstreams.x.base_url is missing"),
        ("[upstreams.x]\n", "write base_url = … under [upstreams.x]"),
        ("upstreams = 3\n", "upstreams must be a table"),
        ("[upstreams]\nx = 3\n", "upstreams.x must be a table"),
        ("kafka = 3\n", "kafka must be a table"),
        ("[kafka]\nsasl_password = [1]\n", "kafka.sasl.password must be text"),
        ("[classes.Fast]\n", "each name under classes must be 1 to 32 small letters"),
        ('[agents.""]\n', "each name under agents must be 1 to 200 characters long"),
        ('[upstreams."a b"]\nbase_url = "http://x"\n', "each name under upstreams must be an alias"),
        ("[credentials.a]\n", "credentials.a: needs exactly one of value"),
        ("[worker]\ndrain_s = 400\n", "worker: drain_s (400)"),
        (
            UPSTREAM + "adaptive_timeout = true\ncall_timeout_s = 9\n",
            "upstreams.openai: adaptive_timeout can do nothing where timeout_floor_s (10)",
        ),
        (UPSTREAM + "idle_timeout_s = 60\n", "upstreams.openai: idle_timeout_s (60) is not less than call_timeout_s (60)"),
        (UPSTREAM + "first_byte_timeout_s = 9\ncall_timeout_s = 8\n", "upstreams.openai: first_byte_timeout_s (9) is not less than"),
        (UPSTREAM + "idle_timeout_s = 0\n", "upstreams.openai.idle_timeout_s must be greater than 0"),
        ('[kafka.properties]\n"sasl.password" = "x"\n', "kafka.properties (from"),
    ],
)
def test_wrong_values_in_a_file(given: Given, toml: str, sentence: str) -> None:
    """One sentence: the setting, what it must be, and the file."""
    text = given.refused(toml)
    assert sentence in text
    if " must be " in sentence and "name under" not in sentence:
        assert "d.toml" in text


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("DISPATCHER_TOPICS__PARTITIONS", "many", "topics.partitions must be a whole number"),
        ("DISPATCHER_TOPICS__PARTITIONS", "0", "topics.partitions must be at least 1"),
        ("DISPATCHER_WORKER__DRAIN_S", "1m", "worker.drain_s must be a number"),
        ("DISPATCHER_UPSTREAMS__x__ALLOW_PRIVATE", "maybe", "upstreams.x.allow_private must be true or false"),
        ("DISPATCHER_UPSTREAMS__x__METHODS", "[GET", "upstreams.x.methods must be a list such as"),
    ],
)
def test_wrong_values_in_variables(given: Given, variable: str, value: str, sentence: str) -> None:
    """The sentence names the variable and not its value."""
    text = given.refused(environ={variable: value})
    assert sentence in text
    assert f"from the variable {variable}" in text


def test_wrong_values_on_the_command_line(given: Given) -> None:
    """A flag's value is checked like all others; an -X without `=` is not repeated, since half of it may be a password."""
    assert "worker.http_port must be a whole number (from a flag)" in given.refused(flags={"worker.http_port": "x"})
    for slip in (f"sasl.password {CANARY}", "sasl.password sk-canary"):
        text = given.refused(properties=[slip])
        assert "-X" in text
        assert "canary" not in text


def test_files_that_cannot_be_read(given: Given, tmp_path: Path) -> None:
    """Bad TOML names the line; a missing file, a directory and a file that is no text each have their sentence."""
    text = given.refused(f"[kafka]\nsasl_password = {CANARY}\n")
    assert "line 2" in text
    assert CANARY not in text
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for file, sentence in ((tmp_path / "none.toml", "does not exist"), (tmp_path, "cannot be read"), (binary, "is not UTF-8")):
        with pytest.raises(ConfigError, match=sentence):
            load(file=file, flags={}, properties=[], environ={})


def test_secrets_that_cannot_be_had(given: Given, tmp_path: Path) -> None:
    """The error names the alias and the variable or file; a secret with a line end inside, or none at all, is refused."""

    def refused(value: str, environ: Mapping[str, str] | None = None) -> str:
        settings = given.settings(f"[credentials.team-a]\n{value}\n")
        with pytest.raises(ConfigError) as caught:
            resolve_secrets(settings, environ or {})
        return str(caught.value)

    assert "credential team-a: the variable TEAM_A is not set" in refused('value_env = "TEAM_A"')
    assert f"credential team-a: the file {tmp_path}/none does not exist" in refused(f'value_file = "{tmp_path}/none"')
    assert "a relative path begins where one starts" in refused('value_file = "none"')
    assert "the secret is empty" in refused('value_env = "E"', {"E": " "})
    inner = refused('value_env = "E"', {"E": f"{CANARY}\r\nHost: x"})
    assert "line end" in inner
    assert CANARY not in inner
    for misplaced in (refused(f'value_env = "{CANARY}"'), refused(f'value_file = "{CANARY}"')):
        assert CANARY not in misplaced, "a secret put where its source's name belongs"


@pytest.mark.parametrize(("content", "secret"), [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a \n", "a ")])
def test_one_line_end_of_a_secret_file_is_not_part_of_it(given: Given, tmp_path: Path, content: str, secret: str) -> None:
    """Editors end files with a line end; anything else in the file belongs to the secret."""
    file = tmp_path / "secret"
    file.write_bytes(content.encode())
    settings = given.settings(f'[credentials.a]\nvalue_file = "{file}"\n')
    assert resolve_secrets(settings, {}) == {"a": secret}


def test_an_alias_that_is_not_there_does_not_repeat_what_was_written(given: Given) -> None:
    """A secret in place of its alias must not come back in the error."""
    text = given.refused(UPSTREAM + 'credentials = ["sk-canary-1"]\n[credentials.team-a]\nvalue = "x"\n')
    assert "item 1 of upstreams.openai.credentials is not in [credentials], which has team-a" in text
    assert "sk-canary-1" not in text


def test_description_names_sources_and_masks_secrets(given: Given) -> None:
    """Each value comes with where it was said; what may be a secret is masked, a mistyped property too."""
    toml = f'[kafka]\nsasl_pasword = "{CANARY}"\nsecurity_protocol = "SASL_SSL"\n[credentials.a]\nvalue = "{CANARY}"\n'
    loaded = given.loaded(toml, environ={"DISPATCHER_WORKER__GROUP": "g"}, properties=["client.id=c"], flags={"worker.slot": "s"})
    shown = {row.dotted: (row.value, row.source) for row in describe(loaded)}
    file = str(given.directory / "d.toml")
    assert shown["kafka.sasl.pasword"] == ("***", file)
    assert shown["kafka.security.protocol"] == ("SASL_SSL", file)
    assert shown["credentials.a.value"] == ("***", file)
    assert shown["worker.group"] == ("g", "DISPATCHER_WORKER__GROUP")
    assert shown["kafka.client.id"] == ("c", "-X")
    assert shown["worker.slot"] == ("s", "flag")
    assert shown["worker.inflight_max"] == (1000, "default")
    assert CANARY not in repr(describe(loaded)) + repr(loaded) + str(loaded.settings)


def test_known_secrets_are_all_that_can_be_had(given: Given, tmp_path: Path) -> None:
    """Redaction gets every secret of every source, and nothing that is none; one that cannot be read is no error."""
    file = tmp_path / "s"
    file.write_text("from-file\n")
    toml = f"""
[kafka]
sasl_password = "of-kafka"
security_protocol = "SASL_SSL"
[logs]
key_secret = "of-logs"
[credentials]
a = {{ value = "of-a" }}
b = {{ value_env = "B" }}
c = {{ value_file = "{file}" }}
d = {{ value_file = "/nowhere" }}
"""
    found = known_secrets(given.settings(toml), {"B": "of-b"})
    assert sorted(found) == ["from-file", "of-a", "of-b", "of-kafka", "of-logs"]


SECRET_PLACES: dict[str, dict[str, Any]] = {
    "file property": {"toml": f'[kafka]\n"sasl.password" = "{CANARY}"\n'},
    "file credential": {"toml": f'[credentials.a]\nvalue = "{CANARY}"\n'},
    "file key secret": {"toml": f'[logs]\nkey_secret = "{CANARY}"\n'},
    "variable property": {"environ": {"DISPATCHER_KAFKA__SASL_PASSWORD": CANARY}},
    "variable credential": {"environ": {"DISPATCHER_CREDENTIALS__a__VALUE": CANARY}},
    "-X": {"properties": [f"sasl.password={CANARY}"]},
    "flag": {"flags": {"kafka.sasl.password": CANARY}},
}
FAULTS: dict[str, dict[str, Any]] = {
    "unknown name": {"environ": {"DISPATCHER_NONE__X": CANARY}},
    "unknown field": {"environ": {"DISPATCHER_CREDENTIALS__a__VALU": CANARY}},
    "wrong type": {"environ": {"DISPATCHER_TOPICS__PARTITIONS": CANARY}},
    "wrong choice": {"environ": {"DISPATCHER_LOGS__LEVEL": CANARY}},
    "wrong shape": {"environ": {"DISPATCHER_UPSTREAMS__u__BASE_URL": CANARY}},
    "wrong list": {"environ": {"DISPATCHER_UPSTREAMS__u__METHODS": "[" + CANARY}},
    "contradiction": {"environ": {"DISPATCHER_CREDENTIALS__a__VALUE_ENV": CANARY, "DISPATCHER_CREDENTIALS__a__VALUE": CANARY}},
    "reserved": {"properties": [f"transactional.id={CANARY}"]},
    "no shape": {"properties": [CANARY.replace("=", "")]},
    "flag": {"flags": {"worker.http_port": CANARY}},
}


@pytest.mark.parametrize(("place", "fault"), list(itertools.product(SECRET_PLACES, FAULTS)))
def test_no_secret_in_any_error(given: Given, place: str, fault: str) -> None:
    """A canary from every source through every kind of error: it is in none of them."""
    merged: dict[str, Any] = {**SECRET_PLACES[place]}
    for key, value in FAULTS[fault].items():
        merged[key] = [*merged.get(key, []), *value] if key == "properties" else merged.get(key, {}) | value
    text = given.refused(**merged)
    assert "canary" not in text


@pytest.mark.parametrize("place", SECRET_PLACES)
def test_no_secret_in_any_view(given: Given, place: str) -> None:
    """The settings, their parts and their description never print a secret, whatever its source."""
    loaded = given.loaded(**SECRET_PLACES[place])
    views = [repr(loaded), str(loaded), repr(describe(loaded)), repr(loaded.settings.model_dump()), loaded.settings.model_dump_json()]
    assert not [view for view in views if "canary" in view]
    assert loaded.settings.secret_values() == [CANARY]
