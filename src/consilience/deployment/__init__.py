"""Processes of their own: nodes of a network on their machines, and processes of a mesh that are watched over."""
