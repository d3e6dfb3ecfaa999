"""Where steps are made: engines differ only in how the other agents' values arrive.

`simulate` keeps all agents in one program, `mesh` spreads them over devices and hosts, `peers` makes each a process.
"""
