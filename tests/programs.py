"""Whole programs as functions of a NumPy-like module: one source for `numpy`, `ricalco.numpy` and `jax.numpy`.

A program is ``function(xp, *arguments)``; its arguments are made with NumPy from a fixed seed. Programs keep to
what the three modules share, loop in Python, and never write into an array.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Program(NamedTuple):
    """A function of ``(xp, *arguments)``, what makes its arguments, and how it may be used.

    Attributes
    ----------
    function : callable
    arguments : callable
        ``() -> tuple`` of pytrees of NumPy arrays.
    differentiable : tuple of int
        The arguments (without `xp`) that a scalar of the result may be differentiated for.
    scale : float
        By how many times float32's resolution results of two compilers may differ, relative to the largest.
    """
    function: Callable
    arguments: Callable
    differentiable: tuple[int, ...] = ()
    scale: float = 100.0

    @property
    def name(self) -> str:
        return self.function.__name__


def _normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def _integers(seed: int, low: int, high: int, *shape: int, dtype=np.int32) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


# --- parts ------------------------------------------------------------------------------------

def softmax(xp, x):
    """Along the last axis."""
    shifted = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return shifted / xp.sum(shifted, axis=-1, keepdims=True)


def layer_norm(xp, x, gain, bias):
    mean = xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / xp.sqrt(variance + 1e-5) * gain + bias


def sigmoid(xp, x):
    return 1 / (1 + xp.exp(-x))


# --- learning ---------------------------------------------------------------------------------

def _mlp_parameters():
    sizes = [4, 8, 8, 3]
    return [{"w": _normal(i, m, n, scale=m ** -0.5), "b": np.zeros(n, np.float32)}
            for i, (m, n) in enumerate(itertools.pairwise(sizes))]


def mlp_loss(xp, params, x, targets):
    """Mean squared error of a network with tanh layers."""
    for layer in params[:-1]:
        x = xp.tanh(x @ layer["w"] + layer["b"])
    predicted = x @ params[-1]["w"] + params[-1]["b"]
    return xp.mean((predicted - targets) ** 2)


def mlp_training_step(xp, params, x, targets):
    """One step of gradient descent with the backward pass written out; new parameters and the loss."""
    inputs = [x]
    for layer in params[:-1]:
        inputs.append(xp.tanh(inputs[-1] @ layer["w"] + layer["b"]))
    error = inputs[-1] @ params[-1]["w"] + params[-1]["b"] - targets
    loss = xp.mean(error ** 2)
    signal = 2 * error / error.size
    updated = []
    for layer, incoming in zip(reversed(params), reversed(inputs)):
        updated.append({"w": layer["w"] - 0.1 * (incoming.T @ signal), "b": layer["b"] - 0.1 * xp.sum(signal, axis=0)})
        signal = (signal @ layer["w"].T) * (1 - incoming ** 2)
    return updated[::-1], loss


def logistic_regression(xp, weights, features, labels):
    """Three steps of gradient descent; the weights and the loss before each."""
    losses = []
    for _ in range(3):
        p = sigmoid(xp, features @ weights)
        losses.append(-xp.mean(xp.where(labels, xp.log(p), xp.log1p(-p))))
        weights = weights - 0.5 * (features.T @ (p - labels)) / labels.shape[0]
    return weights, xp.stack(losses)


def classification(xp, logits, labels):
    """Cross entropy, accuracy and the predicted classes."""
    logs = xp.log(softmax(xp, logits))
    picked = xp.take_along_axis(logs, labels[:, None], axis=1)[:, 0]
    predicted = xp.argmax(logits, axis=1)
    return -xp.mean(picked), xp.mean(predicted == labels), predicted


def clusters(xp, points, centres):
    """Two rounds of k-means."""
    for _ in range(2):
        distances = xp.sum((points[:, None, :] - centres[None, :, :]) ** 2, axis=-1)
        member = xp.argmin(distances, axis=1)[:, None] == xp.arange(centres.shape[0])[None, :]
        counts = xp.sum(member, axis=0)
        sums = xp.sum(xp.where(member[:, :, None], points[:, None, :], 0), axis=0)
        centres = xp.where(counts[:, None] > 0, sums / xp.maximum(counts, 1)[:, None], centres)
    return centres, xp.argmin(distances, axis=1)


# --- sequences and images ---------------------------------------------------------------------

def _attention_parameters():
    return {name: _normal(i, 8, 8, scale=8 ** -0.5) for i, name in enumerate(("query", "key", "value", "out"))}


def attention(xp, params, x):
    """Causal self-attention with two heads on ``(batch, time, features)``."""
    batch, time, features = x.shape
    heads = 2

    def split(y):
        return xp.transpose(xp.reshape(y, (batch, time, heads, features // heads)), (0, 2, 1, 3))

    q, k, v = (split(x @ params[name]) for name in ("query", "key", "value"))
    scores = q @ xp.swapaxes(k, -1, -2) / (features // heads) ** 0.5
    mask = xp.arange(time)[:, None] >= xp.arange(time)[None, :]
    weights = softmax(xp, xp.where(mask, scores, -1e9))
    joined = xp.reshape(xp.transpose(weights @ v, (0, 2, 1, 3)), (batch, time, features))
    return joined @ params["out"]


def _block_parameters():
    return {"attention": _attention_parameters(), "gain": np.ones((2, 8), np.float32),
            "bias": np.zeros((2, 8), np.float32), "up": _normal(7, 8, 16, scale=0.35),
            "down": _normal(8, 16, 8, scale=0.25)}


def transformer_block(xp, params, x):
    """Attention and a feed-forward layer, each with normalisation before and a residual around."""
    x = x + attention(xp, params["attention"], layer_norm(xp, x, params["gain"][0], params["bias"][0]))
    hidden = layer_norm(xp, x, params["gain"][1], params["bias"][1]) @ params["up"]
    activated = 0.5 * hidden * (1 + xp.tanh(0.7978846 * (hidden + 0.044715 * hidden ** 3)))
    return x + activated @ params["down"]


def rnn(xp, params, inputs):
    """A gated recurrent network over the leading axis; all states."""
    state = xp.zeros((inputs.shape[1], params["keep"].shape[1]), inputs.dtype)
    states = []
    for step in range(inputs.shape[0]):
        both = xp.concatenate([inputs[step], state], axis=1)
        keep = sigmoid(xp, both @ params["keep"])
        state = keep * state + (1 - keep) * xp.tanh(both @ params["new"])
        states.append(state)
    return xp.stack(states)


def convolution(xp, kernels, images):
    """A 3 by 3 convolution by slices, a rectifier, and 2 by 2 maxima."""
    rows, columns = images.shape[1] - 2, images.shape[2] - 2
    total = 0.0
    for i in range(3):
        for j in range(3):
            total = total + images[:, i:i + rows, j:j + columns, None] * kernels[i, j]
    active = xp.maximum(total, 0)
    windows = xp.reshape(active, (images.shape[0], rows // 2, 2, columns // 2, 2, kernels.shape[-1]))
    return xp.max(windows, axis=(2, 4))


# --- dynamics and estimation ------------------------------------------------------------------

def ode_loop(xp, state, damping):
    """Three Runge-Kutta steps of Van der Pol's oscillator."""
    def slope(s):
        return xp.stack([s[1], damping * (1 - s[0] ** 2) * s[1] - s[0]])

    h = 0.1
    for _ in range(3):
        k1 = slope(state)
        k2 = slope(state + h / 2 * k1)
        k3 = slope(state + h / 2 * k2)
        k4 = slope(state + h * k3)
        state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return state


