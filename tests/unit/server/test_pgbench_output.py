"""What is read from pgbench's output, as pgbench of PostgreSQL 18 prints it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.demo.pgbench import Output

HEAD = """\
pgbench (18.4)
transaction type: multiple scripts
query mode: prepared
number of transactions actually processed: {processed}
number of failed transactions: {failed} ({share:.3f}%)
number of transactions retried: 6 (0.176%)
total number of retries: {retries}
tps = 489.390912 (without initial connection time)
"""
SCRIPT = """\
SQL script {number}: /tmp/penstock-demo-pg-x1/load/{name}.sql
 - weight: 40 (targets 40.0% of total)
 - {all} transactions (39.8% of total)
 - number of transactions actually processed: {processed} (tps = 194.767952)
 - number of failed transactions: {failed} (0.000%)
 - number of transactions retried: 6 (0.176%)
 - total number of retries: {retries}
 - latency average = 5.225 ms
"""
NUMBERS = st.tuples(*[st.integers(0, 10**7)] * 3)


def output_of(text: str) -> Output:
    output = Output()
    for line in text.splitlines(keepends=True):
        output.add(line)
    return output


def progress(second: float, rate: float, failed: int = 0, retries: int = 0) -> str:
    latency = "lat 3.473 ms stddev 4.806"
    return f"progress: {second:.1f} s, {rate:.1f} tps, {latency}, {failed} failed, lag 1.167 ms, 2 retried, {retries} retries\n"


@given(st.lists(st.tuples(st.floats(0.5, 3), st.integers(0, 2000), st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_progress_adds_up(intervals: list[tuple[float, int, int, int]]) -> None:
    now, lines, ended = 0.0, "pgbench (18.4)\n", 0
    for took, count, failed, retries in intervals:
        now += took
        ended += count
        lines += progress(now, count / took, failed, retries)
    output = output_of(lines)
    # Times and rates have one decimal.
    assert output.ended == pytest.approx(ended, rel=0.11, abs=0.4 * len(intervals))
    assert output.failed == sum(failed + retries for _, _, failed, retries in intervals)
    assert not output.of_scripts


@given(st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,20}", fullmatch=True), NUMBERS, min_size=2, max_size=8))
def test_statistics_replace_what_progress_said(scripts: dict[str, tuple[int, int, int]]) -> None:
    processed, failed, retries = (sum(counts) for counts in zip(*scripts.values(), strict=True))
    text = progress(1, 480.5, failed=3, retries=4)
    text += HEAD.format(processed=processed, failed=failed, share=0.1, retries=retries)
    for number, (name, counts) in enumerate(scripts.items(), 1):
        figures = dict(zip(("processed", "failed", "retries"), counts, strict=True))
        text += SCRIPT.format(number=number, name=name, all=counts[0] + counts[1], **figures)
    output = output_of(text)
    assert output.of_scripts == {name: counts[0] for name, counts in scripts.items()}
    assert output.failed == failed + retries
    assert output.error is None


def test_first_error_without_its_details() -> None:
    error = (
        'client 0 script 3 aborted in command 4: ERROR:  duplicate key value violates unique constraint "stock_pkey"'
    )
    details = "DETAIL:  Key (warehouse, sku)=(1, SKU-00001) already exists."
    output = output_of(
        f"pgbench: error: {error}\n{details}\npgbench: error: Run was aborted due to an error in thread 0\n"
    )
    assert output.error == error


def test_error_of_starting_it() -> None:
    text = "Traceback (most recent call last):\n  os.execv(command[0], command)\nFileNotFoundError: [Errno 2] No such file or directory\n"
    assert output_of(text).error == "FileNotFoundError: [Errno 2] No such file or directory"
