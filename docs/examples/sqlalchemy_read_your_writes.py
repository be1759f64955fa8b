"""Write an order with SQLAlchemy, and read it in the copy at once.

Needs PENSTOCK_URL, PENSTOCK_TOKEN, and DATABASE_URL of the source: postgresql://user@db.internal/shop
"""

import os
from decimal import Decimal

from sqlalchemy import create_engine, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from penstock.client import Client


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[Decimal]


def main() -> None:
    url = make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg")
    with Client() as client:
        engine = create_engine(url)
        with client.read_your_writes(engine), Session(engine) as session:
            session.add(Order(id=1002, total=Decimal("24.50")))
            session.commit()
        print(client.query("SELECT id, total FROM orders WHERE id = 1002").rows())
        engine.dispose()


if __name__ == "__main__":
    main()
