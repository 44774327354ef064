"""All interleavings of three charges of two processes, against a model of the ledger.

The model has three rules: an entry counts from its reservation until it is canceled; a
charge that would exceed the budget is refused; only what is reserved begins. The ledger
that runs follows each path of the model's graph of states.
"""

import itertools

import pytest

from dplda.privacy import BudgetError, Gaussian, Ledger, PoissonSampled, epsilon_of
from dplda.privacy._filters import choose_filter

DELTA = 1e-6
BUDGET = 4  # units of a charge
NOISE = 8.0


class Model:
    """What must be true of a ledger, whatever is done in whatever order."""

    def __init__(self):
        self.entries = {}  # units and status of each charge

    def spent(self):
        return sum(n for n, status in self.entries.values() if status != "canceled")

    def do(self, action, charge, units):
        """Do it, and say whether it is allowed."""
        _, status = self.entries.get(charge, (0, "refused"))
        if action == "reserve":
            if self.spent() + units > BUDGET:
                return False
            self.entries[charge] = units, "reserved"
        elif action == "begin":
            if status != "reserved":
                return False
            self.entries[charge] = units, "released"
        else:
            if status not in ("reserved", "canceled"):
                return False
            self.entries[charge] = units, "canceled"
        return True


def paths(units):
    """Orders of actions that together take every step of the graph of states.

    A charge is reserved, and then begun by its process, canceled by the other one, both
    in either order, or neither: the process was killed. Breadth first.
    """
    seen, reached, ends = set(), [()], []
    while reached:
        path = reached.pop(0)
        model, done = Model(), {}
        for action, charge in path:
            is_allowed = model.do(action, charge, units[charge])
            done.setdefault(charge, []).append((action, is_allowed))
        state = tuple((k, tuple(v)) for k, v in sorted(done.items()))
        if state in seen:
            ends.append(path)  # its last step is one more way to a known state
            continue
        seen.add(state)
        further = []
        for charge in range(len(units)):
            taken = [action for action, _ in done.get(charge, [])]
            if not taken:
                further.append(("reserve", charge))
            elif done[charge][0][1]:
                further += [
                    (action, charge)
                    for action in ("begin", "cancel")
                    if action not in taken
                ]
        reached += [(*path, step) for step in further]
        if not further:
            ends.append(path)
    return ends


def follow(ledger, path, units, event):
    """Let the ledger take a path, and compare each step with the model."""
    model, numbers = Model(), {}
    for action, charge in path:
        is_allowed = model.do(action, charge, units[charge])
        try:
            if action == "reserve":
                numbers[charge] = ledger.reserve(
                    "fit", "document", event(units[charge])
                )
            elif action == "begin":
                ledger.begin_release(numbers[charge])
            else:
                ledger.cancel(numbers[charge])
        except BudgetError:
            assert (action, is_allowed) == ("reserve", False)
        except ValueError:
            assert action != "reserve"
            assert not is_allowed
        else:
            assert is_allowed
    statuses = {entry.id: entry.status for entry in ledger.entries()}
    assert statuses == {
        numbers[charge]: status for charge, (_, status) in model.entries.items()
    }
    assert model.spent() <= BUDGET


def gaussian(units):
    """Gaussian noise: 1 / m^2 adds up, and is the number of units over NOISE^2."""
    return Gaussian(NOISE / units**0.5)


@pytest.mark.parametrize("composition", ["planned", "adaptive"])
@pytest.mark.parametrize("units", [(3, 1, 1), (2, 3, 1)])
def test_no_order_of_charges_exceeds_the_budget(units, composition):
    """Replaces "Together they never exceed the budget", and "an entry counts from ...
    on"."""
    epsilon = epsilon_of(gaussian(BUDGET), DELTA * 0.999) * (1 + 1e-9)
    budget = {"epsilon": epsilon, "delta": DELTA, "composition": composition}
    steps = set()
    for path in paths(units):
        follow(Ledger(**budget), path, units, gaussian)
        steps |= {path[:i] for i in range(len(path) + 1)}
    assert len(steps) > 150


@pytest.mark.slow
@pytest.mark.parametrize("units", [(1, 2, 3), (2, 2, 2)])
def test_no_order_of_charges_of_a_file_exceeds_the_budget(units, tmp_path):
    """Two ledgers of one file in turn, as two processes have them."""
    epsilon = epsilon_of(gaussian(BUDGET), DELTA) * (1 + 1e-9)
    for i, path in enumerate(paths(units)):
        one = Ledger(tmp_path / f"{i}.sqlite", epsilon=epsilon, delta=DELTA)
        follow(InTurn(one, Ledger(one.path)), path, units, gaussian)


class InTurn:
    """Each call goes to the other one of two ledgers."""

    def __init__(self, *ledgers):
        self.ledgers = itertools.cycle(ledgers)

    def __getattr__(self, name):
        return getattr(next(self.ledgers), name)


def test_every_order_of_a_filters_charges_ends_at_its_limit():
    """Costs of a filter add up: no order of equal and unequal charges has more room."""
    plan = (PoissonSampled(0.1, Gaussian(4.0)),) * 6
    chosen = choose_filter(plan, 0.0, 1.5, DELTA)
    kinds = [
        (PoissonSampled(0.1, Gaussian(4.0)),),
        (PoissonSampled(0.2, Gaussian(4.0)),),
    ]
    costs = [chosen.cost(kind, 0.0) for kind in kinds]
    room = {}
    for order in itertools.product((0, 1), repeat=6):
        used = chosen.used(sum(costs[i] for i in order))
        room.setdefault(sum(order), set()).add(used <= 1.0)
    assert all(len(found) == 1 for found in room.values())
    assert room[0] == {True}
