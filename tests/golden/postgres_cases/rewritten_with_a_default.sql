-- A column comes with a constant that all rows get, in a table without a key and in one that is written anew.
-- replicate t insert_only
-- replicate anew
-- setup
CREATE TABLE t (a int, b text);
CREATE TABLE anew (a int PRIMARY KEY, b text);
-- workload
INSERT INTO t VALUES (1, 'one'), (2, 'two');
INSERT INTO anew VALUES (1, 'one'), (2, 'two');
-- session compare
rows are there
-- session a
ALTER TABLE t ADD c int NOT NULL DEFAULT 0;
ALTER TABLE anew ADD c float8 NOT NULL DEFAULT random();
-- wait
INSERT INTO t VALUES (3, 'three', 33);
INSERT INTO anew VALUES (3, 'three', 33);
UPDATE anew SET b = 'changed' WHERE a = 1;