def kalman(xp, observations, noise):
    """A filter for position and speed seen through a noisy position; the means, the last covariance."""
    step = xp.asarray([[1.0, 0.1], [0.0, 1.0]], dtype=xp.float32)
    mean, cov = xp.zeros(2, dtype=xp.float32), xp.eye(2, dtype=xp.float32)
    means = []
    for k in range(observations.shape[0]):
        mean, cov = step @ mean, step @ cov @ step.T + 0.01 * xp.eye(2, dtype=xp.float32)
        gain = cov[:, 0] / (cov[0, 0] + noise)
        mean = mean + gain * (observations[k] - mean[0])
        cov = cov - xp.outer(gain, cov[0])
        means.append(mean)
    return xp.stack(means), cov


def heat(xp, field):
    """Four explicit steps of diffusion on a ring of rings."""
    for _ in range(4):
        around = sum(xp.roll(field, shift, axis) for shift in (1, -1) for axis in (0, 1))
        field = field + 0.2 * (around - 4 * field)
    return field


def power_iteration(xp, matrix):
    """The largest eigenvalue of a symmetric matrix, and its vector."""
    v = xp.ones(matrix.shape[0], dtype=matrix.dtype)
    for _ in range(5):
        v = matrix @ v
        v = v / xp.sqrt(xp.sum(v * v))
    return v @ (matrix @ v), v


