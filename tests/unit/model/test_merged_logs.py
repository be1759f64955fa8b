"""The state of a source of several logs: its rules one by one, and its stored form."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.fault import EngineFault, FaultKind
from engine.model.last_commit import LastCommit
from engine.model.merged_logs import (
    MOST_BYTES,
    MOST_NODES,
    LogsMessage,
    MergedLogs,
    NodeCommits,
    NodeLog,
    commit_mark,
)
from engine.model.position import Lsn
from engine.model.subscription import OriginFilter

_T = 1_700_000_000_000_000
positions = st.integers(0, 2**64 - 1).map(Lsn)
gtids = st.text(
    st.one_of(
        st.sampled_from(' "\\{}[]:,=/\x01\x7f'),
        st.characters(min_codepoint=1),
        # How bytes outside UTF-8 are read.
        st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF, categories=["Cs"]),
    ),
    max_size=60,
) | st.sampled_from(["uncertain", " uncertain", "logs=", ' logs={"nodes":[]}', "\\u0020", "\\ "])
node_numbers = st.integers(0, MOST_NODES - 1)
times = st.integers(0, 2**62)


@st.composite
def states(draw: st.DrawFn) -> MergedLogs:
    log = st.builds(NodeLog, positions, positions, positions, st.integers(-(2**63), 2**63 - 1))
    nodes = draw(st.lists(log, min_size=1, max_size=5) | st.lists(log, min_size=MOST_NODES, max_size=MOST_NODES))
    numbers = st.lists(st.integers(0, len(nodes) - 1), min_size=1, unique=True).map(lambda each: tuple(sorted(each)))
    return MergedLogs(tuple(nodes), draw(st.dictionaries(gtids, numbers, max_size=5)))


def started(*read: int) -> MergedLogs:
    state = MergedLogs.begun(LogsMessage(read=tuple((node, Lsn(end)) for node, end in enumerate(read))))
    assert state is not None
    return state


def one(end: int, time_us: int = _T, before: int | None = None, first: int | None = None) -> NodeCommits:
    return NodeCommits(Lsn(end if first is None else first), None if before is None else Lsn(before), Lsn(end), time_us)


@settings(max_examples=300, deadline=None)
@given(states())
def test_a_state_is_stored_in_one_word_of_ascii_and_read_back(state: MergedLogs) -> None:
    text = state.text
    assert text.isascii()
    assert not set(text) & set(string.whitespace)
    assert MergedLogs.parse(text) == state
    assert MergedLogs.parse(text).text == text
    backwards = MergedLogs(state.nodes, dict(reversed(state.open.items())))
    assert (backwards, backwards.text) == (state, text)


@settings(max_examples=300, deadline=None)
@given(states(), positions, positions, st.integers(0, 2**62), st.sampled_from(OriginFilter), st.booleans())
def test_the_last_transaction_is_stored_with_the_state(
    state: MergedLogs, after: Lsn, end: Lsn, time_us: int, origin: OriginFilter, certain: bool
) -> None:
    last = LastCommit(after, end, time_us, origin, certain, state)
    text = str(last)
    assert LastCommit.parse(text) == last
    # An earlier version splits the text in this way and ignores words that it does not know.
    words = text.split(" ")
    plain = " ".join(words[:-1])
    assert ("uncertain" not in words[4:]) == certain
    assert LastCommit.parse(plain) == LastCommit(after, end, time_us, origin, certain)
    assert str(LastCommit.parse(plain)) == plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0/10 0/20 5 any", LastCommit(Lsn(16), Lsn(32), 5)),
        ("0/10 0/20 5 none uncertain", LastCommit(Lsn(16), Lsn(32), 5, OriginFilter.NONE, certain=False)),
        (
            '0/10 0/20 5 any logs={"nodes":[["0/A","0/8","0/9",7],["1/0","1/0","1/0",0]],"open":{"a\\u0020b":[0,1]}}',
            LastCommit(
                Lsn(16),
                Lsn(32),
                5,
                logs=MergedLogs((NodeLog(Lsn(10), Lsn(8), Lsn(9), 7), NodeLog.unknown(Lsn(2**32))), {"a b": (0, 1)}),
            ),
        ),
    ],
)
def test_the_stored_form_does_not_change(text: str, expected: LastCommit) -> None:
    assert LastCommit.parse(text) == expected
    assert str(expected) == text


def test_a_last_transaction_that_is_unknown_keeps_the_state() -> None:
    state = started(5, 7)
    assert LastCommit.unknown(Lsn(9), OriginFilter.NONE, state) == LastCommit(
        Lsn(9), Lsn(9), 0, OriginFilter.NONE, logs=state
    )
    assert hash(LastCommit.unknown(Lsn(9), logs=state)) == hash(LastCommit.unknown(Lsn(9), logs=started(5, 7)))


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda e: st.lists(e) | st.dictionaries(st.sampled_from(["nodes", "open", "x"]), e),
    )
)
def test_a_text_of_another_form_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="expected form"):
        MergedLogs.parse(json.dumps(value))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"nodes":[],"open":{}}',
        '{"nodes":[["0/1","0/1",1]],"open":{}}',
        '{"nodes":[["0/1","0/1","0/1",1]]}',
        '{"nodes":[["0/1","0/1","x",1]],"open":{}}',
        '{"nodes":[["0/1","0/1","0/1",1]],"open":{"g":[64]}}',
        '{"nodes":[["0/1","0/1","0/1",1]],"open":{"g":[true]}}',
        '{"nodes":[["0/1","0/1","0/1",1]],"open":{"g":["0"]}}',
        '{"nodes":[' + ",".join(['["0/1","0/1","0/1",1]'] * 65) + '],"open":{}}',
    ],
)
def test_a_text_with_one_mistake_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected form"):
        MergedLogs.parse(text)


def test_a_state_of_too_many_open_transactions_is_a_fault_that_is_retried() -> None:
    nodes = (NodeLog(*[Lsn(2**64 - 1)] * 3, _T),) * MOST_NODES
    fits = {f"{n:0199d}": (63,) for n in range(285)}
    room = MOST_BYTES - len(MergedLogs(nodes, {**fits, "x": (63,)}).text)
    assert len(MergedLogs(nodes, {**fits, "x" * (room + 1): (63,)}).text) == MOST_BYTES
    with pytest.raises(EngineFault):
        _ = MergedLogs(nodes, {**fits, "x" * (room + 2): (63,)}).text
    with pytest.raises(EngineFault) as caught:
        _ = MergedLogs(nodes, {f"{n:0199d}": (5, 63) for n in range(400)}).text
    assert caught.value.kind is FaultKind.NODE_SILENT
    assert caught.value.detail == "400 published global transactions wait for their commits on nodes [5, 63]"


messages = st.builds(
    LogsMessage,
    st.lists(st.tuples(gtids, st.lists(node_numbers, max_size=4).map(tuple)), max_size=3).map(tuple),
    st.lists(st.tuples(gtids, node_numbers, positions, times), max_size=3).map(tuple),
    st.lists(st.tuples(node_numbers, positions), max_size=3).map(tuple),
    st.lists(positions, max_size=3).map(tuple),
)


@settings(max_examples=300, deadline=None)
@given(messages)
def test_a_message_is_written_as_ascii_and_read_back(message: LogsMessage) -> None:
    content = message.content
    assert content.isascii()
    assert LogsMessage.parse(content) == message
    names = ("published", "closed", "read", "kept")
    assert set(json.loads(content)) == {name for name in names if getattr(message, name)}


def test_the_form_of_a_message_does_not_change() -> None:
    message = LogsMessage((("g 1", (0, 2)), ("h", ())), (("g", 1, Lsn(0x1_0000_00AB), 7),), ((0, Lsn(16)),))
    text = b'{"published":[["g\\u00201",[0,2]],["h",[]]],"closed":[["g",1,"1/AB",7]],"read":[[0,"0/10"]]}'
    assert message.content == text
    assert LogsMessage.parse(b'{ "read": [[0, "0/10"]], "later": 1 }') == LogsMessage(read=((0, Lsn(16)),))
    assert (LogsMessage().content, LogsMessage.parse(b"{}")) == (b"{}", LogsMessage())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"1",
        b'{"read":1}',
        b'{"read":[[0]]}',
        b'{"read":[[0,1]]}',
        b'{"read":[["0","0/1"]]}',
        b'{"read":[[64,"0/1"]]}',
        b'{"read":[[-1,"0/1"]]}',
        b'{"read":[[0,"0/1","0/2"]]}',
        b'{"read":[[0.0,"0/1"]]}',
        b'{"read":[[false,"0/1"]]}',
        b'{"read":[[0,"0/G"]]}',
        b'{"published":[[1,[0]]]}',
        b'{"published":[["g",0]]}',
        b'{"closed":[["g","0/1",0]]}',
        b'{"closed":[["g",0,"0/1"]]}',
        b'{"closed":[["g",0,"0/1","now"]]}',
        b'{"closed":null}',
        b'{"kept":[1]}',
        b'{"kept":"0/1"}',
        b"[" * 100_000,
    ],
)
def test_a_message_of_another_form_is_unreadable(content: bytes) -> None:
    with pytest.raises(EngineFault) as caught:
        LogsMessage.parse(content)
    assert caught.value.kind is FaultKind.LOG_UNREADABLE


@given(node_numbers, st.integers(0, 2**56 - 1))
def test_a_mark_names_node_and_position(node: int, end: int) -> None:
    mark = commit_mark(node, Lsn(end))
    assert (mark >> 56, mark & (2**56 - 1)) == (node, end)
    assert mark < 2**62


@pytest.mark.parametrize(("node", "end"), [(-1, 1), (MOST_NODES, 1), (0, 2**56)])
def test_what_has_no_mark_is_a_fault(node: int, end: int) -> None:
    with pytest.raises(EngineFault) as caught:
        commit_mark(node, Lsn(end))
    assert caught.value.kind is FaultKind.INTERNAL


def test_a_state_begins_with_a_message_about_all_nodes() -> None:
    assert MergedLogs.begun(LogsMessage()) is None
    assert MergedLogs.begun(LogsMessage(read=((1, Lsn(5)),))) is None
    assert MergedLogs.begun(LogsMessage(read=((2, Lsn(5)), (0, Lsn(5)), (2, Lsn(6))))) is None
    message = LogsMessage((("g", (1,)),), (("g", 0, Lsn(9), 1),), ((1, Lsn(5)), (0, Lsn(7)), (1, Lsn(3))))
    begun = MergedLogs.begun(message)
    assert begun == MergedLogs((NodeLog(Lsn(9), Lsn(7), Lsn(7), 0), NodeLog.unknown(Lsn(5))), {"g": (1,)})


def test_positions_only_rise() -> None:
    state = started(5, 7).with_messages([LogsMessage(read=((0, Lsn(3)), (1, Lsn(9))))])
    assert [log.read for log in state.nodes] == [Lsn(5), Lsn(9)]
    assert [(log.after, log.end, log.time_us) for log in state.nodes] == [(Lsn(5), Lsn(5), 0), (Lsn(7), Lsn(7), 0)]
    state = state.with_commits({0: one(8)})
    assert state.nodes[0] == NodeLog(Lsn(8), Lsn(5), Lsn(8), _T)
    state = state.with_messages([LogsMessage(read=((0, Lsn(20)),))]).with_commits({0: one(12, _T + 1)})
    assert state.nodes[0] == NodeLog(Lsn(20), Lsn(8), Lsn(12), _T + 1)


def test_an_open_transaction_is_listed_until_its_last_node_closed_it() -> None:
    published = LogsMessage((("g", (2, 0)), ("none", ())))
    state = started(1, 1, 1).with_messages([published])
    assert state.open == {"g": (0, 2)}
    state = state.with_messages(
        [LogsMessage(closed=(("g", 2, Lsn(9), 1), ("g", 1, Lsn(4), 2), ("other", 1, Lsn(3), 3)))]
    )
    assert (state.open, [log.read for log in state.nodes]) == ({"g": (0,)}, [Lsn(1), Lsn(4), Lsn(9)])
    closing = LogsMessage(closed=(("g", 0, Lsn(6), 4),))
    assert state.with_messages([closing]).open == {}
    assert state.with_messages([closing, closing, published, closing]).open == {"g": (2,)}
    assert state.open == {"g": (0,)}


def test_a_transaction_that_is_closed_in_the_message_that_publishes_it_is_not_open() -> None:
    both = LogsMessage((("g", (0, 1)),), (("g", 0, Lsn(2), 1), ("g", 1, Lsn(2), 1)))
    assert started(1, 1).with_messages([both]).open == {}


def test_what_is_kept_of_the_logs_is_what_was_said_last() -> None:
    state = started(1, 1)
    assert state.kept == ()
    assert '"kept"' not in state.text
    state = state.with_messages([LogsMessage(kept=(Lsn(5), Lsn(6))), LogsMessage(kept=(Lsn(7), Lsn(6))), LogsMessage()])
    state = state.with_commits({0: one(9)}).forgotten()
    assert state.kept == (Lsn(7), Lsn(6))
    assert MergedLogs.parse(state.text) == state
    with pytest.raises(EngineFault):
        state.with_messages([LogsMessage(kept=(Lsn(7), Lsn(6), Lsn(5)))])


def test_a_name_that_is_used_again_is_open_on_the_nodes_of_both() -> None:
    state = started(1, 1, 1).with_messages([LogsMessage((("g", (1,)),)), LogsMessage((("g", (0,)),))])
    assert state.open == {"g": (0, 1)}


@pytest.mark.parametrize(
    "message",
    [
        LogsMessage((("g", (2,)),)),
        LogsMessage(closed=(("g", 2, Lsn(5), 1),)),
        LogsMessage(read=((0, Lsn(5)), (1, Lsn(5)), (2, Lsn(5)))),
    ],
)
def test_a_node_that_the_source_did_not_have_is_refused(message: LogsMessage) -> None:
    state = started(1, 1)
    with pytest.raises(EngineFault) as caught:
        state.with_messages([message])
    assert caught.value.kind is FaultKind.LOG_UNREADABLE
    with pytest.raises(EngineFault) as of_commits:
        state.with_commits({2: one(9)})
    assert of_commits.value.kind is FaultKind.LOG_UNREADABLE


def test_commits_of_a_node_are_in_order() -> None:
    state = started(5).with_commits({0: one(30, before=20, first=10)})
    assert state.nodes[0] == NodeLog(Lsn(30), Lsn(20), Lsn(30), _T)
    for before in (29, 5):
        with pytest.raises(EngineFault) as caught:
            state.with_commits({0: one(40, first=before)})
        assert caught.value.kind is FaultKind.LOG_UNREADABLE


def test_the_commit_at_the_known_end_is_the_known_one() -> None:
    state = started(5)
    assert state.with_commits({0: one(5)}) == state
    known = state.with_commits({0: one(9)})
    assert known.with_commits({0: one(9, _T + 1)}) == known
    assert known.with_commits({0: one(12, _T + 1, before=9, first=9)}).nodes[0] == NodeLog(
        Lsn(12), Lsn(9), Lsn(12), _T + 1
    )


def test_what_is_forgotten_are_the_last_transactions_only() -> None:
    state = started(5, 6).with_messages([LogsMessage((("g", (1,)),), read=((0, Lsn(50)),))])
    state = state.with_commits({0: one(20), 1: one(30)})
    assert state.forgotten() == MergedLogs((NodeLog.unknown(Lsn(50)), NodeLog.unknown(Lsn(30))), {"g": (1,)})
    assert state.forgotten([1]) == MergedLogs((state.nodes[0], NodeLog.unknown(Lsn(30))), {"g": (1,)})
