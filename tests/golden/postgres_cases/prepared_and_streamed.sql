-- Prepared transactions are large, and rows come from elsewhere between their end and their being committed or rolled back.
-- replicate t
-- setup
CREATE TABLE t (a int PRIMARY KEY, b bytea);
INSERT INTO t VALUES (1, 'foo'), (2, 'bar');
-- workload
BEGIN;
INSERT INTO t SELECT g, sha256(g::text::bytea) FROM generate_series(3, 1500) g;
UPDATE t SET b = sha256(b) WHERE mod(a, 2) = 0;
DELETE FROM t WHERE mod(a, 3) = 0;
PREPARE TRANSACTION 'prepared_and_streamed';
-- session b
INSERT INTO t VALUES (99999, 'between');
-- session compare
only the row between is seen
-- session b
COMMIT PREPARED 'prepared_and_streamed';
-- session compare
all is seen
-- session a
DELETE FROM t WHERE a > 2;

BEGIN;
INSERT INTO t SELECT g, sha256(g::text::bytea) FROM generate_series(3, 1500) g;
UPDATE t SET b = sha256(b) WHERE mod(a, 2) = 0;
PREPARE TRANSACTION 'prepared_and_streamed';
-- session b
INSERT INTO t VALUES (99999, 'between');

ROLLBACK PREPARED 'prepared_and_streamed';
-- session compare
only the row between is left
-- session a
BEGIN;
INSERT INTO t VALUES (9999, 'kept');
SAVEPOINT inner_part;
INSERT INTO t SELECT g, sha256(g::text::bytea) FROM generate_series(3, 1500) g;
UPDATE t SET b = sha256(b) WHERE mod(a, 2) = 0;
DELETE FROM t WHERE mod(a, 3) = 0;
ROLLBACK TO SAVEPOINT inner_part;
PREPARE TRANSACTION 'prepared_and_streamed';

COMMIT PREPARED 'prepared_and_streamed';

BEGIN;
SAVEPOINT s1;
SELECT pg_logical_emit_message(true, 'test', repeat('a', 50));
INSERT INTO t SELECT g, repeat('a', 2000)::bytea FROM generate_series(20001, 20100) g;
TRUNCATE t;
ROLLBACK TO s1;
INSERT INTO t SELECT g, repeat('a', 10)::bytea FROM generate_series(20001, 20020) g;
PREPARE TRANSACTION 'prepared_and_streamed';

COMMIT PREPARED 'prepared_and_streamed';
