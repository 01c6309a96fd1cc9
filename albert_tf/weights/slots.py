"""The state of an optimizer in a TF1 checkpoint, beside the weights."""

import dataclasses
from collections.abc import Iterable

from albert_tf.errors import InputError
from albert_tf.weights.names import Target
from albert_tf.weights.reading import Source

# The number of updates made.
STEP = "global_step"


def expand_slots(optimizer, targets: Iterable[Target]) -> list[Target]:
    """Lists the optimizer's slots of some TF1 tensors, laid out like the tensors."""
    return [
        dataclasses.replace(
            target,
            ours=f"{target.ours}.{slot}",
            name=f"{target.name}/{slot}",
            group0=f"{target.group0}/{slot}",
            variable=variable,
        )
        for target in targets
        for slot, variable in optimizer.slots(target.variable).items()
    ]


def check_optimizer(optimizer, model) -> None:
    """Builds an optimizer of this package if need be; refuses any other."""
    if not hasattr(optimizer, "slots"):
        raise InputError(
            f"optimizer={type(optimizer).__name__}: expected one of "
            f"albert_tf.optimizers, whose slots have a place in a TF1 checkpoint"
        )
    if not optimizer.built:
        optimizer.build(model.trainable_variables)


def check_has_slots(source: Source) -> None:
    """Refuses a file that holds no state of an optimizer at all."""
    has_slots = any(name.endswith(("/adam_m", "/adam_v")) for name in source.ignored)
    if source.format != "tf1" or not has_slots or STEP not in source.ignored:
        raise InputError(
            f"{source.path} ({source.format}) holds no optimizer slots; expected a TF1 "
            f"checkpoint with <weight>/adam_m, <weight>/adam_v and {STEP}"
        )
