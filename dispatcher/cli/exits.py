"""How a command line ends: what was raised becomes one sentence with a hint on stderr, and the exit code that SURFACE promises."""

from __future__ import annotations

import os
import sys
import traceback

import typer

from dispatcher.cli.app import Options
from dispatcher.core.redaction import Redactor
from dispatcher.errors import ConfigError, DispatcherError

INTERRUPTED = 130
# The reader of our output went away (`| head`): quiet, but not 0, since not everything was delivered.
READER_GONE = 1


def exit_code(failure: BaseException, options: Options) -> int:
    """Say what went wrong and give the exit code. What is printed passes the redaction, tracebacks included."""
    if options.interrupted or isinstance(failure, KeyboardInterrupt | typer.Abort):
        return INTERRUPTED
    if isinstance(failure, BrokenPipeError):
        _silence()
        return READER_GONE
    sentence = _known(failure, options)
    redact = Redactor(options.secrets())
    if sentence is None:
        sentence = DispatcherError(f"internal error: {_place(failure)}", "run it again with -v for the traceback, and report it")
    if options.verbose and not isinstance(failure, DispatcherError | typer.TyperException):
        _say(redact("".join(traceback.format_exception(failure)).rstrip()))
    _say(redact(f"error: {sentence.message}"))
    if sentence.hint:
        _say(redact(f"hint: {sentence.hint}"))
    return sentence.exit_code


def _known(failure: BaseException, options: Options) -> DispatcherError | None:
    """Turn what we know into a sentence: our own errors, wrong usage, Kafka's. None: a bug of ours."""
    if isinstance(failure, DispatcherError):
        return failure
    if isinstance(failure, typer.TyperException):
        return _usage(failure)
    # Only a program that has loaded the client can have been failed by it; loading it here would slow
    # every command down.
    if "confluent_kafka" not in sys.modules:
        return None
    from confluent_kafka import KafkaException

    if not isinstance(failure, KafkaException):
        return None
    from dispatcher.adapters.kafka.faults import Complaints

    return Complaints(options.loaded().settings).fault(failure, "talking to Kafka")


def _usage(failure: typer.TyperException) -> DispatcherError:
    """Word a usage error: Click's text as one sentence, and which help explains it."""
    context = getattr(failure, "ctx", None)
    command = context.command_path if context is not None else "dispatcher"
    # Pydantic's kind of error, which typer passes on: nobody else has to know of it.
    text = " ".join(failure.format_message().split()).rstrip(".").replace(": Value error, ", ": ", 1)
    wrong = ConfigError if failure.exit_code == ConfigError.exit_code else DispatcherError
    return wrong(text[:1].lower() + text[1:], f"{command} --help")


def _place(failure: BaseException) -> str:
    """Name the kind of an unexpected exception and where it came from. Its own text may hold anything, a secret too."""
    frames = traceback.extract_tb(failure.__traceback__)
    where = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""  # noqa: PTH119 - a frame's name need not be a path
    return f"{type(failure).__name__}{where}"


def _say(text: str) -> None:
    """Write to stderr; when nobody reads that either, there is nobody to tell."""
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - this is the one place that speaks to the person
    except BrokenPipeError:
        _silence()


def _silence() -> None:
    """Point our output at nothing, so that Python's own flush at exit does not complain about the reader that went away."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(nothing, stream.fileno())
