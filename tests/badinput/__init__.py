"""Bad input by the million: `python -m tests.badinput` (`make badinput`).

`requests` draws requests from a seed: manifests of every kind, mutated, as JSON, YAML and protobuf, patches, queries,
headers, broken framing, sizes. `server` runs a real API server in a process of its own and looks at its memory and its
log, `sender` speaks to it on raw connections, `campaign` puts them together and counts. `messages` hands the messages
of runtimes, plugins and drivers to a coverage-guided fuzzer.
"""
