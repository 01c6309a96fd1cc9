"""Adds pages to the site: README, notebooks, and a reference of names and commands.

In the files, links are relative to the checkout, as GitHub needs them. The hooks turn
them into links of the site, or of the repository if the site has no such page.
"""

import dataclasses
import inspect
import os
import re
import types
import typing
from pathlib import Path

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

import albert_tf
from albert_tf import commands, flags
from albert_tf.estimators import base
from albert_tf.tasks import registry
from albert_tf.tasks.settings.pipeline import PipelineSettings
from albert_tf.weights.settings import ModelFileSettings

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)")
CLASS = """---
title: {name}
---
::: albert_tf.{home}.{name}
    options:
      filters: ["!^_", "^__call__$"]
      heading_level: 1
      merge_init_into_class: true
      show_root_full_path: false
      show_root_heading: true
"""
MODULE = """# {name}

::: albert_tf.{home}{name}
    options: {options}
"""


def on_config(config):
    """Lists the pages of the reference in the navigation."""
    sections = {"Classes": [*albert_tf._CLASS_MODULES], "Modules": [], "Packages": []}
    for name, package in albert_tf._MODULES.items():
        sections["Modules" if package else "Packages"].append(name)
    (reference,) = (entry for entry in config.nav if "Reference" in entry)
    reference["Reference"] += [
        {title: [f"reference/{name}.md" for name in names if name != "commands"]}
        for title, names in sections.items()
    ]
    return config


@event_priority(100)  # before mkdocs-jupyter looks for notebooks
def on_files(files, config):
    """Adds the pages from outside docs/, and the pages of the reference."""
    for path in (ROOT / "README.md", *ROOT.glob("notebooks/*.ipynb")):
        name, urls = path.relative_to(ROOT).as_posix(), config.use_directory_urls
        files.append(File(name, str(ROOT), config.site_dir, urls))
    for name, content in {**class_pages(), **module_pages()}.items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def class_pages():
    """Returns a page for each class; those of estimators have their settings too."""
    pages = {}
    for name, home in albert_tf._CLASS_MODULES.items():
        pages[name] = CLASS.format(name=name, home=home)
        if home.startswith("estimators."):
            pages[name] += settings_of(getattr(albert_tf, name))
    return pages


def module_pages():
    """Returns a page for each module and package of `albert_tf`."""
    own_pages = [name for name, package in albert_tf._MODULES.items() if package]
    pages = {}
    for name, package in albert_tf._MODULES.items():
        # Names with pages of their own are not repeated.
        is_module = package or name == "errors"
        others = albert_tf._CLASS_MODULES if is_module else own_pages
        options = f'{{filters: ["!^_", "!^({"|".join(others)})$"]}}'
        if name == "estimators":
            options = "{members: []}"
        pages[name] = MODULE.format(name=name, home=package, options=options)
    return {**pages, "commands": commands_page()}


def commands_page():
    """Returns a page with the flags of all commands."""
    parts = ["# Commands"]
    for name in commands.COMMANDS:
        command = commands.find_command(name)
        script = commands.SCRIPTS.get(name)
        parts += [f"## {name}", inspect.cleandoc(command.__doc__)]
        if script:
            parts.append(f"`{script}` in a checkout, `albert-tf {name}` elsewhere.")
        parts += [
            table(group, lambda flag: [f"--{flag}"]) for group in command.SETTINGS
        ]
    return "\n\n".join(parts)


def settings_of(estimator):
    """Returns the settings of an estimator, and the options of its predictions."""
    names, defaults = estimator.setting_names(), estimator.defaults
    classes = estimator.settings_classes
    has_fit = issubclass(estimator, base.Trained)
    flag_of = base.ALIASES if has_fit else {}
    parts = ["", "## Settings"]
    if issubclass(estimator, base.FineTuned):
        kinds = estimator.task_types or estimator.family.task_types
    else:
        kinds = [estimator.task_type] if hasattr(estimator, "task_type") else []
    options = {
        name
        for kind in kinds
        for name in registry.find_pipeline_class(kind).option_names
    }
    options |= {"max_seq_length", "batch_size", "runtime"}
    if not has_fit:
        options |= {item.name for item in flags.fields(ModelFileSettings)}
        names = [name for name in names if name in options]

    def names_of(flag):
        return [name for name in names if flag_of.get(name, name) == flag]

    parts += [table(settings, names_of, defaults) for settings in classes]
    if issubclass(estimator, base.FineTuned):
        parts += ["## Options of predictions"]
        parts += [
            table(PipelineSettings, lambda flag: [flag] if flag in options else [])
        ]
    return "\n\n".join(parts)


def table(settings, names_of, defaults=types.MappingProxyType({})):
    """Returns tables of the fields of a settings class, one for each base class.

    Args:
        settings: the settings class.
        names_of: a function from the name of a field to its names in the table; fields
            without a name are left out.
        defaults: defaults that replace those of the class.
    """
    hints, parts = typing.get_type_hints(settings), []
    for group, items in flags._group_fields(settings):
        title = re.split("[;.]", group.__doc__)[0]
        rows = [
            f"### {title}",
            "",
            "| name | type | default | meaning |",
            "|---|---|---|---|",
        ]
        for item in items:
            if names := names_of(item.name):
                cells = [" or ".join(f"`{name}`" for name in names)]
                cells.append(type_of(hints[item.name]))
                cells.append(value_of(defaults.get(item.name, item.default)))
                help = item.metadata["help"]
                is_flag = names[0].startswith("-")
                cells.append(help if is_flag else re.sub(r"--(\w+)", r"`\1`", help))
                rows.append(f"| {' | '.join(cells)} |")
        if len(rows) > 4:
            parts.append("\n".join(rows))
    return "\n\n".join(parts)


def type_of(hint):
    """Returns the name of a type, without None."""
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    if typing.get_origin(hint) is tuple:
        return "list of `str`"
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{part}`" for part in parts)
    return type_of(parts[0]) if parts else f"`{hint.__name__}`"


def value_of(default):
    """Returns the text of a default value, or "" if there is no default."""
    if default is dataclasses.MISSING:
        return "required"
    text = ",".join(default) if isinstance(default, tuple) else str(default)
    return f"`{text}`" if text not in ("", "None") else ""


def on_page_markdown(markdown, page, config, files):
    """Resolves links to files of the checkout."""
    if page.file.generated_by:
        return markdown
    folder = Path(page.file.abs_src_path).parent
    pages = {file.abs_src_path: file.src_uri for file in files}

    def resolve(match):
        path = Path(os.path.normpath(folder / match[0]))
        name = pages.get(str(path)) or pages.get(str(path / "README.md"))
        if name:
            return os.path.relpath(name, Path(page.file.src_uri).parent)
        if not path.exists():
            return match[0]  # an error with --strict
        kind = "tree" if path.is_dir() else "blob"
        return f"{config.repo_url}/{kind}/main/{path.relative_to(ROOT).as_posix()}"

    return LINK.sub(resolve, markdown)


def on_page_content(html, page, config, files):
    """Resolves links between notebooks, and from a class to its settings."""
    if page.file.generated_by:
        options = '<a href="#options-of-predictions">options</a>'
        html = html.replace("see <code>PipelineSettings</code>", f"see {options}")
        return html.replace("see the class", 'see <a href="#settings">settings</a>')
    return re.sub(r'href="(\w+)\.ipynb"', r'href="../\1/"', html)
