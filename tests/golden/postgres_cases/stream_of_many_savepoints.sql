-- Savepoints beside and in each other: some with rows of their own, eighty deep, more than the server keeps in memory, and with only a lock in front.
-- replicate t
-- setup
CREATE TABLE t (id serial PRIMARY KEY, path text);
INSERT INTO t (path) VALUES ('copied');
-- workload
BEGIN;
INSERT INTO t (path) VALUES ('top');
SAVEPOINT a;
INSERT INTO t (path) VALUES ('top, a'), ('top, a 2');
RELEASE SAVEPOINT a;
SAVEPOINT b;
SAVEPOINT c;
INSERT INTO t (path) VALUES ('top, b, c'), ('top, b, c 2');
RELEASE SAVEPOINT c;
INSERT INTO t (path) VALUES ('top, b');
RELEASE SAVEPOINT b;
COMMIT;

BEGIN;
INSERT INTO t (path) VALUES ('top 3');
SAVEPOINT a;
INSERT INTO t (path) VALUES ('top 3, a');
SAVEPOINT b;
INSERT INTO t (path) VALUES ('undone');
ROLLBACK TO SAVEPOINT b;
INSERT INTO t (path) VALUES ('top 3, a 2');
COMMIT;
-- session compare
side by side
-- session a
BEGIN;
SELECT txid_current();
SAVEPOINT a;
INSERT INTO t (path) VALUES ('number first');
RELEASE SAVEPOINT a;
COMMIT;

BEGIN;
SELECT * FROM t FOR UPDATE;
SAVEPOINT a;
INSERT INTO t (path) VALUES ('lock first');
COMMIT;

CREATE FUNCTION deep(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  BEGIN
    IF n > 0 THEN
      PERFORM stream_of_many_savepoints.deep(n - 1);
    ELSE
      INSERT INTO stream_of_many_savepoints.t (path) VALUES ('at the bottom'), ('at the bottom 2');
    END IF;
  EXCEPTION WHEN division_by_zero THEN
    RAISE;
  END;
END $$;

BEGIN;
SELECT deep(80);
INSERT INTO t (path) VALUES ('above');
COMMIT;
-- session b
BEGIN;
DO $$
BEGIN
  BEGIN
    INSERT INTO t (path) VALUES ('before the checkpoint');
  EXCEPTION WHEN division_by_zero THEN RAISE;
  END;
END $$;
-- session a
CHECKPOINT;

BEGIN;
INSERT INTO t (path) VALUES ('open meanwhile');
-- session b
DO $$
BEGIN
  FOR i IN 1 .. 128 LOOP
    BEGIN
      INSERT INTO t (path) VALUES ('one of many');
    EXCEPTION WHEN division_by_zero THEN RAISE;
    END;
  END LOOP;
END $$;

COMMIT;

CHECKPOINT;
-- session compare
many of one transaction
-- session a
COMMIT;
