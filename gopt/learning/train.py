"""One training loop for all learned systems: steps, checkpoints, resume, progress, validation.

    state = train.start(params, optimizer(settings))
    state, history = train.run(
        state,
        lambda index, state: step(state, key(index), batch(index), settings=settings),
        steps=100,
        folder="runs/mine",
        described={"settings": dataclasses.asdict(settings), "seed": 0},
    )

A step depends only on its index and the carry. So an interrupted run that is started again gives
the same result as an uninterrupted one.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

from gopt.host.files import write_whole
from gopt.host.progress import Progress, Show
from gopt.learning.checkpoints import Checkpoints

__all__ = ["TrainState", "run", "start"]

Tree = Any
Metrics = Mapping[str, Any]
Carry = TypeVar("Carry")  # a pytree of arrays: a `TrainState`, or a tuple with one
RECENT = 50  # number of recent steps whose mean is shown


State = TypeVar("State", bound=TrainState)


def start(
    params: Tree,
    optimizer: optax.GradientTransformation,
    kind: type[State] = TrainState,  # type: ignore[assignment]
    **more: Any,
) -> State:
    """Return the state of parameters before the first step.

    Args:
      params: nested dict of arrays.
      optimizer: always the same object for the same settings, as states hold it. Functions that
        make optimizers are cached for that.
      kind: class of the state, with further fields.
      more: values of these fields.
    """
    state = kind.create(apply_fn=_no_apply, params=params, tx=optimizer, **more)
    return state.replace(step=jnp.zeros((), jnp.int32))


def _no_apply(*_: Any) -> Any:
    raise TypeError("the state of training applies no network: call those of the policy")


def run(
    carry: Carry,
    step: Callable[[int, Carry], tuple[Carry, Metrics]],
    *,
    steps: int,
    folder: str | os.PathLike[str] | None = None,
    described: Mapping[str, Any] | None = None,
    checkpoint_every: int = 100,
    on_checkpoint: Callable[[int, Carry], None] | None = None,
    validate: Callable[[int, Carry], Metrics] | None = None,
    progress: Show = True,
    label: str = "training",
    shown: str | None = None,
) -> tuple[Carry, list[dict[str, float]]]:
    """Train, and return the carry after the last step and the metrics of every step.

    With a folder, the run goes on from the newest checkpoint in it. Metrics are means over all
    axes. Metrics of `validate` are in the row of the last step done, as `validation_<name>`.

    Args:
      carry: pytree of arrays before the first step.
      step: maps the index of a step and the carry to the next carry and metrics.
      steps: number of steps.
      folder: folder of checkpoints and of `history.json`; by default nothing is saved.
      described: JSON values that must agree with the folder's for a run to go on.
      checkpoint_every: steps between checkpoints. The last step has one.
      on_checkpoint: called with the number of steps done and the carry, every `checkpoint_every`
        steps and after the last one, with or without a folder.
      validate: maps the number of steps done and the carry to metrics, at each checkpoint.
      progress: whether progress is shown; or a function of a `gopt.host.progress.Status`.
      label: name of the run in its progress.
      shown: metric whose recent mean is shown, too.

    Returns:
      The carry, whose arrays may be NumPy arrays, and a dict of metrics for each step.

    Raises:
      ValueError: `checkpoint_every` is less than 1; or the folder holds the checkpoints of another
        or of a longer run, has no metrics of these steps, or is in use.
    """
    if not checkpoint_every >= 1:
        raise ValueError(f"checkpoint_every is {checkpoint_every}: expected 1 at least")
    kept = None if folder is None else _Folder(Path(folder), dict(described or {}))
    done, history = 0, list[dict[str, float]]()
    try:
        if kept is not None:
            done, carry, history = kept.restore(carry)
            if not done <= steps:
                raise ValueError(f"steps is {steps}: the folder holds a run of {done} steps")
        with Progress(label, progress) as work:
            work.phase("steps", steps, done)
            for index in range(done, steps):
                carry, metrics = step(index, carry)
                history.append(_means(metrics))
                is_last = index + 1 == steps
                if (index + 1) % checkpoint_every == 0 or is_last:
                    if validate is not None:
                        found = _means(validate(index + 1, carry)).items()
                        history[-1] |= {f"validation_{name}": value for name, value in found}
                    if on_checkpoint is not None:
                        on_checkpoint(index + 1, carry)
                    if kept is not None:
                        kept.save(index + 1, carry, history)
                recent = [row[shown] for row in history[-RECENT:]] if shown else []
                work.advance(index + 1, f"{shown} {np.mean(recent):.4f}" if recent else "")
    finally:
        if kept is not None:
            kept.checkpoints.close()
    return carry, history


class _Folder:
    """A folder of checkpoints, with the metrics of each step."""

    def __init__(self, folder: Path, described: dict[str, Any]) -> None:
        self.folder = folder
        self.checkpoints = Checkpoints(folder, described)

    def restore(self, carry: Carry) -> tuple[int, Carry, list[dict[str, float]]]:
        """Return the steps done, the carry, and the metrics of these steps."""
        done, carry = self.checkpoints.restore(carry)
        if not done:
            return done, carry, []
        path = self.folder / "history.json"
        try:
            history = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error
        is_history = isinstance(history, list) and all(isinstance(row, dict) for row in history)
        if not is_history or len(history) < done:
            raise ValueError(f"{path} has not the metrics of {done} steps, as the checkpoint has")
        return done, carry, history[:done]

    def save(self, done: int, carry: Any, history: list[dict[str, float]]) -> None:
        """Write a checkpoint. The arrays come last, so a checkpoint with arrays is complete."""
        _write(self.folder / "history.json", history)
        self.checkpoints.save(done, carry)


def _write(path: Path, values: Any) -> None:
    with write_whole(path) as temporary:
        temporary.write_text(json.dumps(values) + "\n")


def _means(metrics: Metrics) -> dict[str, float]:
    """Return the mean of each metric; arrays are fetched at once."""
    return {name: float(np.mean(value)) for name, value in jax.device_get(dict(metrics)).items()}
