"""Makes command-line flags from the fields of dataclasses.

A settings class is a frozen dataclass with the base class `Settings`. `field` makes its
fields and declares their ranges. `define` declares one absl flag for each field, and
`read` builds an object of the class from the parsed flags. `run` runs a command,
handles --help, and prints a user's mistake as one line. Only this module imports absl's
flags.
"""

import csv
import dataclasses
import inspect
import io
import itertools
import json
import math
import operator
import os
import re
import sys
import textwrap
import traceback
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from absl import app, flags

from albert_tf.errors import EXIT_STATUS, InputError, wrap_read

# Without this call, absl would count all flags as flags of this module, not of the
# modules that call `define` or `run`.
flags.disclaim_key_flags()

# The settings classes of the running command, for --help.
_defined: list[type] = []
# {absl's name of a type: (name of its values in --help, name in usage errors)}.
_TYPES = {
    "int": ("INTEGER", "an integer"),
    "float": ("NUMBER", "a number"),
    "bool": ("", "true or false"),
    "string": ("TEXT", "a text"),
    "comma separated list of strings": ("TEXT,...", "texts between commas"),
}
_COLUMNS = 80  # the width of --help
# {name of a bound in `field`: comparison of the value with the bound}.
_BOUNDS: Mapping[str, Callable] = {
    "at_least": operator.ge,
    "above": operator.gt,
    "at_most": operator.le,
    "below": operator.lt,
}
# {flag of every command: its description}, for --help.
_COMMON = {
    "--config=FILE": "JSON file to read flags from, such as a run's run.json. The "
    "command line has priority.",
    "--flagfile=FILE": "File to read flags from, one per line.",
    "--verbosity=INTEGER": "Log level of the libraries: 0 for all messages, including "
    "TensorFlow's; -1 for warnings; -2 for errors. To get only TensorFlow's messages, "
    "set TF_CPP_MIN_LOG_LEVEL in the environment. (default: -1)",
    "--help, --helpfull": "Print this text; --helpfull also prints absl's flags.",
}
# The folder of the recipes: flagfiles that are part of the package.
_RECIPES = Path(__file__).parent / "recipes"

_S = TypeVar("_S")


def field(default: Any = dataclasses.MISSING, **metadata: Any) -> Any:
    """Declares one setting of a settings class.

    The docstring of the class describes the setting under `Args:`, for --help. A
    subclass can redefine a field with `field`; the new field inherits the description
    and the metadata that it does not override. A subclass that assigns a plain value to
    the name changes only the default.

    Args:
        default: the value if the flag is not given. Without a default, the flag is
            required.
        **metadata: other properties, by name.

            - `alias`: a second name of the flag.
            - `excludes`: other settings that cannot be given together with this one.
              If this one is on the command line, values of the others in a flagfile or
              --config are dropped.
            - `requires`: other settings. If this one is given, at least one of the
              others must also be given.
            - `at_least`, `above`, `at_most`, `below`: bounds of a number. The number
              must be finite; None is also valid.
            - `may_be_empty`: whether the flag of a list can be given without a value.
    """
    # The key "help" marks a flag. `Settings` sets its value to the description.
    return dataclasses.field(default=default, metadata={"help": "", **metadata})


