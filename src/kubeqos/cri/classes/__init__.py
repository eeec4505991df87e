"""Who has which class on a node, whichever way a runtime's events come: by the relay's calls or by NRI's.

`decisions` says who gets a class, what an update moves and what another configuration changes; `table` remembers it,
events in and effects out; both are pure. `keeper` drives the table and performs the effects, `enforce` calls the class
providers. Driven by `cri.relay` and by the agent of a stock node; knows the messages of neither.
"""
