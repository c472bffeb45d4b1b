"""Choosing among kernels: compiled side by side, then measured or estimated.

`autotune` is the function; `pool` compiles in processes of their own (`worker`), `measure` times on a GPU, `model` says
what to expect where there is none.
"""
