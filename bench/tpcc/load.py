"""The initial rows of the database, generated here and loaded by COPY."""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random

from bench.tpcc.inputs import LOAD_NAME_C, NAMES, last_name, nurand
from bench.tpcc.schema import DISTRICTS, Connection, Scale

_BLOCK = 1_000
"""Rows per message."""
_POOL = 1 << 16
_PAYMENT = 10
"""The initial payments of every customer."""
_NULL = "\\N"


class _Text:
    """Random letters and digits, as slices of one long random text: a hundred times faster than drawing each."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._pool = "".join(rng.choices(string.ascii_letters + string.digits, k=_POOL))

    def exactly(self, length: int) -> str:
        start = int(self._rng.random() * (_POOL - length))
        return self._pool[start : start + length]

    def between(self, shortest: int, longest: int) -> str:
        return self.exactly(shortest + int(self._rng.random() * (longest - shortest + 1)))

    def data(self) -> str:
        """The description of an item or stock row; one in ten contains ORIGINAL."""
        text = self.between(26, 50)
        if self._rng.random() >= 0.1:
            return text
        start = self._rng.randint(0, len(text) - 8)
        return f"{text[:start]}ORIGINAL{text[start + 8 :]}"

    def place(self) -> list[str]:
        """Two streets, city, state and postal code."""
        parts = [self.between(10, 20) for _ in range(3)]
        return [
            *parts,
            "".join(self._rng.choices(string.ascii_uppercase, k=2)),
            f"{self._rng.randint(0, 9999):04d}11111",
        ]


class Loader:
    """Generates the rows of each table as lines in COPY's text format; no value needs escaping.

    `now` is the creation time of all rows.
    """

    def __init__(self, scale: Scale, seed: int, now: str) -> None:
        self._scale = scale
        self._rng = Random(f"{seed}/load")  # noqa: S311
        self._text = _Text(self._rng)
        self._now = now

    def items(self) -> Iterator[str]:
        rng, text = self._rng, self._text
        for number in range(1, self._scale.items + 1):
            price = _money(rng.randint(100, 10_000))
            yield f"{number}\t{rng.randint(1, 10_000)}\t{text.between(14, 24)}\t{price}\t{text.data()}\n"

    def warehouses(self) -> Iterator[str]:
        ytd = DISTRICTS * self._scale.customers * _PAYMENT
        for warehouse in range(1, self._scale.warehouses + 1):
            yield _line(warehouse, *self._named_place(), self._share(2000), ytd)

    def districts(self, warehouse: int) -> Iterator[str]:
        customers = self._scale.customers
        for district in range(1, DISTRICTS + 1):
            ytd = customers * _PAYMENT
            yield _line(warehouse, district, *self._named_place(), self._share(2000), ytd, customers + 1)

    def stock(self, warehouse: int) -> Iterator[str]:
        rng, text = self._rng, self._text
        for item in range(1, self._scale.items + 1):
            sheets = "\t".join([text.exactly(24) for _ in range(DISTRICTS)])
            yield f"{warehouse}\t{item}\t{rng.randint(10, 100)}\t{sheets}\t0\t0\t0\t{text.data()}\n"

    def customers(self, warehouse: int, district: int) -> Iterator[str]:
        rng, text = self._rng, self._text
        for number in range(1, self._scale.customers + 1):
            name = last_name(number - 1 if number <= NAMES else nurand(rng, 255, 0, NAMES - 1, LOAD_NAME_C))
            phone = f"{rng.randrange(10**16):016d}"
            credit = "BC" if rng.random() < 0.1 else "GC"
            money = (50_000, self._share(5000), -_PAYMENT, _PAYMENT, 1, 0)
            who = (
                warehouse,
                district,
                number,
                text.between(8, 16),
                "OE",
                name,
                *text.place(),
                phone,
                self._now,
                credit,
            )
            yield _line(*who, *money, text.between(300, 500))

    def history(self, warehouse: int, district: int) -> Iterator[str]:
        for number in range(1, self._scale.customers + 1):
            place = (number, district, warehouse, district, warehouse)
            yield _line(*place, self._now, _PAYMENT, self._text.between(12, 24))

    def orders(self, warehouse: int, district: int) -> tuple[list[str], list[str], list[str]]:
        """The lines of orders, order lines and new orders of a district: one order per customer."""
        rng, text, delivered = self._rng, self._text, self._scale.delivered
        buyers = list(range(1, self._scale.customers + 1))
        rng.shuffle(buyers)
        orders, lines = [], []
        for number, buyer in enumerate(buyers, start=1):
            done, count = number <= delivered, rng.randint(5, 15)
            carrier = rng.randint(1, 10) if done else _NULL
            orders.append(_line(warehouse, district, number, buyer, self._now, carrier, count, 1))
            for line in range(1, count + 1):
                item, date = rng.randint(1, self._scale.items), self._now if done else _NULL
                amount = "0.00" if done else _money(rng.randint(1, 999_999))
                what = f"{item}\t{warehouse}\t{date}\t5\t{amount}\t{text.exactly(24)}"
                lines.append(f"{warehouse}\t{district}\t{number}\t{line}\t{what}\n")
        waiting = [_line(warehouse, district, number) for number in range(delivered + 1, len(buyers) + 1)]
        return orders, lines, waiting

    def _named_place(self) -> list[str]:
        return [self._text.between(6, 10), *self._text.place()]

    def _share(self, most: int) -> str:
        """A fraction with four decimals, from zero to `most` ten-thousandths."""
        return f"0.{self._rng.randint(0, most):04d}"


def load(connection: Connection, scale: Scale, seed: int = 1) -> None:
    """Fill the empty tables. The same seed gives the same rows, except for their times."""
    row = connection.execute("SELECT now()::text").fetchone()
    if row is None:
        raise AssertionError("the statement returns a row")
    rows = Loader(scale, seed, str(row[0]))
    _copy(connection, "item", rows.items())
    _copy(connection, "warehouse", rows.warehouses())
    for warehouse in range(1, scale.warehouses + 1):
        _copy(connection, "district", rows.districts(warehouse))
        _copy(connection, "stock", rows.stock(warehouse))
        for district in range(1, DISTRICTS + 1):
            _copy(connection, "customer", rows.customers(warehouse, district))
            _copy(connection, "history", rows.history(warehouse, district))
            orders, lines, waiting = rows.orders(warehouse, district)
            _copy(connection, "orders", orders)
            _copy(connection, "order_line", lines)
            _copy(connection, "new_order", waiting)


def _copy(connection: Connection, table: str, lines: Iterable[str]) -> None:
    source = iter(lines)
    with connection.cursor().copy(f"COPY tpcc.{table} FROM STDIN".encode()) as copy:
        while block := "".join(islice(source, _BLOCK)):
            copy.write(block)


def _line(*fields: object) -> str:
    return "\t".join(map(str, fields)) + "\n"


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"
