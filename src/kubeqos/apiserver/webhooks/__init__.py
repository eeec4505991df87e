"""Admission webhooks that are configured in the cluster: called before a write is stored.

`hooked` stands in for the ordinary writes while any webhook is configured (`Core.hooks`), and for nobody otherwise;
`calling` carries the questions. What they mean is decided in `rules.webhooks`.
"""
