"""Command-line flags declared by dataclasses, so that a setting is written once.

A settings class is a frozen dataclass whose fields are made with `field`. `define`
declares one absl flag per field, `read` builds the object from the command line, and
`run` starts a script and prints a user's mistake as one line instead of a traceback.
Only this module and the scripts import absl flags.
"""

import dataclasses
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from absl import app, flags

from albert_tf.errors import InputError

# The flags count as the script's own, so that its --help lists them.
flags.disclaim_key_flags()

Settings = TypeVar("Settings")


def field(help: str, default: Any = dataclasses.MISSING, alias: str = "") -> Any:
    """Describes one setting of a settings class.

    Args:
        help: one sentence, with the unit where there is one.
        default: value when the flag is not given; without it the flag is required.
        alias: a second spelling of the flag that sets the same value.
    """
    return dataclasses.field(default=default, metadata={"help": help, "alias": alias})


def define(settings: type, **defaults: Any) -> None:
    """Declares one absl flag per field of a settings class.

    Args:
        settings: a dataclass whose fields are bool, int, float, str, `Literal[...]`,
            `tuple[str, ...]` (comma-separated on the command line), or one of these
            `| None`.
        **defaults: defaults of this script that differ from the class's own.
    """
    hints = typing.get_type_hints(settings)
    for item in dataclasses.fields(settings):
        default = defaults.get(item.name, item.default)
        required = default is dataclasses.MISSING
        _define_one(
            item.name,
            hints[item.name],
            None if required else default,
            item.metadata["help"],
        )
        if required:
            flags.mark_flag_as_required(item.name)
        if item.metadata["alias"]:
            flags.DEFINE_alias(item.metadata["alias"], item.name)


def read(settings: type[Settings]) -> Settings:
    """Builds a settings object from the parsed flags."""
    values = {
        item.name: flags.FLAGS[item.name].value
        for item in dataclasses.fields(settings)  # type: ignore[arg-type]
    }
    return settings(
        **{key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    )


def run(main: Callable[..., None], takes_arguments: bool = False) -> None:
    """Parses the flags, calls `main`, and ends the process.

    A user's mistake (`InputError`) is printed as one line and ends with status 2; an
    interrupt ends with status 130.

    Args:
        main: the script.
        takes_arguments: whether `main` gets what is no flag, a list.
    """

    def call(arguments: list[str]) -> None:
        try:
            if takes_arguments:
                main(arguments[1:])
                return
            if len(arguments) > 1:
                raise InputError(
                    f"unexpected argument {arguments[1]!r}; every setting is a flag "
                    f"(--name=value), see --help"
                )
            main()
        except InputError as mistake:
            print(f"error: {mistake}", file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)

    app.run(call, flags_parser=_parsed)


def _parsed(arguments: list[str]) -> list[str]:
    """Parses the flags; libraries are to tell of their work with --verbosity alone."""
    rest = app.parse_flags_with_usage(arguments)
    if flags.FLAGS["verbosity"].using_default_value:
        flags.FLAGS.verbosity = -1  # warnings; the default would become 0 afterwards
    return rest


def _define_one(name: str, hint: Any, default: Any, help: str) -> None:
    # `Literal[...] | None` is a Union of the older kind.
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is typing.Literal:
        flags.DEFINE_enum(name, default, list(typing.get_args(hint)), help)
    elif typing.get_origin(hint) is tuple:
        flags.DEFINE_list(name, default and list(default), help)
    else:
        declare = {
            bool: flags.DEFINE_bool,
            int: flags.DEFINE_integer,
            float: flags.DEFINE_float,
            str: flags.DEFINE_string,
        }[hint]
        declare(name, default, help)
