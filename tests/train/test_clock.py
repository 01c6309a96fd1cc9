"""Runs that end by the clock: the plans, and the rate that follows them."""

import numpy as np
import pytest

from albert_tf import InputError
from albert_tf.tasks.settings.pretraining import PretrainingRunSettings
from albert_tf.train import clock as module


class Wall:
    """A clock that stands still until it is moved."""

    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def wall(monkeypatch):
    wall = Wall()
    monkeypatch.setattr(module, "time", wall)
    return wall


@pytest.fixture
def schedule():
    settings = PretrainingRunSettings(
        output_dir="x",
        train_minutes=2.0,
        learning_rate=0.5,
        num_warmup_steps=4,
        poly_power=2.0,
    )
    return module.ClockDecay(settings)


def clock_of(schedule, noted=()):
    return module.Clock(schedule, noted, lambda own: own)


def rate(schedule, step):
    return float(schedule(step))


def test_the_rate_falls_with_the_time_that_is_over(schedule, wall):
    clock = clock_of(schedule)
    assert clock.last_step == np.inf
    clock.start(1)
    assert clock.make_plan(1) == {"seconds": 0.0, "seconds_per_step": 1.0}
    assert clock.last_step == 1 + 120
    # A step takes 0.5: 118 seconds are left for 236 steps.
    wall.now += 2
    assert clock.make_plan(5) == {"seconds": 2.0, "seconds_per_step": 0.5}
    assert clock.last_step == 5 + 236
    assert rate(schedule, 2) == 0.25  # 2 of 4 steps of warm-up
    assert rate(schedule, 5) == pytest.approx(0.5 * (118 / 120) ** 2)
    assert rate(schedule, 105) == pytest.approx(0.5 * (68 / 120) ** 2)
    assert rate(schedule, 241) == 0 == rate(schedule, 300)
    # The machine gets slower: fewer steps, and the rate is where the clock is.
    wall.now += 108
    clock.make_plan(64)
    assert clock.last_step == 64 + 6  # 10 seconds are left, at 110 / 63 a step
    assert rate(schedule, 64) == pytest.approx(0.5 * (10 / 120) ** 2)
    wall.now += 11
    clock.make_plan(70)
    assert clock.last_step == 70
    assert rate(schedule, 70) == 0


def test_plans_come_sooner_at_first(schedule, wall):
    clock = clock_of(schedule)
    assert clock.next_plan(37) == 38  # none is made yet
    clock.start(1)
    clock.make_plan(1)
    steps = [1]
    while steps[-1] < 192:
        steps.append(clock.next_plan(steps[-1]))
    assert steps == [1, 2, 4, 8, 16, 32, 64, 128, 192]
    assert clock.next_plan(37) == 64
    assert clock.next_plan(100) == 128


def test_plans_that_are_noted_are_made_again(schedule, wall):
    noted = [
        {"kind": "train", "step": 64, "seconds": 1.0, "seconds_per_step": 1.0},
        {"kind": "plan", "step": 64, "seconds": 30.5, "seconds_per_step": 0.25},
        {"kind": "plan", "step": 128, "seconds": None, "seconds_per_step": 0.25},
    ]
    schedule.plan.assign([32, 20.0, 0.5])
    clock = clock_of(schedule, noted)
    clock.start(50)  # 29 seconds were over when its checkpoint was saved
    wall.now += 7
    assert clock.make_plan(64) == {}
    np.testing.assert_array_equal(schedule.plan, [64, 30.5, 0.25])
    # From there on the time goes on.
    wall.now += 3
    assert clock.make_plan(128)["seconds"] == 33.5


def test_the_time_resumes_where_the_checkpoint_was(schedule, wall):
    schedule.plan.assign([32, 20.0, 0.5])
    clock = clock_of(schedule)
    clock.start(50)
    wall.now += 2
    assert clock.make_plan(64) == {"seconds": 31.0, "seconds_per_step": 2 / 14}


def test_every_worker_gets_the_plan_of_one(schedule, wall):
    clock = module.Clock(schedule, (), lambda own: [5.0, 0.75])
    clock.start(0)
    wall.now += 9
    assert clock.make_plan(1) == {"seconds": 5.0, "seconds_per_step": 0.75}
    np.testing.assert_array_equal(schedule.plan, [1, 5.0, 0.75])


def test_minutes_and_steps_exclude_each_other():
    with pytest.raises(InputError) as caught:
        PretrainingRunSettings(output_dir="x", train_minutes=2.0, num_train_steps=9)
    message = "--train_minutes=2.0 and --num_train_steps=9: give one of them"
    assert str(caught.value) == message
