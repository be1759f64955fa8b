"""Two tasks of a workflow: one writes on the source, the next continues when that is visible in the copy.

They are plain functions. In Airflow each is a task, and the position goes from one to the other as its return value:

    from airflow.sdk import dag, task

    @dag(schedule="@hourly")
    def orders():
        wait_until_visible = task(retries=3)(airflow_wait.wait_until_visible)
        wait_until_visible(task(airflow_wait.write)())

Needs PENSTOCK_URL, PENSTOCK_TOKEN, and DATABASE_URL of the source.
"""

import os

import psycopg

from penstock.client import Client, position_after


def write() -> str:
    """Write, and return a position at or after the commit."""
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        connection.execute("INSERT INTO orders (id, total) VALUES (1003, 7)")
        connection.commit()
        return position_after(connection)


def wait_until_visible(position: str) -> str:
    """Return the position that is applied, at or after `position`.

    FreshnessTimeout and Unavailable may be retried; FreshnessUnreachable needs the operator, and `remedy` says what to do.
    """
    with Client() as client:
        return client.wait(position, tables=["public.orders"], timeout=600).applied


if __name__ == "__main__":
    print(wait_until_visible(write()))
