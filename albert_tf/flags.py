"""Command-line flags declared by dataclasses, so that a setting is written once.

A settings class is a frozen dataclass whose fields are made with `field`. `define`
declares one absl flag per field, `read` builds the object from the command line, and
`run` starts a script: it answers --help, and prints a user's mistake as one line.
Only this module and the scripts import absl flags.
"""

import dataclasses
import difflib
import os
import re
import sys
import textwrap
import traceback
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from absl import app, flags

from albert_tf.errors import InputError

# absl takes the flags for the script's, so that a process may run several scripts.
flags.disclaim_key_flags()

# The settings classes of the script, for --help.
_defined: list[type] = []
# By absl's name of a type: how --help writes a value, and what usage errors expect.
_TYPES = {
    "int": ("INTEGER", "an integer"),
    "float": ("NUMBER", "a number"),
    "bool": ("", "true or false"),
    "string": ("TEXT", "a text"),
    "comma separated list of strings": ("TEXT,...", "texts between commas"),
}
_COLUMNS = 80

Settings = TypeVar("Settings")


def field(
    help: str,
    default: Any = dataclasses.MISSING,
    alias: str = "",
    instead_of: str = "",
) -> Any:
    """Describes one setting of a settings class.

    Args:
        help: one sentence, with the unit where there is one.
        default: value when the flag is not given; without it the flag is required.
        alias: a second spelling of the flag that sets the same value.
        instead_of: a setting that says the same otherwise. Given on the command line,
            this one takes the place of that one in a flagfile; the class refuses both.
    """
    metadata = {"help": help, "alias": alias, "instead_of": instead_of}
    return dataclasses.field(default=default, metadata=metadata)


def define(settings: type, **defaults: Any) -> None:
    """Declares one absl flag per field of a settings class.

    Args:
        settings: a dataclass whose fields are bool, int, float, str, `Literal[...]`,
            `tuple[str, ...]` (comma-separated on the command line), or one of these
            `| None`.
        **defaults: defaults of this script that differ from the class's own.
    """
    _defined.append(settings)
    hints = typing.get_type_hints(settings)
    for item in dataclasses.fields(settings):
        default = defaults.get(item.name, item.default)
        if default is dataclasses.MISSING:
            default = None  # `read` refuses it
        _define_one(item.name, hints[item.name], default, item.metadata["help"])
        if item.metadata["alias"]:
            flags.DEFINE_alias(item.metadata["alias"], item.name)


