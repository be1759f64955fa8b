-- Savepoints are rolled back to, out of order, twice, after a release, and whole.
-- replicate t
-- replicate other
-- setup
CREATE TABLE t (a int PRIMARY KEY, b varchar);
CREATE TABLE other (a int PRIMARY KEY, b varchar);
INSERT INTO t VALUES (1, 'foo'), (2, 'bar');
-- workload
BEGIN;
INSERT INTO t VALUES (3, 'kept');
SAVEPOINT s1;
INSERT INTO t VALUES (4, 'undone');
SAVEPOINT s2;
INSERT INTO t SELECT g, 'undone' FROM generate_series(5000, 6500) g;
SAVEPOINT s3;
INSERT INTO t VALUES (6, 'undone');
ROLLBACK TO s2;
INSERT INTO t VALUES (7, 'undone later');
ROLLBACK TO s1;
INSERT INTO t VALUES (8, 'kept');
SAVEPOINT s4;
INSERT INTO t VALUES (9, 'kept');
SAVEPOINT s5;
INSERT INTO t VALUES (10, 'kept');
COMMIT;
-- session compare
two were rolled back
-- session a
BEGIN;
INSERT INTO t VALUES (11, 'kept');
SAVEPOINT s1;
INSERT INTO t VALUES (12, 'undone');
SAVEPOINT s2;
INSERT INTO t SELECT g, 'undone' FROM generate_series(5000, 6500) g;
SAVEPOINT s3;
INSERT INTO t VALUES (14, 'undone');
RELEASE s2;
INSERT INTO t VALUES (15, 'undone');
ROLLBACK TO s1;
COMMIT;
-- session compare
what was released went with the rest
-- session a
BEGIN;
INSERT INTO t VALUES (16, 'undone');
SAVEPOINT s1;
INSERT INTO t SELECT g, 'undone' FROM generate_series(5000, 6500) g;
SAVEPOINT s2;
INSERT INTO t VALUES (18, 'undone');
-- session b
INSERT INTO other VALUES (1, 'beside');
-- session compare
the rest is open
-- session a
ROLLBACK;

BEGIN;
INSERT INTO other VALUES (2, 'undone');
ROLLBACK;

BEGIN;
INSERT INTO other VALUES (2, 'kept');
SAVEPOINT sp;
INSERT INTO other VALUES (3, 'undone');
ROLLBACK TO sp;
COMMIT;