def newton_root(xp, x):
    """The cube root by Newton's method, element by element."""
    guess = xp.ones_like(x)
    for _ in range(4):
        guess = guess - (guess ** 3 - x) / (3 * guess ** 2)
    return guess


# --- integers, booleans, complex numbers ------------------------------------------------------

def game_of_life(xp, board):
    """Two generations."""
    for _ in range(2):
        count = sum(xp.roll(board, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - board
        board = ((count == 3) | ((board == 1) & (count == 2))).astype(xp.int32)
    return board


def bit_mixing(xp, words):
    """A hash of unsigned words by shifts and products."""
    for shift in (16, 13, 16):
        words = words ^ (words >> shift)
        words = words * 73244475
    return words


def escape_time(xp, points):
    """How many of twelve steps of z*z + c stay within 2."""
    z, counts = points * 0, xp.zeros(points.shape, xp.int32)
    for _ in range(12):
        inside = xp.abs(z) <= 2
        z = xp.where(inside, z * z + points, z)
        counts = counts + inside
    return counts


def empirical_quantiles(xp, sample, levels):
    """Quantiles by sorting, and the share of the sample below its mean."""
    ordered = xp.sort(sample)
    places = xp.clip((levels * sample.shape[0]).astype(xp.int32), 0, sample.shape[0] - 1)
    return ordered[places], xp.mean(sample < xp.mean(sample)), xp.cumsum(ordered)[-1]


PROGRAMS = [
    Program(mlp_loss, lambda: (_mlp_parameters(), _normal(10, 5, 4), _normal(11, 5, 3)), (0, 1)),
    Program(mlp_training_step, lambda: (_mlp_parameters(), _normal(10, 5, 4), _normal(11, 5, 3))),
    Program(logistic_regression, lambda: (_normal(0, 3), _normal(1, 20, 3), _integers(2, 0, 2, 20, dtype=bool)), (0,)),
    Program(classification, lambda: (_normal(0, 6, 4), _integers(1, 0, 4, 6)), (0,)),
    Program(clusters, lambda: (_normal(0, 12, 2), _normal(1, 3, 2))),
    Program(attention, lambda: (_attention_parameters(), _normal(20, 2, 5, 8)), (0, 1)),
    Program(transformer_block, lambda: (_block_parameters(), _normal(20, 2, 5, 8)), (0,)),
    Program(rnn, lambda: ({"keep": _normal(0, 7, 4), "new": _normal(1, 7, 4)}, _normal(2, 4, 2, 3)), (0,)),
    Program(convolution, lambda: (_normal(0, 3, 3, 2), _normal(1, 2, 8, 8)), (0, 1)),
    Program(ode_loop, lambda: (_normal(0, 2), np.float32(1.5)), (0, 1), 1000.0),
    Program(kalman, lambda: (_normal(0, 4), np.float32(0.3)), (0, 1)),
    Program(heat, lambda: (_normal(0, 6, 6),), (0,)),
    Program(power_iteration, lambda: ((lambda m: m @ m.T)(_normal(0, 5, 5)),), (0,), 1000.0),
    Program(newton_root, lambda: (np.abs(_normal(0, 7)) + 0.5,), (0,)),
    Program(game_of_life, lambda: (_integers(0, 0, 2, 8, 8),)),
    Program(bit_mixing, lambda: (_integers(0, 0, 2 ** 31, 9, dtype=np.uint32),)),
    Program(escape_time, lambda: ((_normal(0, 4, 4) + 1j * _normal(1, 4, 4)).astype(np.complex64),)),
    Program(empirical_quantiles, lambda: (_normal(0, 20), np.array([0.1, 0.5, 0.9], np.float32))),
]
BY_NAME = {program.name: program for program in PROGRAMS}
