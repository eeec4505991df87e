"""The cgroups above containers: which there are, what stands in them, and who keeps it so."""
