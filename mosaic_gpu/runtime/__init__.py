"""Running a compiled kernel: one interface, behind it the simulator or a GPU."""
