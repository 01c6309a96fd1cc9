"""What a command need not wait for while it imports TensorFlow.

Where they are installed, Keras imports scikit-learn for wrappers around its models,
Matplotlib and OpenCV for images, pandas (as orbit's Keras 2 does) for tables to `fit`
and JAX for its checkpoints, and TensorFlow's converter JAX for its models: a third of
all seconds. No command has any of these. All of them do without where the import fails,
so here it does; whoever else imports these packages gets them.
"""

import importlib.abc
import sys

# What is not found while the module that would import it is being imported itself.
_LEFT_OUT = {
    "cv2": ("keras.src.visualization.draw_bounding_boxes",),
    "jax": ("keras.src.callbacks.orbax_checkpoint", "tensorflow.lite.python.util"),
    "matplotlib": (
        "keras.src.visualization.plot_bounding_box_gallery",
        "keras.src.visualization.plot_image_gallery",
    ),
    "pandas": (
        "keras.src.trainers.data_adapters.array_slicing",
        "tf_keras.src.engine.data_adapter",
    ),
    "sklearn": ("keras.src.wrappers",),
}


class _LeftOut(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        for importer in _LEFT_OUT.get(fullname, ()):
            spec = getattr(sys.modules.get(importer), "__spec__", None)
            if getattr(spec, "_initializing", False):
                raise ModuleNotFoundError(f"left out: {fullname}", name=fullname)
        return None


def leave_out() -> None:
    """Leaves these packages out of what the process imports from here on."""
    if not any(isinstance(finder, _LeftOut) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LeftOut())
