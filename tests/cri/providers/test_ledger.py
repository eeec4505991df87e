"""The ledger: counts are what the holders say, whatever happens to them, and survive a restart."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from kubeqos.codec import decode_json, encode_json
from kubeqos.cri.providers.ledger import Assignment, Holder, Ledger
from kubeqos.cri.providers.protocol import Level, Place, Subject


def gold(**more) -> Holder:
    return Holder(Subject(Level.CONTAINER), {"rdt": Assignment("gold", explicit=True)}, **more)


def test_only_live_explicit_assignments_take_room():
    ledger = Ledger()
    ledger.put("a", gold())
    ledger.put("b", gold(alive=False))
    ledger.put("c", Holder(Subject(Level.CONTAINER), {"rdt": Assignment("gold")}))
    assert ledger.used("rdt", "gold") == 1
    ledger.put("a", gold(alive=False))
    assert ledger.used("rdt", "gold") == 0


def test_a_reservation_becomes_a_holder_and_is_not_saved_before():
    ledger = Ledger()
    ledger.put("create:1", gold())
    assert ledger.dump() == {}
    assert ledger.rename("create:1", "c1").subject.id == "c1"
    assert list(ledger.dump()) == ["c1"]
    assert ledger.used("rdt", "gold") == 1


class LedgerMachine(RuleBasedStateMachine):
    keys = Bundle("keys")

    def __init__(self):
        super().__init__()
        self.ledger = Ledger()

    @rule(target=keys, key=st.text("abc", min_size=1, max_size=2))
    def make_key(self, key):
        return key

    @rule(key=keys, name=st.sampled_from(["gold", "silver"]), explicit=st.booleans(), alive=st.booleans())
    def put(self, key, name, explicit, alive):
        classes = {"rdt": Assignment(name, explicit), "net": Assignment("", False)}
        self.ledger.put(key, Holder(Subject(Level.CONTAINER, id=key), classes, alive, Place(3, "/x")))

    @rule(key=keys)
    def die(self, key):
        if holder := self.ledger.get(key):
            self.ledger.put(key, replace(holder, alive=False))

    @rule(key=keys)
    def remove(self, key):
        self.ledger.remove(key)

    @rule(key=keys, new=keys)
    def rename(self, key, new):
        if self.ledger.get(key):
            self.ledger.rename(key, new)

    @invariant()
    def counts_hold_and_a_restart_changes_nothing(self):
        self.ledger.validate()
        again = Ledger.load(decode_json(encode_json(self.ledger.dump())))
        assert dict(iter(again)) == dict(iter(self.ledger))
        assert again.used("rdt", "gold") == self.ledger.used("rdt", "gold")


LedgerMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20)
TestLedger = LedgerMachine.TestCase
