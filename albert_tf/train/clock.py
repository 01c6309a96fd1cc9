"""A schedule that ends by the clock: --train_minutes.

The rate falls with the share of the time that is over, whatever the machine's speed.
Within a graph that share follows from the step, by a plan: so many seconds were over at
some step, and so many go into one. Plans are made anew now and then, and every one is
noted: a run that resumes makes the steps up to where it was killed by the plans it had.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.model import optimizers
from albert_tf.tasks.settings.training import TrainingSettings

# Before that many steps plans are made after 1, 2, 4 ... of them.
_STEPS_BETWEEN_PLANS = 64
_NUMBERS = ("seconds", "seconds_per_step")


class ClockDecay(optimizers.WarmupPolynomialDecay):
    """Linear warm-up by steps, and a polynomial decay to 0 by the clock.

    Args:
        config: the rate, its power, its warm-up, and the minutes.

    Attributes:
        plan: float32 [3]: a step, the seconds over by then, and the seconds of a step.
        seconds: when the rate is 0.
    """

    def __init__(self, config: TrainingSettings):
        super().__init__(
            config.learning_rate,
            config.num_train_steps,
            config.num_warmup_steps,
            power=config.poly_power,
            start_warmup_step=config.start_warmup_step,
        )
        assert config.train_minutes is not None
        self.seconds = 60.0 * config.train_minutes
        self.plan = keras.Variable(np.zeros(3), trainable=False, dtype="float32")

    def share_left(self, step):
        """Returns the share of the time that is left at a step, float32 []."""
        begin, over, of_step = ops.unstack(self.plan.value)
        over += of_step * (step - begin)
        return ops.clip(1.0 - over / self.seconds, 0.0, 1.0)


class Clock:
    """Plans how many updates fit into the time.

    Args:
        schedule: what follows the plans.
        noted: entries of `metrics.jsonl`, those of the kind "plan" among them.
        agree: takes a worker's numbers and returns those of all.
    """

    def __init__(
        self,
        schedule: ClockDecay,
        noted: Iterable[Mapping[str, Any]],
        agree: Callable[[list[float]], list[float]],
    ):
        self._schedule = schedule
        self._agree = agree
        self._noted: dict[int, list[float]] = {}
        for entry in noted:
            numbers = [x for x in map(entry.get, _NUMBERS) if isinstance(x, float)]
            if entry["kind"] == "plan" and len(numbers) == len(_NUMBERS):
                self._noted[entry["step"]] = numbers
        # Since when steps are timed, and what the clock is behind the time over.
        self._first_step, self._began, self._offset = 0, 0.0, 0.0

    def start(self, step: int) -> None:
        """Starts the clock, after the step that made the graphs, where it was then."""
        begin, over, of_step = self._plan
        self._first_step, self._began = step, time.monotonic()
        self._offset = over + of_step * (step - begin) - self._began

    @property
    def last_step(self) -> float:
        """The step at which the time is over, as planned; infinite before a plan."""
        begin, over, of_step = self._plan
        left = max(self._schedule.seconds - over, 0.0)
        return begin + math.ceil(left / of_step) if of_step else math.inf

    def next_plan(self, step: int) -> int:
        """Returns the next step after which there is a plan to make."""
        if not self._plan[2]:
            return step + 1
        doubled = 1 << step.bit_length()
        evenly = step - step % _STEPS_BETWEEN_PLANS + _STEPS_BETWEEN_PLANS
        return min(doubled, evenly) if step < _STEPS_BETWEEN_PLANS else evenly

    def make_plan(self, step: int) -> dict[str, float]:
        """Plans anew, or as noted by the run that made this step before.

        Returns:
            The plan's numbers, to be noted; none where they are.
        """
        now = time.monotonic()
        # After the first step of all nothing is timed: a second is as good as any.
        timed = step - self._first_step
        of_step = (now - self._began) / timed if timed else 1.0
        noted = self._noted.get(step)
        seconds, of_step = self._agree(noted or [self._offset + now, of_step])
        self._offset = seconds - now
        self._schedule.plan.assign([step, seconds, of_step])
        return {} if noted else dict(zip(_NUMBERS, [seconds, of_step], strict=True))

    @property
    def _plan(self) -> list[float]:
        return ops.convert_to_numpy(self._schedule.plan).astype(float).tolist()
