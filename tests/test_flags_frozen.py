"""The flags of every script: one that goes, comes or changes is a decision.

After one, `UPDATE_FLAGS=1 pytest tests/test_flags_frozen.py` writes the list anew.
"""

import dataclasses
import os
import typing
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMITS = ("at_least", "above", "at_most", "below", "requires", "excludes")
FROZEN = ROOT / "tests/fixtures/flags.txt"


def written_out(hint):
    text = hint.__name__ if isinstance(hint, type) else str(hint)
    return text.replace("typing.", "")


def lines_of(settings):
    hints = typing.get_type_hints(settings)
    for item in dataclasses.fields(settings):
        if "help" in item.metadata:
            is_required = item.default is dataclasses.MISSING
            default = "required" if is_required else repr(item.default)
            alias = f" (--{item.metadata['alias']})" if "alias" in item.metadata else ""
            kind = written_out(hints[item.name])
            limits = (f" {k}={item.metadata[k]}" for k in LIMITS if k in item.metadata)
            yield f"  --{item.name}{alias}: {kind} = {default}{''.join(limits)}"


def test_the_flags_are_as_they_were(settings_of):
    lines = []
    scripts = sorted(path.name for path in ROOT.glob("*.py"))
    for script in (*scripts, "demo-page"):
        lines.append(script)
        lines += sorted(
            line for settings in settings_of(script) for line in lines_of(settings)
        )
    if os.environ.get("UPDATE_FLAGS"):
        FROZEN.write_text("\n".join(lines) + "\n")
    assert lines == FROZEN.read_text().splitlines()
