-- A table is cleared in a savepoint with many large rows, which is rolled back; large values come in one statement; a message lies between.
-- replicate t
-- setup
CREATE TABLE t (id serial PRIMARY KEY, data text);
INSERT INTO t (data) VALUES ('copied');
-- workload
BEGIN;
SAVEPOINT s1;
SELECT pg_logical_emit_message(true, 'test', repeat('a', 50));
INSERT INTO t (data) SELECT repeat('a', 2000) || g FROM generate_series(1, 35) g;
TRUNCATE t;
ROLLBACK TO s1;
INSERT INTO t (data) SELECT repeat('a', 10) || g FROM generate_series(1, 20) g;
COMMIT;
-- session compare
it was not cleared
-- session a
ALTER TABLE t ALTER data SET STORAGE EXTERNAL;

INSERT INTO t (data) SELECT repeat('a', 6000) || g FROM generate_series(1, 10) g;

BEGIN;
UPDATE t SET id = -id WHERE length(data) > 6000;
COPY t (data) FROM PROGRAM 'for i in $(seq 1 20); do printf "large-%06000d\n" $i; done';
UPDATE t SET id = id + 10000 WHERE length(data) > 6003;
COMMIT;
