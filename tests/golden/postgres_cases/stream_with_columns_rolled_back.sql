-- Columns come and go between savepoints with many rows, and most of it is rolled back.
-- replicate t
-- setup
CREATE TABLE t (a int PRIMARY KEY, b varchar);
INSERT INTO t VALUES (1, 'foo'), (2, 'bar');
-- workload
BEGIN;
INSERT INTO t SELECT g, md5(g::text) FROM generate_series(3, 500) g;
ALTER TABLE t ADD COLUMN c int;
SAVEPOINT s1;
INSERT INTO t SELECT g, md5(g::text), -g FROM generate_series(501, 1000) g;
ALTER TABLE t ADD COLUMN d int;
SAVEPOINT s2;
INSERT INTO t SELECT g, md5(g::text), -g, 2 * g FROM generate_series(1001, 1500) g;
ALTER TABLE t ADD COLUMN e int;
SAVEPOINT s3;
INSERT INTO t SELECT g, md5(g::text), -g, 2 * g, -3 * g FROM generate_series(1501, 2000) g;
ALTER TABLE t DROP COLUMN c;
ROLLBACK TO s1;
INSERT INTO t SELECT g, md5(g::text), g FROM generate_series(501, 1000) g;
COMMIT;
