"""The moves of samplers in unison, in JAX; apart from the samplers themselves, so that plans load quickly."""