class Settings:
    """Base class of the settings classes; checks the values of their fields.

    Raises:
        InputError: a value is out of range, two settings exclude each other, or a
            setting is given without one that it requires.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Adds descriptions and inherited metadata to the fields of a subclass.

        Python calls this method before `dataclasses.dataclass` reads the fields.
        """
        super().__init_subclass__(**arguments)
        # The fields of the base classes; `dataclass` has not yet added the fields that
        # `cls` itself declares.
        bases: dict[str, dataclasses.Field] = getattr(cls, "__dataclass_fields__", {})
        descriptions = _read_args(cls.__doc__ or "")
        for name, item in list(vars(cls).items()):
            inherited = bases[name].metadata if name in bases else {}
            if not isinstance(item, dataclasses.Field):
                if "help" not in inherited:
                    continue  # a method, or an attribute that is not a flag
                item = dataclasses.field(default=item)  # a plain value is a new default
                setattr(cls, name, item)
            metadata = {**inherited, **item.metadata}
            if "help" in metadata:
                help = descriptions.get(name) or inherited.get("help")
                if not help:
                    raise TypeError(f"{cls.__name__} must describe {name} under Args:")
                metadata["help"] = help
            item.metadata = types.MappingProxyType(metadata)

    def __post_init__(self) -> None:
        """Checks the values of the fields; subclasses add checks."""
        items = fields(type(self))
        for item in items:
            value = getattr(self, item.name)
            expected = _find_expected_range(value, item.metadata)
            if expected:
                raise InputError(f"--{item.name}={value}: must be {expected}")
        # {setting: its flag as text}; "" if the setting is not given.
        texts = {item.name: self._as_flag(item) for item in items}
        for item in items:
            text = texts[item.name]
            if not text:
                continue
            for other in item.metadata.get("excludes", ()):
                if texts[other]:
                    raise InputError(f"{text} and {texts[other]}: give one of them")
            required = item.metadata.get("requires", ())
            if required and not any(getattr(self, other) for other in required):
                raise InputError(f"{text}: requires --{' or --'.join(required)}")

    def _as_flag(self, item: dataclasses.Field) -> str:
        """Returns a setting as --name=value; "" if it is not given.

        A value that is the default, None, False or "" counts as not given.
        """
        value = getattr(self, item.name)
        # Google's notebooks for ALBERT pass --name= for a flag that is not given.
        if value is None or value is False or value in ("", item.default):
            return ""
        text = ",".join(value) if isinstance(value, tuple) else value
        return f"--{item.name}" if value is True else f"--{item.name}={text}"


def _read_args(docstring: str) -> dict[str, str]:
    """Returns the descriptions under `Args:` of a docstring, by name."""
    _, _, section = inspect.cleandoc(docstring).partition("\nArgs:\n")
    entries = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _find_expected_range(value: Any, metadata: Mapping[str, Any]) -> str:
    """Returns the expected range, such as "at least 1", if a value is not in it.

    Returns "" if the value is in the range. None is in every range, and an infinite
    value or NaN is in no range.

    Args:
        value: the value of a setting.
        metadata: the metadata of its field.
    """
    bounds = {name: metadata[name] for name in _BOUNDS if name in metadata}
    if value is None or not bounds:
        return ""
    is_finite = math.isfinite(value)
    if is_finite and all(_BOUNDS[name](value, bounds[name]) for name in bounds):
        return ""
    texts = [f"{name.replace('_', ' ')} {limit}" for name, limit in bounds.items()]
    return " and ".join(texts if is_finite else ["finite", *texts])


def fields(settings: Any) -> list[dataclasses.Field]:
    """Returns the fields of a settings class that `field` has made: the flags."""
    return [item for item in dataclasses.fields(settings) if "help" in item.metadata]


def values(settings: Settings) -> dict[str, Any]:
    """Returns the values of the fields that are flags, by name."""
    return {item.name: getattr(settings, item.name) for item in fields(settings)}


def define(settings: type) -> None:
    """Declares one absl flag per field of a settings class.

    Args:
        settings: a dataclass whose fields are bool, int, float, str, `Literal[...]`,
            `tuple[str, ...]` (comma-separated on the command line), or one of these
            with `| None`. Only fields made with `field` become flags.
    """
    _defined.append(settings)
    annotations = typing.get_type_hints(settings)
    for item in fields(settings):
        # `read` raises an error if a required flag is still None.
        default = None if _is_required(item) else item.default
        _define_one(item.name, annotations[item.name], default, item.metadata["help"])
        if "alias" in item.metadata:
            flags.DEFINE_alias(
                item.metadata["alias"], item.name, flag_values=flags.FLAGS
            )


def _undefine() -> None:
    """Removes the flags of all defined settings classes from absl."""
    for item in _list_defined_fields():
        for name in (item.name, item.metadata.get("alias", "")):
            if name in flags.FLAGS:
                delattr(flags.FLAGS, name)
    _defined.clear()


def _list_defined_fields() -> list[dataclasses.Field]:
    """Returns the fields of all settings classes of the command."""
    return [item for settings in _defined for item in fields(settings)]


