"""Who holds classes: counts are what the holders say, whatever happens to them, and survive a restart."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from kubeqos.codec import decode_json, encode_json
from kubeqos.cri.providers.holders import Assignment, ClassHolders, Holder
from kubeqos.cri.providers.protocol import Level, Place, Subject


def gold(**more) -> Holder:
    return Holder(Subject(Level.CONTAINER), {"rdt": Assignment("gold", explicit=True)}, **more)


def test_only_live_explicit_assignments_take_room():
    holders = ClassHolders()
    holders.put("a", gold())
    holders.put("b", gold(alive=False))
    holders.put("c", Holder(Subject(Level.CONTAINER), {"rdt": Assignment("gold")}))
    assert holders.used("rdt", "gold") == 1
    holders.put("a", gold(alive=False))
    assert holders.used("rdt", "gold") == 0


def test_a_reservation_becomes_a_holder_and_is_not_saved_before():
    holders = ClassHolders()
    holders.put("create:1", gold())
    assert holders.dump() == {}
    assert holders.rename("create:1", "c1").subject.id == "c1"
    assert list(holders.dump()) == ["c1"]
    assert holders.used("rdt", "gold") == 1


class LedgerMachine(RuleBasedStateMachine):
    keys = Bundle("keys")

    def __init__(self):
        super().__init__()
        self.holders = ClassHolders()

    @rule(target=keys, key=st.text("abc", min_size=1, max_size=2))
    def make_key(self, key):
        return key

    @rule(key=keys, name=st.sampled_from(["gold", "silver"]), explicit=st.booleans(), alive=st.booleans())
    def put(self, key, name, explicit, alive):
        classes = {"rdt": Assignment(name, explicit), "net": Assignment("", False)}
        self.holders.put(key, Holder(Subject(Level.CONTAINER, id=key), classes, alive, Place(3, "/x")))

    @rule(key=keys)
    def die(self, key):
        if holder := self.holders.get(key):
            self.holders.put(key, replace(holder, alive=False))

    @rule(key=keys)
    def remove(self, key):
        self.holders.remove(key)

    @rule(key=keys, new=keys)
    def rename(self, key, new):
        if self.holders.get(key):
            self.holders.rename(key, new)

    @invariant()
    def counts_hold_and_a_restart_changes_nothing(self):
        self.holders.validate()
        again = ClassHolders.load(decode_json(encode_json(self.holders.dump())))
        assert dict(iter(again)) == dict(iter(self.holders))
        assert again.used("rdt", "gold") == self.holders.used("rdt", "gold")


LedgerMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20)
TestLedger = LedgerMachine.TestCase
