"""Hashes choose buckets and places only: keys and images whose hashes collide are distinguished by their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.model.schema import KeyMode
from engine.net import change_kernels
from engine.net.change_kernels import Chains, Changes, Refs
from engine.platform.compiled import Array
from tests.unit.net import pgoutput_encoder as pgoutput
from tests.unit.net.batch_builder import column, net, rows, table


def test_keys_with_one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    read_keys = change_kernels.read_keys

    def collide(data: Array, changes: Changes, layout: Any, refs: Refs, *places: Array) -> Any:
        outcome = read_keys(data, changes, layout, refs, *places)
        refs.hash[:] = np.uint64(2**64 - 1)
        return outcome

    monkeypatch.setattr(change_kernels, "read_keys", collide)
    schema = table([column("id"), column("v")], ["id"], oid=1)
    records = [pgoutput.insert(1, [key, "x"]) for key in ("a", "b", "c", "d", "e")]
    records += [pgoutput.update(1, ["b", "y"]), pgoutput.update(1, ["f", "z"], ["c", None], "K")]
    changes = net([*records, pgoutput.delete(1, ["d", None], "K")], schema)
    assert sorted(rows(changes.inserts)) == [("a", "x"), ("b", "y"), ("e", "x"), ("f", "z")]
    assert changes.fault is None


def test_images_with_one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    def collide(_: Array, refs: Refs) -> None:
        refs.hash[:] = np.uint64(3)

    monkeypatch.setattr(change_kernels, "hash_refs", collide)
    schema = table([column("a"), column("b")], mode=KeyMode.BAG, oid=1)
    changes = net(
        [pgoutput.insert(1, ["a", "x"]), pgoutput.insert(1, ["a", "y"]), pgoutput.delete(1, ["a", "x"])], schema
    )
    assert rows(changes.inserts) == [("a", "y")]
    assert changes.deletes is None


def _buckets(moves: list[tuple[int, int]], hashes: list[int], buckets: int) -> list[int]:
    """Buckets of updates from key to key; key n has hash `hashes[n]`."""
    before, after = (np.array(side, np.int32) for side in zip(*moves, strict=True))
    found = np.empty(len(moves), np.int32)
    chains = Chains(np.full(64, -1, np.int32), np.empty(32, np.uint64), np.empty(32, np.int32))
    change_kernels.assign_buckets(np.array(hashes, np.uint64), before, after, chains, buckets, found)
    return [int(bucket) for bucket in found]


def test_a_chain_goes_to_the_bucket_of_its_first_key() -> None:
    hashes = [10, 11, 12, 13, 14, 15]
    assert _buckets([(0, 1), (1, 2), (2, 2)], hashes, 5) == [0, 0, 0]
    # Two chains, 3-4 and 1-2, grow together: 3 was there first.
    assert _buckets([(3, 4), (1, 2), (2, 4), (1, 1), (5, 5)], hashes, 5) == [3, 3, 3, 3, 0]


def test_keys_outside_chains_go_by_their_hash() -> None:
    assert _buckets([(n, n) for n in range(6)], [0, 1, 2, 2**64 - 1, 2**63, 5], 3) == [0, 1, 2, 0, 2, 2]
