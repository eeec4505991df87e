"""Queue and loop around `placement`: which pod next, where, bind, explain."""
