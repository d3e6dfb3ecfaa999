"""Speed and memory as ratios, measured side by side: `make bench`, or `python -m benchmarks chains memory`.

Nothing here fails when a target is missed; the table says so in words. `notes.md` explains every number.

    setting.py            the mixture and its plans, which most contestants share, and our own ways to run a plan
    timing.py, table.py   how time is taken, how a comparison is shown
    numpy_loop.py, torch_eager.py, compiled_c.py, blackjax_sgld.py     the contestants on the mixture
    torch_a9a.py, torch_lenet.py                                       those on a9a and MNIST
    against_others.py, a9a.py, lenet.py, scaling.py, storing.py, memory.py     the comparisons
"""
