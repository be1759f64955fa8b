-- Columns come in small and in large transactions, in front of rows and behind them.
-- replicate t
-- setup
CREATE TABLE t (a int PRIMARY KEY, b varchar);
INSERT INTO t VALUES (1, 'foo'), (2, 'bar');
-- workload
BEGIN;
INSERT INTO t VALUES (3, md5(3::text));
ALTER TABLE t ADD COLUMN c int;
SAVEPOINT s1;
INSERT INTO t VALUES (4, md5(4::text), -4);
COMMIT;

BEGIN;
INSERT INTO t SELECT g, md5(g::text), -g FROM generate_series(5, 1000) g;
ALTER TABLE t ADD COLUMN d int;
SAVEPOINT s1;
INSERT INTO t SELECT g, md5(g::text), -g, 2 * g FROM generate_series(1001, 2000) g;
COMMIT;

BEGIN;
INSERT INTO t VALUES (2001, md5(2001::text), -2001, 4002);
ALTER TABLE t ADD COLUMN e int;
SAVEPOINT s1;
INSERT INTO t VALUES (2002, md5(2002::text), -2002, 4004, -6006);
COMMIT;
-- wait
BEGIN;
INSERT INTO t SELECT g, md5(g::text), -g, 2 * g, -3 * g FROM generate_series(2003, 4000) g;
ALTER TABLE t ADD COLUMN f int;
COMMIT;

INSERT INTO t SELECT g, md5(g::text), -g, 2 * g, -3 * g, 4 * g FROM generate_series(5001, 5005) g;
