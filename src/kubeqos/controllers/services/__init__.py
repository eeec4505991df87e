"""Where services lead: the endpoints behind each, in EndpointSlices and in the older Endpoints.

Run by `manager.ControllerManager`. `endpoints`, `slices` and `subsets` are pure; `slicecontroller` and
`endpointscontroller` watch and perform, each what `selection` tells it to look at.
"""
