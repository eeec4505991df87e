"""Resource quota: what an object uses (`charge`), which quotas it concerns (`scopes`), and the ledger that decides.

Called by admission (a write is decided and charged in the object's own transaction), by the quota controller (status,
audit) and by `kubeqos check`. The ledger is the truth: usage changes only by the difference between what an object was
and what it becomes, so that it always equals the sum over the live objects, in whatever order they came and went.
"""

from kubeqos.rules.quota.charge import Charge, charge_of, charge_pod, costs_the_same, enforced_on_update
from kubeqos.rules.quota.ledger import Deltas, Drift, OverQuota, QuotaLedger, Reason, WithinQuota, decide
from kubeqos.rules.quota.quota import Quota

__all__ = [
    "Charge",
    "Deltas",
    "Drift",
    "OverQuota",
    "Quota",
    "QuotaLedger",
    "Reason",
    "WithinQuota",
    "charge_of",
    "charge_pod",
    "costs_the_same",
    "decide",
    "enforced_on_update",
]
