"""Parts of ``benchmarks/accelerator.py``: what is measured, in which processes, and what it needs besides PyTorch."""
