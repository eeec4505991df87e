"""The node agent: pods of one node from admission to their end, and what they may use meanwhile.

`run` is what `kubeqos node` and `cluster` call; `agent` joins the parts: `pod` decides, `admission` grants, `updates`
tells running containers, `runtime` and `cgroups` carry out, `pressure` makes room, `api` and `server` speak to others.
It knows the API server only by `client`, and the runtime only by CRI.
"""
