"""A live page of a run or a network, in a browser: it reads run directories and what nodes answer, nothing else.

The numbers (`snapshot.py` and what it calls) are made without a browser and without a server; `views.py` and
`charts.py` show them; `serving.py` and `access.py` say to whom. The page is a process of its own that yields to all
others, so that sampling does not wait for it, and it has no handler that could write or send anything.
"""

from __future__ import annotations

import importlib.util

from consilience.errors import InputError


def require_packages() -> None:
    """Check that the packages of the extra `page` are there."""
    if importlib.util.find_spec("nicegui") is None:
        raise InputError("the live page needs nicegui: where Consilience is cloned, pip install '.[page]'")