def read(settings: type[_S]) -> _S:
    """Builds a settings object from the parsed flags.

    Raises:
        InputError: a required flag is not given, or the class rejects a value.
    """
    items = fields(settings)
    arguments: dict[str, Any] = {}
    for item in items:
        value = flags.FLAGS[item.name].value
        arguments[item.name] = tuple(value) if isinstance(value, list) else value
    absent = [i.name for i in items if _is_required(i) and arguments[i.name] is None]
    if absent:
        raise InputError(f"--{', --'.join(absent)}: required, see --help")
    return settings(**arguments)


def run_main(
    main: Callable[..., None],
    settings: Sequence[type] = (),
    *,
    takes_arguments: bool = False,
    text: str | None = None,
    names: Mapping[str, str] = types.MappingProxyType({}),
    argv: list[str] | None = None,
) -> None:
    """Parses the flags, calls `main`, and ends the process.

    After an `InputError`, this function prints the message as one line and exits with
    `errors.EXIT_STATUS`. With --verbosity=0, it first prints the traceback of the
    cause. After an interrupt, it exits with status 130.

    By default, TensorFlow logs nothing; --verbosity=0 or TF_CPP_MIN_LOG_LEVEL turns its
    log on. TensorFlow reads the level when it is imported, so only the body of `main`
    may import TensorFlow.

    Args:
        main: the function of the command.
        settings: the settings classes; `main` gets an object of each.
        takes_arguments: whether `main` also gets a list of the positional arguments.
        text: the description at the start of --help. Default: the docstring of the
            script.
        names: {text in --help: replacement}, for example to print the name of a command
            instead of the name of its script.
        argv: the name and the arguments of the program. Default: `sys.argv`.
    """
    if settings:
        _undefine()  # flags of an earlier command of this process
    for each in settings:
        define(each)

    def call(arguments: list[str]) -> None:
        if len(arguments) > 1 and not takes_arguments:
            raise InputError(
                f"unexpected argument {arguments[1]!r}; every setting is a flag "
                f"(--name=value), see --help"
            )
        objects: list[Any] = [read(each) for each in settings]
        main(*objects, *([arguments[1:]] if takes_arguments else []))

    def parse(arguments: list[str]) -> list[str]:
        about = text or sys.modules["__main__"].__doc__ or ""
        return _parse(arguments, about, names)

    try:
        app.run(call, argv, flags_parser=parse)
    except InputError as mistake:
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        if flags.FLAGS.is_parsed() and flags.FLAGS.verbosity >= 0 and mistake.__cause__:
            traceback.print_exception(mistake.__cause__)
        # Only one write, so that the lines of workers with the same log do not mix.
        sys.stderr.write(f"error: {mistake}\n")
        sys.exit(EXIT_STATUS)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


class _Help(flags.BooleanFlag):
    """A flag such as --help that prints the help and exits; replaces absl's flag.

    Args:
        name: the name of the flag.
        text: the description at the start of the help.
        names: see `run`.
    """

    def __init__(self, name: str, text: str, names: Mapping[str, str]):
        self._text, self._names = text, names
        short = "?" if name == "help" else None
        super().__init__(name, False, "print the flags", short, allow_override=True)

    def parse(self, argument: Any) -> None:
        """Prints the help and exits if the argument is true."""
        if self._parse(argument):
            try:
                text = _format_help(self._text, full=self.name == "helpfull")
                for name, other in self._names.items():
                    text = text.replace(name, other)
                print(text, flush=True)
            except BrokenPipeError:  # `--help | head`
                _drop_output()
            sys.exit(0)


