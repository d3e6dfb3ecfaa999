"""Every agent a process of its own: it keeps its data, and its neighbours' messages arrive over a network (Zenoh)."""

from importlib.util import find_spec

from consilience.errors import NetworkError


def require_packages() -> None:
    """Check that the packages of the extra `peers` are installed."""
    missing = [name for name in ("zenoh", "cryptography", "msgspec", "prometheus_client") if find_spec(name) is None]
    if missing:
        raise NetworkError(f"nodes need {', '.join(missing)}: where Consilience is cloned, pip install '.[peers]'")
