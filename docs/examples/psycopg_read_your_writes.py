"""Write an order with psycopg, and read it in the copy at once.

Needs PENSTOCK_URL, PENSTOCK_TOKEN, and DATABASE_URL of the source: postgresql://user@db.internal/shop
"""

import os

import psycopg

from penstock.client import Client


def main() -> None:
    with Client() as client, psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        with client.read_your_writes(connection):
            connection.execute("INSERT INTO orders (id, total) VALUES (%s, %s)", [1001, "19.90"])
            connection.commit()
        result = client.query("SELECT id, total FROM orders WHERE id = 1001")
        print(result.rows(), "at", result.position)


if __name__ == "__main__":
    main()
