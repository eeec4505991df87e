"""Where services lead: the endpoints behind each, in EndpointSlices.

Run by `manager.ControllerManager`. `endpoints` is pure; `endpointcontroller` watches and performs.
"""
