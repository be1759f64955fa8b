-- Two transactions, both large, are open at once; the second ends first. A third one changes all rows.
-- replicate t
-- setup
CREATE TABLE t (a int PRIMARY KEY, b varchar);
INSERT INTO t VALUES (1, 'foo'), (2, 'bar');
-- workload
BEGIN;
INSERT INTO t SELECT g, md5(g::text) FROM generate_series(3, 2000) g;
UPDATE t SET b = md5(b) WHERE mod(a, 2) = 0;
DELETE FROM t WHERE mod(a, 3) = 0;
-- session b
BEGIN;
INSERT INTO t SELECT g, md5(g::text) FROM generate_series(5001, 7000) g;
DELETE FROM t WHERE a > 5100;
COMMIT;
-- session compare
the second is there, the first is not
-- session a
COMMIT;
-- session compare
both are there
-- session a
BEGIN;
INSERT INTO t SELECT g, md5(g::text) FROM generate_series(8001, 9000) g;
UPDATE t SET b = md5(b) WHERE mod(a, 2) = 0;
DELETE FROM t WHERE mod(a, 3) = 0;
COMMIT;
-- session compare
a third
-- session a
UPDATE t SET b = md5(a::text);
