"""Colour of each class, the same in masks, drawings and answers.

Each generated colour is the one furthest from all previous ones and from black, grey and white in OKLab, a perceptually
uniform space (https://bottosson.github.io/posts/oklab/). The first colours are therefore distinct, and a class keeps
its colour whatever the number of classes. Very dark, bright or pale colours are left out.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import ImageColor

Color = tuple[int, int, int]

_COUNT: Final = 255
_LEVELS: Final = np.arange(0, 256, 15)
_LIGHTNESS: Final = (0.5, 0.92)
_LEAST_CHROMA: Final = 0.08
_AVOIDED: Final = np.array([[0, 0, 0], [128, 128, 128], [255, 255, 255]])
_TO_CONES: Final = np.array(
    [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
     [0.0883024619, 0.2817188376, 0.6299787005]]
)  # fmt: skip
_TO_LAB: Final = np.array(
    [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
     [0.0259040371, 0.7827717662, -0.8086757660]]
)  # fmt: skip


def generated(index: int) -> Color:
    """Return the generated colour of a class; they repeat after 255."""
    return _generated()[index % _COUNT]


def parsed(text: str) -> Color:
    """Return a colour given by name or as ``#rrggbb``; raise ValueError for any other text."""
    red, green, blue = ImageColor.getrgb(text)[:3]
    return red, green, blue


def text_on(color: Color) -> Color:
    """Return black or white, whichever has more contrast on a colour (WCAG 2.2)."""
    luminance = float(_linear(np.array(color)) @ (0.2126, 0.7152, 0.0722))
    return (0, 0, 0) if (luminance + 0.05) ** 2 > 0.05 * 1.05 else (255, 255, 255)


@cache
def _generated() -> tuple[Color, ...]:
    colors = np.stack(np.meshgrid(_LEVELS, _LEVELS, _LEVELS), axis=-1).reshape(-1, 3)
    places = _oklab(colors)
    lightness, chroma = places[:, 0], np.hypot(places[:, 1], places[:, 2])
    visible = (lightness >= _LIGHTNESS[0]) & (lightness <= _LIGHTNESS[1]) & (chroma >= _LEAST_CHROMA)
    colors, places = colors[visible], places[visible]
    distances = np.min([_distance(places, place) for place in _oklab(_AVOIDED)], axis=0)
    chosen: list[Color] = []
    for _ in range(_COUNT):
        best = int(distances.argmax())
        red, green, blue = colors[best].tolist()
        chosen.append((red, green, blue))
        distances = np.minimum(distances, _distance(places, places[best]))
    return tuple(chosen)


def _distance(places: NDArray[np.float64], place: NDArray[np.float64]) -> NDArray[np.float64]:
    squares: NDArray[np.float64] = ((places - place) ** 2).sum(axis=1)
    return squares


def _oklab(colors: NDArray[np.integer]) -> NDArray[np.float64]:
    places: NDArray[np.float64] = np.cbrt(_linear(colors) @ _TO_CONES.T) @ _TO_LAB.T
    return places


def _linear(colors: NDArray[np.integer]) -> NDArray[np.float64]:
    parts = colors / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
