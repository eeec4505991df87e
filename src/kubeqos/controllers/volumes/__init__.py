"""Volumes and claims are brought together, as Kubernetes' volume controller does where nothing has to be made.

`binding` decides on values, `controller` follows; `ephemeral` makes claims for pods that describe them. Volumes are
provisioned by others; here they find their claims.
"""
