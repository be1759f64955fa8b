-- replicate steps
-- setup
CREATE TABLE steps (id int PRIMARY KEY, v text);
INSERT INTO steps SELECT g, 'copied' FROM generate_series(1, 10) g;
-- workload
BEGIN;
INSERT INTO steps VALUES (100, 'kept');
SAVEPOINT a;
INSERT INTO steps VALUES (101, 'undone');
UPDATE steps SET v = 'undone' WHERE id = 1;
SAVEPOINT b;
DELETE FROM steps WHERE id = 2;
ROLLBACK TO a;
INSERT INTO steps VALUES (101, 'second try');
RELEASE a;
COMMIT;

BEGIN;
SAVEPOINT a;
UPDATE steps SET v = 'kept' WHERE id = 3;
SAVEPOINT b;
UPDATE steps SET id = 300 WHERE id = 3;
ROLLBACK TO b;
UPDATE steps SET v = v || ' really' WHERE id = 3;
COMMIT;
-- wait
BEGIN;
SAVEPOINT a;
INSERT INTO steps SELECT g, 'undone' FROM generate_series(1000, 1200) g;
ROLLBACK TO a;
COMMIT;

DO $$
BEGIN
  FOR i IN 1..50 LOOP
    BEGIN
      INSERT INTO steps VALUES (2000 + i, 'loop');
      IF i % 3 = 0 THEN
        RAISE division_by_zero;
      END IF;
    EXCEPTION WHEN division_by_zero THEN
      NULL;
    END;
  END LOOP;
END $$;

BEGIN;
DELETE FROM steps;
ROLLBACK;
