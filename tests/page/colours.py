"""How far apart colours are, also for people who lack one kind of cones."""

import itertools

import numpy as np

_TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
"""From linear sRGB, white D65."""
VISIONS = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
"""What linear sRGB becomes, from Machado, Oliveira and Fernandes (2009), severity 1."""


def linear(name):
    """The three channels of a colour, linear."""
    parts = np.array([int(name[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(first, second):
    """That of WCAG, from 1 to 21."""
    low, high = sorted(_TO_XYZ[1] @ linear(one) for one in (first, second))
    return (high + 0.05) / (low + 0.05)


def closest(names, vision):
    """The smallest difference between any two of some colours, as they are seen."""
    seen = [_lab(_TO_XYZ @ np.clip(VISIONS[vision] @ linear(name), 0, 1)) for name in names]
    return min(difference(first, second) for first, second in itertools.combinations(seen, 2))


def _lab(xyz):
    ratio = xyz / [0.95047, 1.0, 1.08883]
    x, y, z = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def difference(first, second):
    """CIEDE2000 between two colours in CIELAB."""
    (l1, a1, b1), (l2, a2, b2) = first, second
    grey = 1.5 - 0.5 * _share((np.hypot(a1, b1) + np.hypot(a2, b2)) / 2)
    c1, c2 = np.hypot(a1 * grey, b1), np.hypot(a2 * grey, b2)
    h1, h2 = np.degrees(np.arctan2(b1, a1 * grey)) % 360, np.degrees(np.arctan2(b2, a2 * grey)) % 360
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    chroma, hue, light = (c1 + c2) / 2, h1 + turn / 2 if c1 * c2 else h1 + h2, ((l1 + l2) / 2 - 50) ** 2
    waves = [(-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.20, 4, -63)]
    wave = 1 + sum(size * np.cos(np.radians(times * hue + shift)) for size, times, shift in waves)
    in_light = (l2 - l1) / (1 + 0.015 * light / np.sqrt(20 + light))
    in_chroma = (c2 - c1) / (1 + 0.045 * chroma)
    in_hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * chroma * wave)
    twist = -2 * _share(chroma) * np.sin(np.radians(60 * np.exp(-(((hue % 360 - 275) / 25) ** 2))))
    return float(np.sqrt(in_light**2 + in_chroma**2 + in_hue**2 + twist * in_chroma * in_hue))


def _share(chroma):
    return np.sqrt(chroma**7 / (chroma**7 + 25.0**7))
