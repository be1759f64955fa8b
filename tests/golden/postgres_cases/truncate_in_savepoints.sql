-- Clearing in a transaction is undone, done again and mixed with rows, beside a checkpoint and another transaction's rows.
-- replicate t
-- replicate other
-- setup
CREATE TABLE t (id int PRIMARY KEY, n int);
CREATE TABLE other (id int PRIMARY KEY);
INSERT INTO t SELECT g, g FROM generate_series(1, 20) g;
-- workload
BEGIN;
SAVEPOINT a;
TRUNCATE t;
-- session b
CHECKPOINT;

INSERT INTO other VALUES (1);
-- session a
COMMIT;

BEGIN;
INSERT INTO t VALUES (1, 1);
-- session b
CHECKPOINT;

INSERT INTO other VALUES (2);
-- session compare
the table is empty
-- session a
COMMIT;

BEGIN;
INSERT INTO t VALUES (2, 2);
SAVEPOINT a;
TRUNCATE t;
INSERT INTO t VALUES (3, 3);
ROLLBACK TO a;
INSERT INTO t VALUES (4, 4);
COMMIT;
-- session compare
what was undone is there
-- session a
BEGIN;
SAVEPOINT a;
INSERT INTO t SELECT g, g FROM generate_series(100, 2000) g;
TRUNCATE t;
INSERT INTO t VALUES (5, 5);
RELEASE a;
INSERT INTO t VALUES (6, 6);
COMMIT;
