"""Distances on the ellipsoid WGS84 by Vincenty's formula, and on a sphere: slow oracles."""

from __future__ import annotations

import numpy as np

EQUATOR, FLATTENING = 6_378_137.0, 1 / 298.257223563
MEAN_RADIUS = 6_371_008.8


def haversine(lat, lon, other_lat, other_lon):
    """Return distances on the sphere (m), of degrees."""
    lat, lon, other_lat, other_lon = map(np.radians, (lat, lon, other_lat, other_lon))
    half = np.sin((other_lat - lat) / 2) ** 2
    half = half + np.cos(lat) * np.cos(other_lat) * np.sin((other_lon - lon) / 2) ** 2
    return 2 * MEAN_RADIUS * np.arcsin(np.sqrt(half))


def vincenty(lat, lon, other_lat, other_lon):
    """Return the length of the geodesic between two points (m), of degrees [Vincenty 1975]."""
    pole = EQUATOR * (1 - FLATTENING)
    one, other = (np.arctan((1 - FLATTENING) * np.tan(np.radians(x))) for x in (lat, other_lat))
    apart = np.radians(other_lon - lon)
    sine, cosine, sine_2, cosine_2 = np.sin(one), np.cos(one), np.sin(other), np.cos(other)
    around = apart
    for _ in range(100):
        along = np.hypot(
            cosine_2 * np.sin(around), cosine * sine_2 - sine * cosine_2 * np.cos(around)
        )
        if along == 0:
            return 0.0
        forward = sine * sine_2 + cosine * cosine_2 * np.cos(around)
        sigma = np.arctan2(along, forward)
        azimuth = cosine * cosine_2 * np.sin(around) / along
        square = 1 - azimuth**2
        middle = forward - 2 * sine * sine_2 / square if square else 0.0
        c = FLATTENING / 16 * square * (4 + FLATTENING * (4 - 3 * square))
        bent = middle + c * forward * (2 * middle**2 - 1)
        before, around = (
            around,
            apart + (1 - c) * FLATTENING * azimuth * (sigma + c * along * bent),
        )
        if abs(around - before) < 1e-12:
            break
    u = square * (EQUATOR**2 - pole**2) / pole**2
    a = 1 + u / 16384 * (4096 + u * (-768 + u * (320 - 175 * u)))
    b = u / 1024 * (256 + u * (-128 + u * (74 - 47 * u)))
    inner = forward * (2 * middle**2 - 1) - b / 6 * middle * (4 * along**2 - 3) * (
        4 * middle**2 - 3
    )
    return pole * a * (sigma - b * along * (middle + b / 4 * inner))
