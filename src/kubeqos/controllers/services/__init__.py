"""Where services lead: the endpoints behind each, in EndpointSlices and in the older Endpoints.

Run by `manager.ControllerManager`. `endpoints`, `slices`, `subsets` and `mirroring` are pure; `slicecontroller`,
`endpointscontroller` and `mirrorcontroller` watch and perform, each what `selection` and `kept` tell it to look at.
"""