def read(settings: type[Settings]) -> Settings:
    """Builds a settings object from the parsed flags.

    Raises:
        InputError: a required flag is not given, or the class refuses a value.
    """
    items = dataclasses.fields(settings)  # type: ignore[arg-type]
    values = {item.name: flags.FLAGS[item.name].value for item in items}
    absent = [i.name for i in items if _is_required(i) and values[i.name] is None]
    if absent:
        raise InputError(f"--{', --'.join(absent)}: required, see --help")
    return settings(
        **{key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    )


def run(main: Callable[..., None], takes_arguments: bool = False) -> None:
    """Parses the flags, calls `main`, and ends the process.

    A user's mistake (`InputError`) is printed as one line and ends with status 2, with
    --verbosity=0 after the traceback of its cause; an interrupt ends with status 130.
    TensorFlow, which `main` imports and not the script, logs nothing unless
    --verbosity=0 or TF_CPP_MIN_LOG_LEVEL asks for it.

    Args:
        main: the script.
        takes_arguments: whether `main` gets what is no flag, a list.
    """

    def call(arguments: list[str]) -> None:
        if takes_arguments:
            main(arguments[1:])
            return
        if len(arguments) > 1:
            raise InputError(
                f"unexpected argument {arguments[1]!r}; every setting is a flag "
                f"(--name=value), see --help"
            )
        main()

    try:
        app.run(call, flags_parser=_parse)
    except InputError as mistake:
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        if flags.FLAGS.is_parsed() and flags.FLAGS.verbosity >= 0 and mistake.__cause__:
            traceback.print_exception(mistake.__cause__)
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


class _Help(flags.BooleanFlag):
    """Prints the script's flags and ends it; stands in the place of absl's own."""

    def __init__(self, name: str):
        short = "?" if name == "help" else None
        super().__init__(name, False, "print the flags", short, allow_override=True)

    def parse(self, argument: Any) -> None:
        """Prints them if the argument is true."""
        if self._parse(argument):
            try:
                print(_help(full=self.name == "helpfull"), flush=True)
            except BrokenPipeError:  # `--help | head`
                _drop_output()
            sys.exit(0)


def _drop_output() -> None:
    """Drops what cannot be written: Python writes it once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse(arguments: list[str]) -> list[str]:
    """Parses the flags, and sets how much the libraries log."""
    for name in ("help", "helpshort", "helpfull", "h"):
        flags.DEFINE_flag(_Help(name))
    try:
        rest = flags.FLAGS(arguments)
    except (flags.Error, ValueError) as error:
        raise InputError(_usage_error(error)) from None
    _overrule_flagfiles(arguments)
    verbosity = flags.FLAGS["verbosity"]
    if verbosity.using_default_value:
        flags.FLAGS.verbosity = -1  # warnings; the default would become 0 afterwards
    if verbosity.value < 0:  # 3: it logs as errors what is none, such as no GPU
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    else:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
    return rest


def _overrule_flagfiles(arguments: list[str]) -> None:
    """Takes back what a flagfile gives where the command line has its `instead_of`."""
    own = {argument.lstrip("-").partition("=")[0] for argument in arguments[1:]}
    items = [item for group in _defined for item in dataclasses.fields(group)]
    names = {item.name: {item.name, item.metadata["alias"]} for item in items}
    for item in items:
        other = item.metadata["instead_of"]
        if other and names[item.name] & own and not names[other] & own:
            flags.FLAGS[other].unparse()


def _usage_error(error: Exception) -> str:
    """Returns in one line what absl refuses, the flag and its value, and why."""
    text, cause = " ".join(str(error).split()), error.__context__
    if isinstance(error, flags.UnrecognizedFlagError):
        near = difflib.get_close_matches(error.flagname, flags.FLAGS, 1)
        guess = f"; did you mean --{near[0]}?" if near else ""
        return f"{error.flagvalue}: no such flag, see --help{guess}"
    if isinstance(cause, OSError):
        return (
            f"--flagfile={cause.filename}: {cause.strerror}; expected a file of flags"
        )
    if isinstance(error, UnicodeDecodeError):
        return "--flagfile: the file is not UTF-8; expected a flag a line"
    refused = re.match(r"flag (--(\w+)=.*)", text)
    if not refused:  # a value where none belongs, or none where one does
        return text
    parser = flags.FLAGS[refused[2]].parser
    expected = _TYPES.get(parser.flag_type(), ("", ""))[1]
    if isinstance(parser, flags.EnumParser):
        expected = f"one of {', '.join(parser.enum_values)}"
    return f"{refused[1].removesuffix(f': {cause}')}: expected {expected}"


def _help(full: bool) -> str:
    """Returns what the script does and its flags, 80 columns wide.

    Args:
        full: whether to add the flags of absl.
    """
    parts = [(sys.modules["__main__"].__doc__ or "").strip()]
    for settings in _defined:
        for group, items in _groups(settings):
            title = (group.__doc__ or "").split("\n")[0].rstrip(".")
            entries = [_entry(flags.FLAGS[item.name], item) for item in items]
            parts.append("\n".join([f"{title}:", *entries]))
    common = [
        ("--flagfile=FILE", "Read flags from a file, one a line."),
        (
            "--verbosity=INTEGER",
            "What libraries log: 0 all, TensorFlow's own lines included; -1 warnings "
            "of others, -2 errors. TF_CPP_MIN_LOG_LEVEL in the environment asks for "
            "TensorFlow's lines alone. (default: -1)",
        ),
        ("--help, --helpfull", "Print this; --helpfull: with the flags of absl."),
    ]
    parts.append("\n".join(["All scripts:", *(_paragraph(*item) for item in common)]))
    if full:
        modules = flags.FLAGS.flags_by_module_dict()
        for module in sorted(name for name in modules if name.startswith("absl")):
            parts.append("\n".join([f"{module}:", *map(_entry, modules[module])]))
    return "\n\n".join(parts)


def _groups(settings: type) -> Iterator[tuple[type, list[dataclasses.Field]]]:
    """Yields a class and its bases, each with the fields that it is the first to have.

    The fields are those of `settings`, which may replace a base's help and default.
    """
    final = {item.name: item for item in dataclasses.fields(settings)}
    for group in settings.__mro__:
        if dataclasses.is_dataclass(group):
            bases = filter(dataclasses.is_dataclass, group.__bases__)
            above = {item.name for base in bases for item in dataclasses.fields(base)}
            names = [item.name for item in dataclasses.fields(group)]
            yield group, [final[name] for name in names if name not in above]


def _entry(flag: flags.Flag, item: dataclasses.Field | None = None) -> str:
    kind = flag.parser.flag_type()
    value = _TYPES.get(kind, ("", ""))[0]
    if isinstance(flag.parser, flags.EnumParser):
        value = "|".join(flag.parser.enum_values)
    head = f"--[no]{flag.name}" if kind == "bool" else f"--{flag.name}={value}"
    default = (flag.default_as_str or "").strip("'")
    notes = [f"default: {default}"] if default else []
    if item is not None and item.metadata["alias"]:
        notes.append(f"also --{item.metadata['alias']}")
    if item is not None and _is_required(item):
        notes = ["required"]
    text = item.metadata["help"] if item is not None else flag.help
    return _paragraph(head, text + (f" ({'; '.join(notes)})" if notes else ""))


def _paragraph(head: str, text: str) -> str:
    return (
        textwrap.indent(head, "  ")
        + "\n"
        + textwrap.fill(
            text,
            _COLUMNS,
            initial_indent=" " * 6,
            subsequent_indent=" " * 6,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def _is_required(item: dataclasses.Field) -> bool:
    return item.default is dataclasses.MISSING


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
