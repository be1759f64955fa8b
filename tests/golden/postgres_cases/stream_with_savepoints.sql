-- Rows are written, changed and deleted between savepoints, few and many.
-- replicate t
-- setup
CREATE TABLE t (a int PRIMARY KEY, b varchar);
INSERT INTO t VALUES (1, 'foo'), (2, 'bar');
-- workload
BEGIN;
INSERT INTO t SELECT g, md5(g::text) FROM generate_series(3, 5) g;
UPDATE t SET b = md5(b) WHERE mod(a, 2) = 0;
DELETE FROM t WHERE mod(a, 3) = 0;
SAVEPOINT s1;
INSERT INTO t SELECT g, md5(g::text) FROM generate_series(6, 8) g;
UPDATE t SET b = md5(b) WHERE mod(a, 2) = 0;
DELETE FROM t WHERE mod(a, 3) = 0;
SAVEPOINT s2;
INSERT INTO t SELECT g, md5(g::text) FROM generate_series(9, 1000) g;
UPDATE t SET b = md5(b) WHERE mod(a, 2) = 0;
DELETE FROM t WHERE mod(a, 3) = 0;
SAVEPOINT s3;
UPDATE t SET b = md5(b) WHERE mod(a, 5) = 0;
COMMIT;
-- session compare
what every savepoint left
-- session a
DELETE FROM t WHERE a > 2;
