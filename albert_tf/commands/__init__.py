"""The commands: `albert-tf NAME`, and a script for most in a checkout.

In reading order:

    pretrain     pretrain on records of `corpus`
    corpus       make pretraining records from raw text
    vocabulary   train a SentencePiece vocabulary
    classify     fine-tune on a task of GLUE or on your own table of texts
    tag          fine-tune to label words, such as named entities
    squad        fine-tune on questions whose answers are spans of a text
    race         fine-tune on questions with choices
    predict      answer raw texts with a fine-tuned or a pretrained model
    convert      convert weights between code bases
    export       export TF-Hub modules
    score        score predictions of SQuAD, RACE and GLUE
    demo-page    try a model on a local page

A module describes one command: its docstring is what --help prints, `SETTINGS` are the
classes of its flags, and `main` gets one object of each, then, with `TAKES_ARGUMENTS`,
what is no flag. TensorFlow takes seconds to import, which --help and mistakes in the
flags need not wait: only the body of a `main` imports what needs it.
"""

import importlib
import types

from albert_tf import flags
from albert_tf.data import imports, stopping

# What runs a command in a checkout.
SCRIPTS = {
    "pretrain": "run_pretraining.py",
    "corpus": "create_pretraining_data.py",
    "vocabulary": "train_sentencepiece.py",
    "classify": "run_classifier.py",
    "tag": "run_tagging.py",
    "squad": "run_squad.py",
    "race": "run_race.py",
    "predict": "predict.py",
    "convert": "convert_checkpoint.py",
    "export": "export_to_tfhub.py",
}
COMMANDS = (*SCRIPTS, "score", "demo-page")
_RESUMING = ("pretrain", "corpus", "classify", "tag", "squad", "race")


def module(name: str) -> types.ModuleType:
    """Returns the module of a command."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def run(name: str, argv: list[str] | None = None) -> None:
    """Runs a command and ends the process, see `flags.run` and `stopping.ending`.

    Args:
        name: the command.
        argv: its name and what follows it; without it, the script's own.
    """
    names: dict[str, str] = {}
    if argv is not None:
        for other, script in SCRIPTS.items():
            names |= dict.fromkeys((f"python {script}", script), f"albert-tf {other}")
    resumes = " to resume" if name in _RESUMING else ""
    imports.leave_out()
    with stopping.ending(f"run the same command again{resumes}"):
        command = module(name)
        flags.run(
            command.main,
            command.SETTINGS,
            takes_arguments=getattr(command, "TAKES_ARGUMENTS", False),
            text=command.__doc__,
            names=names,
            argv=argv,
        )
