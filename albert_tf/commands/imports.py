"""What a command need not wait for while it imports TensorFlow.

Keras imports scikit-learn, if it is installed, for wrappers around its models, and
TensorFlow's converter imports JAX for JAX's models: a third of all seconds. No command
has such a wrapper or model. Both do without where the import fails, so here it does;
whoever else imports these packages gets them.
"""

import importlib.abc
import sys

# What is not found while the module that would import it is being imported itself.
_LEFT_OUT = {"sklearn": "keras.src.wrappers", "jax": "tensorflow.lite.python.util"}


class _LeftOut(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        importer = sys.modules.get(_LEFT_OUT.get(fullname, ""))
        if getattr(getattr(importer, "__spec__", None), "_initializing", False):
            raise ModuleNotFoundError(f"left out: {fullname}", name=fullname)
        return None


def leave_out() -> None:
    """Leaves these packages out of what the process imports from here on."""
    if not any(isinstance(finder, _LeftOut) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LeftOut())
