"""`nats-transform map`: what one transform makes of subjects, as `nats server mapping` shows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import click

from cli.command import Command, end, form_of, output
from cli.command import command as cli_command
from cli.output import print_json, print_line, print_subject
from jobs.settings.base import Seed, Settings, setting
from nats_transform.errors import InvalidTransform, printable, sentence
from nats_transform.mappings.draw import mapping_key, message_entropy
from nats_transform.mappings.mapping import EMPTY_RESULT, Fate
from nats_transform.mappings.subject import EMPTY_TOKEN, SEPARATOR, decode, literal_fault
from nats_transform.mappings.transform import Transform


class MapCommand(Command):
    """A command whose arguments may start with one dash, as subjects do: `-abc-def`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["-h"]:  # elsewhere it may be a subject
            args = ["--help"]
        known = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        for arg in args:
            if arg == "--":
                break
            name = arg.partition("=")[0]
            # ignore_unknown_options lets subjects through; a mistyped option is still one.
            if name.startswith("--") and name not in known:
                raise click.NoSuchOption(name, ctx=ctx)
        return super().parse_args(ctx, args)


class MapSettings(Settings):
    """A transform, and subjects to try."""

    source: str = setting(..., "The subjects that are transformed.", is_argument=True)
    destination: str = setting(..., "What they become.", is_argument=True)
    subjects: tuple[str, ...] = setting(
        (), "The subjects to try.", is_argument=True, metavar="[SUBJECT]..."
    )
    seed: Seed = setting(
        0, "The seed for all draws of random(). The same seed gives the same results."
    )


@cli_command(
    "map",
    MapSettings,
    output(json="subject, mapped_subject, fate, reason; for each subject."),
    cls=MapCommand,
    # -h may start a subject; as the first argument it asks for help.
    context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
    exit_codes="0 every subject matches; 1 some subject does not match, or its result is not a "
    "legal subject; 2 nats-server refuses the transform.",
)
def command(settings: MapSettings, asked: Settings) -> None:
    """Print what each SUBJECT becomes under the transform SOURCE to DESTINATION.

    With `-` as SUBJECT the command reads subjects from standard input, one per line. Without
    a subject it only checks the transform; on a terminal it asks for subjects. Write `--` before a
    subject that starts with `--`. For a subject that does not match it prints an empty line, so
    that line N of the output belongs to line N of the input. An empty line is no legal subject.

    \b
    Examples:
      nats-transform map 'bar.*.*' 'baz.$2.$1' bar.a.b
      nats-transform map '*' '{{split(1,-)}}' foo-bar
      nats-transform map 'orders.*' 'orders.$1.{{partition(8,1)}}' - < subjects.txt
    """
    transform = _transform(settings.source, settings.destination)
    if not settings.subjects:
        subjects_of = _asked() if sys.stdin.isatty() else iter(())
        if not sys.stdin.isatty():
            print_line(
                "the transform is legal; give - as SUBJECT to read subjects from stdin", err=True
            )
    else:
        subjects_of = _given(settings.subjects)
    fine = True
    for number, subject in enumerate(subjects_of, start=1):
        entropy = message_entropy(None, number, mapping_key(settings.seed, transform.source))
        result = map_subject(transform, subject, entropy)
        fine = fine and result.reason is None
        if form_of(asked) == "json":
            print_json(asdict(result))
            continue
        print_subject(result.mapped_subject or "")
        if result.reason:
            print_line(f"{printable(subject)}: {result.reason}", err=True)
    end(is_fine=fine)


def _transform(source: str, destination: str) -> Transform:
    try:
        return Transform(source, destination)
    except InvalidTransform as error:
        if "" not in destination.split(SEPARATOR):
            raise
        cure = "if it had a $1, the shell replaced it: put the destination in single quotes"
        raise click.ClickException(sentence("map-not-utf8", reason=error, cure=cure)) from error


@dataclass(frozen=True)
class MapResult:
    """What the transform makes of one subject.

    Attributes:
        subject: the subject.
        mapped_subject: the new subject; null if the transform gives none.
        fate: mapped, unmatched or invalid.
        reason: why the fate is not mapped, or the new subject is not legal; otherwise null.
    """

    subject: str
    mapped_subject: str | None
    fate: Fate
    reason: str | None


def map_subject(transform: Transform, subject: str, entropy: int) -> MapResult:
    """What the transform makes of a subject, with the entropy of its message."""
    mapped = transform.apply(subject, entropy)
    if mapped is None:
        if fault := literal_fault(subject):
            return MapResult(subject, None, Fate.INVALID, f"not a legal subject: {fault}")
        reason = f"does not match {printable(transform.source)}"
        return MapResult(subject, None, Fate.UNMATCHED, reason)
    fault = literal_fault(mapped)
    if fault == EMPTY_TOKEN:
        return MapResult(subject, mapped, Fate.INVALID, EMPTY_RESULT)
    reason = f"not a legal subject: {fault}; nats-server delivers it all the same"
    return MapResult(subject, mapped, Fate.MAPPED, reason if fault else None)


def _given(subjects: Iterable[str]) -> Iterator[str]:
    for subject in subjects:
        if subject == "-":
            yield from _lines()
        else:
            yield subject


def _lines() -> Iterator[str]:
    for line in sys.stdin.buffer:
        yield decode(line.rstrip(b"\r\n"))


def _asked() -> Iterator[str]:
    print_line("Subjects to try; an empty one ends. Nothing is sent to a server.", err=True)
    while subject := click.prompt("Subject", default="", show_default=False, err=True):
        yield subject
