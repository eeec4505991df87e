"""NRI, the door that stock runtimes open to plugins: a small library that speaks it.

containerd (2.0 and newer) and CRI-O ask plugins while they make, change and end containers. The protocol has three
layers, and so has this room: `framing` cuts one socket into two byte streams and those into ttrpc messages (pure),
`events` knows the methods, their messages and which event each one is (pure), `link` carries calls over one socket in
both directions, and `plugin` is what a plugin's author uses: a class with a method for each event, and `serve`, which
registers, answers, and comes back when the runtime restarts.

Knows no Kubernetes and none of the other rooms but the ground floor.
"""
