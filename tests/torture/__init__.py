"""A whole cluster in virtual time, from a seed: real components on a simulated clock, disk and network, and faults.

`python -m tests.torture` (or `make torture`) runs seeds and prints them with what they violated; `test_torture` runs
the seeds that once found something. `virtualtime` is the event loop, `components` says who lives and who has died,
`network` and `disk` lose what real ones lose, `plan` draws the faults, `users` the work, `laws` says what must hold,
`world` puts it together, `campaign` runs many and finds the fewest faults that still break a law, `planted` has defects
that must be found.

`virtualtime` replaces the clocks of the process, so whoever runs a world in it is a process of his own.
"""
