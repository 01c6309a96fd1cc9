"""Names this package's classes to Keras, before their modules are imported.

`keras.models.load_model` looks for the classes that a file names among those that are
registered, and imports no modules but Keras's own. As names of this package are
imported when they are first used, what is registered at first imports them later.
"""

import contextlib
import importlib
import importlib.abc
import importlib.util
import sys
from typing import Any

# By module. Their decorators then put the classes themselves in their places.
CLASSES = {
    "heads": (
        *("ClassifierHead", "ConditionalSpanHead", "MaskedLMHead", "SentenceHead"),
        "SpanHead",
    ),
    "layers": ("Attention", "Block", "Embeddings", "FeedForward"),
    "models": (
        *("AlbertClassifier", "AlbertConditionalSpanLabeler", "AlbertEncoder"),
        *("AlbertMultipleChoice", "AlbertPretrainer", "AlbertSpanLabeler"),
        "AlbertTokenClassifier",
    ),
    "optimizers": ("AdamW", "Lamb", "WarmupPolynomialDecay"),
}


def register() -> None:
    """Registers the classes, now or as soon as Keras is imported."""
    if "keras" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _AfterKeras())


class _Class:
    """Stands for a class; Keras calls `from_config` alone."""

    def __init__(self, module: str, name: str):
        self._module = module
        self._name = name

    def from_config(self, config: Any) -> Any:
        """Imports the class, and builds an object of it."""
        module = importlib.import_module(f"albert_tf.model.{self._module}")
        return getattr(module, self._name).from_config(config)


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Finds Keras as the other finders do, and registers after its import."""

    def __init__(self) -> None:
        self._is_asking = False

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Returns what is imported; None for all but Keras."""
        if fullname != "keras" or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_asking = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                # Not before: after an import that failed Keras is imported once more.
                with contextlib.suppress(ValueError):
                    sys.meta_path.remove(self)
                _register()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _register() -> None:
    registered = sys.modules["keras"].saving.get_custom_objects()
    for module, names in CLASSES.items():
        for name in names:
            registered.setdefault(f"albert_tf>{name}", _Class(module, name))
