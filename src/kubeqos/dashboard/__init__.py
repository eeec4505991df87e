"""The dashboard: a live page of nodes, classes, quotas and reasons, and the documented JSON behind it.

Put together by `kubeqos up`, which serves it under `/dashboard` of its API server, and by `kubeqos dashboard`, which
runs it beside any cluster as a client of its API. It reads; it never writes an object. What an identity may not read
from the API it does not see here.

The page is plain ES modules, one style sheet and no build step: there is no framework to keep up with, no Node to
install, the wheel holds what the browser runs, and a policy without inline script needs no exception.

    server     the routes: who asks, what is answered, in which headers
    sessions   one-time links and the sessions that they open
    sight      what an identity may see
    named      objects that roles name one by one, followed by their names
    feed       the objects, followed by the same watch as every component, and an hour of their past
    objects    those of one time, and what of them somebody may see
    present    objects to answers; `present.data` has their types, from which the schema is made
    answers    puts these together, for routes and streams
    rehearsal  "what if", in a process of its own
"""
