"""The commands of `albert-tf`. A checkout also has a script for most of them.

`albert-tf --help` also prints this table:

    pretrain     pretrain on records of `corpus`
    corpus       make pretraining records from raw text
    vocabulary   train a SentencePiece vocabulary
    classify     fine-tune on a task of GLUE or on your own table of texts
    tag          fine-tune to label words, such as named entities
    squad        fine-tune on questions whose answers are spans of a text
    race         fine-tune on multiple-choice questions
    predict      predict on raw text with a fine-tuned or pretrained model
    convert      convert weights between formats
    export       export TF-Hub modules
    demo-page    try a model in the browser

Each command has a module here, or a class in the module `fine_tune`. The docstring of
this module or class is the start of the command's --help. Its attributes are:

    SETTINGS         the settings classes, whose fields are the flags
    main             the function of the command, which gets an object of each class
    TAKES_ARGUMENTS  optional: if true, `main` also gets a list of the arguments that
                     are not flags

TensorFlow takes seconds to import. Only the body of `main` imports TensorFlow. So
--help and errors in flags appear at once.
"""

import importlib
import signal
from typing import Any

from albert_tf import flags

# The script of each command in a checkout.
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
COMMANDS = (*SCRIPTS, "demo-page")


def find_command(name: str) -> Any:
    """Returns the module or class that describes a command."""
    if name in ("classify", "tag", "squad", "race"):
        return importlib.import_module(f"{__name__}.fine_tune").COMMANDS[name]
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def run_command(name: str, argv: list[str] | None = None) -> None:
    """Runs a command, and ends the process as `flags.run_main` does.

    Args:
        name: one of `COMMANDS`.
        argv: the name of the command and its arguments. Default: `sys.argv`, whose
            first element is the script of the command.
    """
    # {text in --help: replacement}. Only `albert-tf` passes `argv`. Its --help shows
    # commands instead of scripts.
    names: dict[str, str] = {}
    if argv is not None:
        for command, script in SCRIPTS.items():
            names |= dict.fromkeys((f"python {script}", script), f"albert-tf {command}")
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        # Let Ctrl-C end the process without a traceback, even during imports. During
        # training, the module `data.stopping` replaces this handler.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    module = find_command(name)
    flags.run_main(
        module.main,
        module.SETTINGS,
        takes_arguments=getattr(module, "TAKES_ARGUMENTS", False),
        text=module.__doc__,
        names=names,
        argv=argv,
    )
