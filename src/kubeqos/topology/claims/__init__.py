"""Claims (KEP-3675) as values: from what a pod names to drivers and parameters, and who holds which CPUs by them.

Asked by the CCI manager on a node, by admission in the API server and by the scheduler, so that all three read the
same claims in the same way. Objects come in as they were fetched; no driver is called here.
"""
