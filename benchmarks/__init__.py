"""Speed and memory as ratios, measured side by side: `make bench`, or `python -m benchmarks chains memory`.

Nothing here fails when a target is missed; the table says so in words. `notes.md` explains every number.

    setting.py            the problem and the plans that all contestants share
    timing.py, table.py   how time is taken, how a comparison is shown
    numpy_loop.py, torch_eager.py, compiled_c.py, blackjax_sgld.py     the contestants
    against_others.py, scaling.py, storing.py, memory.py               the comparisons
"""
