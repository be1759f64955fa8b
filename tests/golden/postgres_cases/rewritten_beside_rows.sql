-- Columns come, go, get other names and other types between rows, in transactions of their own and in one; keys are made late.
-- replicate t
-- replicate late
-- setup
CREATE TABLE t (id serial PRIMARY KEY, n int, v varchar(120));
CREATE TABLE late (id2 serial UNIQUE NOT NULL, data int);
ALTER TABLE late REPLICA IDENTITY USING INDEX late_id2_key;
INSERT INTO late (data) VALUES (10);
-- workload
BEGIN;
INSERT INTO t (n, v) VALUES (1, 1);
INSERT INTO t (n, v) VALUES (1, 2);
COMMIT;

ALTER TABLE t ADD COLUMN bar int;

INSERT INTO t (n, v, bar) VALUES (2, 1, 4), (2, 4, NULL);

ALTER TABLE t DROP COLUMN bar;

INSERT INTO t (n, v) VALUES (3, 1);

ALTER TABLE t RENAME COLUMN v TO number;

INSERT INTO t (n, number) VALUES (4, 1);
-- wait
ALTER TABLE t ALTER COLUMN number TYPE int4 USING number::int4;

INSERT INTO t (n, number) VALUES (5, 1);
-- wait
BEGIN;
INSERT INTO t (n, number) VALUES (6, 1);
ALTER TABLE t ADD COLUMN one int;
INSERT INTO t (n, number, one) VALUES (6, 2, 1);
ALTER TABLE t ADD COLUMN two int;
INSERT INTO t (n, number, two) VALUES (6, 3, 1);
INSERT INTO t (n, number, one) VALUES (6, 4, 2);
COMMIT;

ALTER TABLE late RENAME TO keyed;
ALTER TABLE keyed REPLICA IDENTITY DEFAULT;
ALTER TABLE keyed ADD COLUMN id serial PRIMARY KEY;
-- wait
INSERT INTO keyed (data) VALUES (1);
DELETE FROM keyed WHERE data = 10;
