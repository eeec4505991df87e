"""Node lifecycle: silent nodes, their taints, and pods that nobody will end.

Run by `manager.ControllerManager`. `lifecycle` and `podsweep` decide from the objects and a time that is given to them;
`controller` and `PodSweeper` watch and perform. No clock of a node is believed.
"""