def _drop_output() -> None:
    """Drops buffered output, which Python would try to write again at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse(arguments: list[str], text: str, names: Mapping[str, str]) -> list[str]:
    """Parses the flags, and sets the log level of the libraries.

    Args:
        arguments: the name and the arguments of the program.
        text: see `run`.
        names: see `run`.

    Returns:
        The name of the program and the arguments that are not flags.
    """
    for name in ("help", "helpshort", "helpfull", "h"):
        flags.DEFINE_flag(_Help(name, text, names))
    try:
        rest = flags.FLAGS(_expand(arguments))
    except (flags.Error, ValueError) as error:
        raise InputError(_format_usage_error(error)) from None
    except RecursionError:  # from absl's search for similar names
        raise InputError("a name of a flag is too long; see --help") from None
    _overrule_flagfiles(arguments)
    verbosity = flags.FLAGS["verbosity"]
    if verbosity.using_default_value:
        # -1 logs only warnings and errors. absl's default, 0, logs all messages.
        flags.FLAGS.verbosity = -1
    if verbosity.value < 0:
        # 3 also hides errors, because TensorFlow logs a missing GPU as an error.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    else:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
    return rest


def _expand(arguments: list[str]) -> list[str]:
    """Replaces --config and --flagfile by the flags in their files.

    The flags of --config come first, so all other flags override them. If the path of a
    flagfile is recipes/NAME.flags and there is no such file, the recipe of the package
    with this name is used. A space may separate a boolean flag from its value.

    Args:
        arguments: the name and the arguments of the program.
    """
    # The flags of --config go to `result`, all other arguments to `others`.
    result, others = arguments[:1], list[str]()
    for argument in arguments[1:]:
        name, _, value = argument.partition("=")
        if name in ("--config", "-config"):
            result += _read_config(value)
            continue
        # `value` names a recipe of the package if it is recipes/NAME.flags.
        recipe = _RECIPES.parent / value
        is_recipe = recipe.parent == _RECIPES and recipe.is_file()
        is_flagfile = name in ("--flagfile", "-flagfile")
        if is_flagfile and is_recipe and not os.path.exists(value):
            argument = f"{name}={recipe}"
        previous = others[-1].lstrip("-") if others and others[-1][:1] == "-" else ""
        # The argument may be the value of a boolean flag before it.
        is_boolean = previous in flags.FLAGS and flags.FLAGS[previous].boolean
        if is_boolean and argument.lower() in ("true", "false", "1", "0"):
            others[-1] += f"={argument}"
        else:
            others.append(argument)
    items = _list_defined_fields()
    may_be_empty = {f"--{i.name}" for i in items if i.metadata.get("may_be_empty")}
    for index, argument in enumerate(others):
        has_value = index + 1 < len(others) and others[index + 1][:1] != "-"
        if argument in may_be_empty and not has_value:
            others[index] += "="  # absl expects --name= if there is no value
    lines = flags.FLAGS.read_flags_from_files(others, force_gnu=False)
    # `lines` has the arguments in `others` and the lines of flagfiles. Only the lines
    # of flagfiles need parsing.
    for line in lines:
        result += [line] if line in others else _parse_flag_line(line)
    return result


def _parse_flag_line(line: str) -> list[str]:
    """Returns a line of a flagfile as --name=value for absl; [] for a comment."""
    line = line.removeprefix("\ufeff")
    if not line or line.startswith(("#", "//")):
        return []
    parts = line.split(None, 1)
    # A space may separate the name and the value.
    has_space = len(parts) == 2 and line.startswith("-") and "=" not in parts[0]
    return ["=".join(parts) if has_space else line]


def _read_config(path: str) -> list[str]:
    """Returns the flags of a JSON file as --name=value.

    The file is an object {name: value}, or the `run.json` that a run writes, with this
    object under the key "flags".
    """
    with wrap_read(path, "a JSON object of flags"):
        content = json.loads(Path(path).read_text("utf-8"))
        items = dict(content.get("flags", content)).items()
    return [f"--{name}={_as_text(v)}" for name, v in items if v is not None]


def _as_text(value: Any) -> str:
    """Returns a JSON value as text for a flag; a list becomes a line of CSV."""
    if not isinstance(value, list):
        return value if isinstance(value, str) else json.dumps(value)
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(value)
    return line.getvalue()


def _overrule_flagfiles(arguments: list[str]) -> None:
    """Resets the flags from files that flags on the command line exclude."""
    cli_names = {argument.lstrip("-").partition("=")[0] for argument in arguments[1:]}
    items = _list_defined_fields()
    # {setting: the name and the alias of its flag}.
    names = {item.name: {item.name, item.metadata.get("alias")} for item in items}
    for item in items:
        for other in item.metadata.get("excludes", ()):
            if names[item.name] & cli_names and not names[other] & cli_names:
                flags.FLAGS[other].unparse()  # back to the default


def _format_usage_error(error: Exception) -> str:
    """Returns an error of absl in one line with the flag and the expected value."""
    text, cause = " ".join(str(error).split()), error.__context__
    if isinstance(cause, OSError):
        return f"--flagfile={cause.filename}: {cause.strerror}"
    if isinstance(error, UnicodeDecodeError):
        return "--flagfile: not UTF-8; each line must be a flag"
    match = re.match(r"flag (--(\w+)=.*)", text)
    if not match:  # an unknown name, or a missing value
        return text
    _, kind = _describe_type(flags.FLAGS[match[2]].parser)
    return f"{match[1].removesuffix(f': {cause}')}: must be {kind}"


def _format_help(text: str, full: bool) -> str:
    """Returns the description of a command and its flags, 80 columns wide.

    Args:
        text: the description.
        full: whether to add the flags of absl.
    """
    parts = [inspect.cleandoc(text)]
    groups = itertools.chain.from_iterable(map(_group_fields, _defined))
    for group, items in groups:
        title = (group.__doc__ or "").split("\n")[0].rstrip(".")
        parts.append("\n".join([f"{title}:", *map(_format_entry, items)]))
    common = [_format_paragraph(*item) for item in _COMMON.items()]
    parts.append("\n".join(["All commands:", *common]))
    if full:
        modules = flags.FLAGS.flags_by_module_dict()
        for module in sorted(name for name in modules if name.startswith("absl")):
            lines = (f"  --{flag.name}: {flag.help}" for flag in modules[module])
            parts.append("\n".join([f"{module}:", *lines]))
    return "\n\n".join(parts)


def _group_fields(settings: type) -> Iterator[tuple[type, list[dataclasses.Field]]]:
    """Yields a class and its bases, each with the fields that it introduces.

    The fields come from `settings`, which may redefine fields of a base class.
    """
    # If several classes annotate a field, the last of them in `__mro__` introduces it;
    # the others redefine it.
    introducers: dict[str, type] = {}
    for group in settings.__mro__:
        introducers |= dict.fromkeys(vars(group).get("__annotations__", ()), group)
    for group in settings.__mro__:
        items = [i for i in fields(settings) if introducers[i.name] is group]
        if items:
            yield group, items


def _describe_type(parser: flags.ArgumentParser) -> tuple[str, str]:
    """Returns the name of a flag's values in --help, and their name in usage errors."""
    if isinstance(parser, flags.EnumParser):
        return "|".join(parser.enum_values), f"one of {', '.join(parser.enum_values)}"
    return _TYPES.get(parser.flag_type(), ("", ""))


