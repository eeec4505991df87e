"""What runs in simulated containers: programs, a small shell, scripted behaviour, and what they use as time passes.

Pure. Called by the simulated runtime's core and views; nothing here knows a socket, a file or the clock.
"""
