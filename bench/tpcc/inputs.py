"""Random choices as the specification defines them: skewed numbers, last names, and the inputs of each transaction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

from bench.tpcc.schema import DISTRICTS, Scale

SYLLABLES = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")
NAMES = 1_000
"""The number of different last names."""

LOAD_NAME_C = 100
RUN_NAME_C = 187
"""The constants of last names, in the load and in the transactions.

The specification requires a difference of 65 to 119, except 96 and 112.
"""


class Kind(StrEnum):
    """The five transactions."""

    NEW_ORDER = "new_order"
    PAYMENT = "payment"
    ORDER_STATUS = "order_status"
    DELIVERY = "delivery"
    STOCK_LEVEL = "stock_level"


MIX: dict[Kind, int] = {
    Kind.NEW_ORDER: 45,
    Kind.PAYMENT: 43,
    Kind.ORDER_STATUS: 4,
    Kind.DELIVERY: 4,
    Kind.STOCK_LEVEL: 4,
}
"""The share of each kind, in percent."""


def last_name(number: int) -> str:
    """The last name for the three digits of a number below 1000."""
    return SYLLABLES[number // 100] + SYLLABLES[number // 10 % 10] + SYLLABLES[number % 10]


def nurand(rng: Random, a: int, low: int, high: int, c: int) -> int:
    """A non-uniform random number from `low` to `high` (the specification's NURand)."""
    return ((rng.randint(0, a) | rng.randint(low, high)) + c) % (high - low + 1) + low


@dataclass(frozen=True, slots=True)
class Skew:
    """The constants of a run's skewed choices."""

    name: int
    customer: int
    item: int

    @classmethod
    def drawn(cls, rng: Random) -> Skew:
        return cls(RUN_NAME_C, rng.randint(0, 1023), rng.randint(0, 8191))


class Inputs:
    """Draws transactions and their inputs: `draw` returns a kind and the parameters of its call.

    A client represents any terminal, so home warehouse and district are drawn for each transaction. Arrays are array
    literals, so that one prepared statement serves all numbers.
    """

    def __init__(self, scale: Scale, rng: Random, skew: Skew) -> None:
        self._scale = scale
        self._rng = rng
        self._skew = skew
        self._kinds = list(MIX)
        self._weights = list(MIX.values())
        self._draws = {
            Kind.NEW_ORDER: self.new_order,
            Kind.PAYMENT: self.payment,
            Kind.ORDER_STATUS: self.order_status,
            Kind.DELIVERY: self.delivery,
            Kind.STOCK_LEVEL: self.stock_level,
        }

    def draw(self) -> tuple[Kind, list[str | None]]:
        kind = self._rng.choices(self._kinds, self._weights)[0]
        return kind, self._draws[kind]()

    def new_order(self) -> list[str | None]:
        """Warehouse, district, customer; items, supplying warehouses and quantities of the lines.

        One in a hundred has a last item that does not exist, and is therefore rolled back. Lines are in the order of
        their stock rows, so that orders may wait for each other but never deadlock.
        """
        rng, home = self._rng, self._warehouse()
        lines = sorted((self._supplier(home), self._item(), rng.randint(1, 10)) for _ in range(rng.randint(5, 15)))
        if rng.randint(1, 100) == 1:
            lines[-1] = (home, self._scale.items + 1, lines[-1][2])
        suppliers, items, quantities = ("{" + ",".join(map(str, column)) + "}" for column in zip(*lines, strict=True))
        return [str(home), self._district(), self._customer(), items, suppliers, quantities]

    def payment(self) -> list[str | None]:
        """Warehouse, district; the customer's warehouse, district, and id or last name; the amount."""
        home, district = self._warehouse(), self._district()
        theirs, their_district = home, district
        if self._rng.randint(1, 100) > 85:
            theirs, their_district = self._other_warehouse(home), self._district()
        cents = self._rng.randint(100, 500_000)
        amount = f"{cents // 100}.{cents % 100:02d}"
        return [str(home), district, str(theirs), their_district, *self._who(), amount]

    def order_status(self) -> list[str | None]:
        """The customer's warehouse, district, and id or last name."""
        return [str(self._warehouse()), self._district(), *self._who()]

    def delivery(self) -> list[str | None]:
        """Warehouse and carrier."""
        return [str(self._warehouse()), str(self._rng.randint(1, 10))]

    def stock_level(self) -> list[str | None]:
        """Warehouse, district and threshold."""
        return [str(self._warehouse()), self._district(), str(self._rng.randint(10, 20))]

    def _warehouse(self) -> int:
        return self._rng.randint(1, self._scale.warehouses)

    def _other_warehouse(self, home: int) -> int:
        """Any warehouse but `home`; `home` if it is the only one."""
        if self._scale.warehouses == 1:
            return home
        other = self._rng.randint(1, self._scale.warehouses - 1)
        return other + (other >= home)

    def _supplier(self, home: int) -> int:
        return self._other_warehouse(home) if self._rng.randint(1, 100) == 1 else home

    def _district(self) -> str:
        return str(self._rng.randint(1, DISTRICTS))

    def _item(self) -> int:
        return nurand(self._rng, 8191, 1, self._scale.items, self._skew.item)

    def _customer(self) -> str:
        return str(nurand(self._rng, 1023, 1, self._scale.customers, self._skew.customer))

    def _who(self) -> tuple[str | None, str | None]:
        """A customer by id, or in six of ten cases by a last name that exists in every district."""
        if self._rng.randint(1, 100) > 60:
            return self._customer(), None
        highest = min(NAMES, self._scale.customers) - 1
        return None, last_name(nurand(self._rng, 255, 0, highest, self._skew.name))
