"""The yardstick: every method on every graph, held against posteriors with known moments, in one table.

consilience run posteriordb --posterior arK-arK --method nuts --method kinetic --graph ring
"""

from consilience.yardstick.cells import Cell, Request
from consilience.yardstick.methods import METHODS
from consilience.yardstick.page import write_page
from consilience.yardstick.table import NAME, complete_table, is_table, start_table

__all__ = ["METHODS", "NAME", "Cell", "Request", "complete_table", "is_table", "start_table", "write_page"]
