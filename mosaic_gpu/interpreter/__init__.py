"""The interpreter: runs a kernel's jaxpr with NumPy, and finds what is wrong with it.

It shares no code with the compiler, whose oracle it is.  `docs/interpreter.md` is the user's view.

    params       what a user may choose, and events
    call         from JAX to a run, and back
    kernel       a kernel, made ready
    run          one run of it over its grid
    machine      clusters, blocks and threads of a run
    blocks       blocks of whole arrays
    code         jaxprs with names resolved
    registry     rules of primitives: eval_*.py compute values, exec_*.py touch memory
    memory       memory, and the selections of it that references name
    indexing     from transforms of references to selections
    access       reads and writes with every check
    clocks       vector clocks and races
    scheduler    threads as greenlets
    barriers     mbarriers
    flights      asynchronous copies
    scratch      memory and barriers that a kernel asks for
    reports      what is done about a fault
    install      JAX's own parameters
"""
