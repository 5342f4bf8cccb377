"""Train a classifier on 1,797 handwritten digits, then say what tracing the training step took.

    make demo                   or, in an environment of your own:
    python examples/digits.py [--epochs 30] [--seed 0]

Needs scikit-learn (the images come with it), matplotlib and rich. Writes two pictures to examples/output.
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

import matplotlib
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import ricalco
import ricalco.numpy as jnp

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # after the backend is chosen

OUTPUT = Path(__file__).parent / "output"
LEARNING_RATE = 0.1
MOMENTUM = 0.9
BATCH = 64
HIDDEN = 128
TARGET = 0.96


def load(seed: int) -> list[np.ndarray]:
    """Images as float32[n,64] in [0, 1] and labels as int32[n], for training and for testing."""
    images, labels = map(np.asarray, load_digits(return_X_y=True))
    split = train_test_split((images / 16).astype(np.float32), labels.astype(np.int32), test_size=0.2,
                             random_state=seed, stratify=labels)
    return [np.asarray(part) for part in split]


def new_parameters(rng: np.random.Generator) -> dict:
    """Weights of a network 64 -> HIDDEN -> 10."""
    def layer(inputs, outputs):
        weights = rng.normal(scale=np.sqrt(2 / inputs), size=(inputs, outputs)).astype(np.float32)
        return {"w": weights, "b": np.zeros(outputs, np.float32)}
    return {"hidden": layer(64, HIDDEN), "out": layer(HIDDEN, 10)}


def scores(params, images):
    hidden = jnp.maximum(images @ params["hidden"]["w"] + params["hidden"]["b"], 0)
    return hidden @ params["out"]["w"] + params["out"]["b"]


def cross_entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_likelihood = shifted - jnp.log(jnp.exp(shifted).sum(axis=1, keepdims=True))
    picked = jnp.take_along_axis(log_likelihood, labels[:, None], axis=1)
    return -picked.mean()


def make_functions(mean_image: np.ndarray):
    """The training step and the classifier. Both take `mean_image` from here: tracing captures it."""
    @ricalco.jit
    def train_step(params, velocity, images, labels):
        print(f"tracing train_step for a batch of {len(images)} images")  # once per signature

        def loss_of(params):
            return cross_entropy(scores(params, images - mean_image), labels)

        loss, gradient = ricalco.value_and_grad(loss_of)(params)
        velocity = ricalco.tree.map(lambda v, g: MOMENTUM * v - LEARNING_RATE * g, velocity, gradient)
        params = ricalco.tree.map(jnp.add, params, velocity)
        return params, velocity, loss

    @ricalco.jit
    def classify(params, images):
        return scores(params, images - mean_image).argmax(axis=1)

    return train_step, classify


def train(train_step, params, images, labels, epochs: int, rng: np.random.Generator, console: Console):
    """The trained parameters, and the loss of every step."""
    velocity = ricalco.tree.map(np.zeros_like, params)
    losses = []
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(),
               TextColumn("epochs, loss {task.fields[loss]}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=epochs, loss="...")
        for _ in range(epochs):
            order = rng.permutation(len(images))
            for start in range(0, len(order), BATCH):  # the last batch is smaller: a second signature
                batch = order[start:start + BATCH]
                params, velocity, loss = train_step(params, velocity, images[batch], labels[batch])
                losses.append(loss)  # still on the device; reading it here would wait for the step
            progress.update(task, advance=1, loss=f"{float(losses[-1]):.4f}")
    return params, velocity, np.array([float(x) for x in losses])


# --- pictures -------------------------------------------------------------------------------------

def plot_losses(losses: np.ndarray, steps_per_epoch: int, path: Path) -> None:
    epochs = np.arange(len(losses)) / steps_per_epoch
    window = np.ones(steps_per_epoch) / steps_per_epoch
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.semilogy(epochs, losses, color="#9db8d9", linewidth=0.8, label="each batch")
    axes.semilogy(epochs[steps_per_epoch - 1:], np.convolve(losses, window, "valid"), color="#1f4e8c", linewidth=1.8,
                  label="mean over an epoch")
    axes.set(xlabel="epoch", ylabel="cross entropy", title="Training loss, handwritten digits")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def plot_mistakes(images, labels, predicted, path: Path, most: int = 10) -> None:
    wrong = np.flatnonzero(labels != predicted)
    shown = wrong[:most]
    columns = max(min(5, len(shown)), 1)
    rows = max(-(-len(shown) // columns), 1)
    figure, grid = plt.subplots(rows, columns, figsize=(1.6 * columns + 0.4, 2.0 * rows + 0.6), squeeze=False,
                                layout="constrained")
    for axes in grid.flat[len(shown):]:
        axes.axis("off")
    for axes, i in zip(grid.flat, shown):
        axes.set(xticks=[], yticks=[])
        axes.imshow(images[i].reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        axes.set_title(f"read {predicted[i]}, is {labels[i]}", fontsize=10)
    figure.suptitle(f"{len(wrong)} of {len(labels)} test images misread", fontsize=12)
    figure.savefig(path, dpi=130)
    plt.close(figure)


# --- the account ----------------------------------------------------------------------------------

def account(train_step, console: Console) -> None:
    """What each trace of the training step took: the first in full, of the others what is different."""
    console.rule("what tracing took", style="dim")
    first, *others = ricalco.last_traces(train_step)
    print(ricalco.report.trace_text(first, color=console.is_terminal, jaxpr_lines=30), end="\n\n")
    for record in others:
        print(ricalco.report.trace_text(record, earlier=first, color=console.is_terminal, jaxpr_lines=8), end="\n\n")


def time_step(train_step, arguments, repeats: int = 100) -> float:
    """Seconds of one step with a known signature."""
    start = perf_counter()
    for _ in range(repeats):
        results = train_step(*arguments)
        ricalco.block_until_ready(results)
    return (perf_counter() - start) / repeats


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__ and __doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console()
    rng = np.random.default_rng(options.seed)
    train_images, test_images, train_labels, test_labels = load(options.seed)
    print(f"handwritten digits: {len(train_images):,} images to train on, {len(test_images)} to test on")

    train_step, classify = make_functions(train_images.mean(axis=0))
    params, velocity, losses = train(train_step, new_parameters(rng), train_images, train_labels, options.epochs, rng,
                                     console)
    predicted = np.asarray(classify(params, test_images))
    accuracy = float((predicted == test_labels).mean())
    print(f"test accuracy: {accuracy:.1%} of {len(test_labels)} images")

    OUTPUT.mkdir(exist_ok=True)
    loss_picture, mistakes_picture = OUTPUT / "loss.png", OUTPUT / "misread.png"
    plot_losses(losses, -(-len(train_images) // BATCH), loss_picture)
    plot_mistakes(test_images, test_labels, predicted, mistakes_picture)
    print(f"pictures: {loss_picture}\n          {mistakes_picture}\n")

    account(train_step, console)
    seconds = time_step(train_step, (params, velocity, train_images[:BATCH], train_labels[:BATCH]))
    print(f"one step of {BATCH} images, signature known: {seconds * 1e6:.0f} us; "
          f"{train_step.cache_info().misses} traces for {len(losses):,} training steps")
    if accuracy < TARGET:
        print(f"expected at least {TARGET:.0%} test accuracy", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
