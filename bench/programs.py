"""Functions written once against a NumPy-like module, so that both compilers trace the same source."""
from __future__ import annotations

import numpy


def chain(np, steps: int):
    """`steps` equations of sin, mul and add on small arrays."""
    def f(x, y):
        for _ in range(steps // 3):
            x = np.sin(x) * y + x
        return x
    return f


def mlp(np):
    """Mean square of a tanh network's output."""
    def f(params, x):
        for w, b in params:
            x = np.tanh(x @ w + b)
        return (x ** 2).mean()
    return f


def mlp_params(layers: int, width: int = 64):
    rng = numpy.random.default_rng(0)
    return [((rng.standard_normal((width, width)) / width ** 0.5).astype("float32"),
             (rng.standard_normal(width) * 0.1).astype("float32")) for _ in range(layers)]


def _softmax(np, x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _layer_norm(np, x, gain, bias):
    d = x - x.mean(axis=-1, keepdims=True)
    return d / np.sqrt((d * d).mean(axis=-1, keepdims=True) + 1e-5) * gain + bias


def _block(np, p, x, heads: int = 4):
    length, width = x.shape
    h = _layer_norm(np, x, p["g1"], p["b1"])

    def split(a):
        return np.transpose(np.reshape(a, (length, heads, width // heads)), (1, 0, 2))

    q, k, v = split(h @ p["wq"]), split(h @ p["wk"]), split(h @ p["wv"])
    weights = _softmax(np, q @ np.transpose(k, (0, 2, 1)) / (width // heads) ** 0.5)
    x = x + np.reshape(np.transpose(weights @ v, (1, 0, 2)), (length, width)) @ p["wo"]
    h = _layer_norm(np, x, p["g2"], p["b2"])
    u = h @ p["w1"] + p["c1"]
    u = 0.5 * u * (1.0 + np.tanh(0.7978845608 * (u + 0.044715 * u * u * u)))
    return x + (u @ p["w2"] + p["c2"])


def transformer(np):
    """Mean square of the output of transformer blocks."""
    def f(params, x):
        for p in params:
            x = _block(np, p, x)
        return (x * x).mean()
    return f


def transformer_params(blocks: int, width: int = 64, expand: int = 4):
    rng = numpy.random.default_rng(0)

    def draw(*shape):
        return (rng.standard_normal(shape) * 0.1).astype("float32")

    shapes = dict(b1=(width,), b2=(width,), wq=(width, width), wk=(width, width), wv=(width, width), wo=(width, width),
                  w1=(width, expand * width), c1=(expand * width,), w2=(expand * width, width), c2=(width,))
    return [{**{k: draw(*s) for k, s in shapes.items()}, "g1": draw(width) + 1, "g2": draw(width) + 1}
            for _ in range(blocks)]
