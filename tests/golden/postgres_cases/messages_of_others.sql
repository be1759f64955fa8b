-- Messages of other programs lie in the log, of transactions and of none, committed and rolled back.
-- replicate t
-- setup
CREATE TABLE t (a int PRIMARY KEY);
-- workload
SELECT pg_logical_emit_message(true, 'pgoutput', 'of a transaction');

SELECT pg_logical_emit_message(false, 'test', 'of none');

INSERT INTO t VALUES (1);

BEGIN;
SELECT pg_logical_emit_message(true, 'test', 'first');
INSERT INTO t VALUES (2);
SELECT pg_logical_emit_message(false, 'test', 'at once');
SELECT pg_logical_emit_message(true, 'test', repeat('large', 40000));
COMMIT;
-- session compare
messages do no harm
-- session a
BEGIN;
SELECT pg_logical_emit_message(false, 'pgoutput', 'stays');
INSERT INTO t VALUES (3);
SELECT pg_logical_emit_message(true, 'pgoutput', 'undone');
ROLLBACK;

BEGIN;
INSERT INTO t VALUES (3);
SAVEPOINT a;
SELECT pg_logical_emit_message(true, 'test', 'undone');
ROLLBACK TO a;
UPDATE t SET a = 4 WHERE a = 3;
COMMIT;
