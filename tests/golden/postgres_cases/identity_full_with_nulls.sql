-- Whole rows with NULLs identify, in a table with indexes that do not.
-- replicate t
-- replicate people
-- setup
CREATE TABLE t (x int, y int);
ALTER TABLE t REPLICA IDENTITY FULL;
CREATE INDEX ON t (x, y);
CREATE TABLE people (first_name text, last_name text);
ALTER TABLE people REPLICA IDENTITY FULL;
CREATE INDEX ON people ((first_name || ' ' || last_name));
CREATE INDEX ON people (first_name) WHERE first_name = 'f 1';
INSERT INTO people SELECT 'f ' || g, 'l ' || g FROM generate_series(0, 200) g;
-- workload
INSERT INTO t VALUES (1, NULL), (2, NULL), (3, NULL), (NULL, NULL), (NULL, 1), (NULL, NULL);
UPDATE t SET x = x + 1 WHERE x = 1;
-- session compare
two equal rows have a NULL
-- session a
UPDATE t SET y = 5 WHERE x IS NULL AND y = 1;
DELETE FROM t WHERE x = 2;
UPDATE people SET first_name = 'nobody' WHERE first_name IN ('f 1', 'f 2');
UPDATE people SET last_name = NULL WHERE first_name = 'nobody';
DELETE FROM people WHERE first_name = 'f 3';
-- wait
DELETE FROM people WHERE last_name IS NULL;
DELETE FROM t WHERE x IS NULL AND y IS NULL;
