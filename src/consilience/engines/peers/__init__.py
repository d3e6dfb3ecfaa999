"""Every agent a process of its own: it keeps its data, and its neighbours' messages arrive over a network (Zenoh)."""