def _format_entry(item: dataclasses.Field) -> str:
    """Returns the entry of a flag in --help: name, description and default."""
    flag = flags.FLAGS[item.name]
    value, _ = _describe_type(flag.parser)
    head = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}={value}"
    default = (flag.default_as_str or "").strip("'")
    notes = [f"default: {default}"] if default else []
    if "alias" in item.metadata:
        notes.append(f"also --{item.metadata['alias']}")
    if _is_required(item):
        notes = ["required"]
    note = f" ({'; '.join(notes)})" if notes else ""
    return _format_paragraph(head, item.metadata["help"] + note)


def _format_paragraph(head: str, text: str) -> str:
    """Returns a heading line, and a text below it, indented and wrapped."""
    lines = textwrap.wrap(
        text, _COLUMNS - 6, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join([f"  {head}", *(f"      {line}" for line in lines)])


def _is_required(item: dataclasses.Field) -> bool:
    """Whether a flag has no default."""
    return item.default is dataclasses.MISSING


def _define_one(name: str, hint: Any, default: Any, help: str) -> None:
    """Declares an absl flag for a field.

    Args:
        name: the name of the flag.
        hint: the type of the field, see `define`.
        default: the default; None if the flag is required.
        help: the description.
    """
    # The type of `Literal[...] | None` is typing.Union, not types.UnionType.
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is typing.Literal:
        flags.DEFINE_enum(name, default, list(typing.get_args(hint)), help, flags.FLAGS)
    elif typing.get_origin(hint) is tuple:
        values = None if default is None else list(default)
        flags.DEFINE_list(name, values, help, flags.FLAGS)
    else:
        define_flag = {
            bool: flags.DEFINE_bool,
            int: flags.DEFINE_integer,
            float: flags.DEFINE_float,
            str: flags.DEFINE_string,
        }[hint]
        define_flag(name, default, help, flag_values=flags.FLAGS)
