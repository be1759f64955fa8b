-- Prepared transactions are committed and rolled back; their rows are there when they are committed and not before.
-- replicate t
-- replicate other
-- setup
CREATE TABLE t (a int PRIMARY KEY);
CREATE TABLE other (a int PRIMARY KEY);
BEGIN;
INSERT INTO t SELECT generate_series(1, 10);
PREPARE TRANSACTION 'prepared_and_ended copied';

COMMIT PREPARED 'prepared_and_ended copied';
-- workload
BEGIN;
INSERT INTO t VALUES (11);
UPDATE t SET a = -1 WHERE a = 1;
PREPARE TRANSACTION 'prepared_and_ended 1';

INSERT INTO other VALUES (1);
-- session compare
nothing of the prepared transaction is seen
-- session a
COMMIT PREPARED 'prepared_and_ended 1';
-- session compare
it is seen
-- session a
BEGIN;
INSERT INTO t VALUES (12);
DELETE FROM t WHERE a = 2;
PREPARE TRANSACTION 'prepared_and_ended 1';

INSERT INTO other VALUES (2);
-- session b
ROLLBACK PREPARED 'prepared_and_ended 1';

INSERT INTO t VALUES (12);
-- session compare
the second left nothing
-- session a
BEGIN;
INSERT INTO t VALUES (21);
SAVEPOINT inner_part;
INSERT INTO t VALUES (22);
DELETE FROM t WHERE a = 3;
ROLLBACK TO SAVEPOINT inner_part;
PREPARE TRANSACTION 'prepared_and_ended outer';

COMMIT PREPARED 'prepared_and_ended outer';

BEGIN;
INSERT INTO t VALUES (51);
PREPARE TRANSACTION '';

ROLLBACK PREPARED '';

BEGIN;
SELECT a FROM t WHERE a = 4 FOR SHARE;
PREPARE TRANSACTION 'prepared_and_ended lock';

COMMIT PREPARED 'prepared_and_ended lock';

BEGIN;
SELECT a FROM t WHERE a = 4 FOR SHARE;
PREPARE TRANSACTION 'prepared_and_ended lock';

ROLLBACK PREPARED 'prepared_and_ended lock';

INSERT INTO t VALUES (31);
