-- Computed columns, stored and virtual, with the key among what they are computed of, in whole rows that identify, and in a table that gives inserts only.
-- replicate doubled
-- replicate computed
-- replicate inserted insert_only
-- replicate whole
-- setup
CREATE TABLE doubled (a int PRIMARY KEY, b int GENERATED ALWAYS AS (a * 2) STORED);
CREATE TABLE computed (a int PRIMARY KEY, s text GENERATED ALWAYS AS ('is ' || b::text) STORED, b int, v int GENERATED ALWAYS AS (b + 1) VIRTUAL, c text);
CREATE TABLE inserted (a int, s int GENERATED ALWAYS AS (a * 10) STORED, v int GENERATED ALWAYS AS (a * 100) VIRTUAL, c text);
CREATE TABLE whole (a int, s int GENERATED ALWAYS AS (a * 10) STORED);
ALTER TABLE whole REPLICA IDENTITY FULL;
INSERT INTO doubled (a) VALUES (1), (2), (3);
INSERT INTO whole VALUES (1), (1), (NULL);
INSERT INTO computed (a, b, c) VALUES (1, 1, 'one'), (2, NULL, 'two');
INSERT INTO inserted (a, c) VALUES (1, 'x'), (1, 'x'), (2, NULL);
-- workload
INSERT INTO doubled VALUES (4), (5);

UPDATE doubled SET a = 6 WHERE a = 5;

INSERT INTO computed (a, b, c) VALUES (3, 3, 'three');
UPDATE computed SET b = 20 WHERE a = 2;
UPDATE computed SET a = 10 WHERE a = 1;
-- session compare
what is computed is there, too
-- session a
INSERT INTO inserted (a, c) VALUES (NULL, 'z'), (1, 'x');
UPDATE computed SET c = s || v;
UPDATE whole SET a = 2 WHERE s IS NULL;
DELETE FROM whole WHERE ctid = (SELECT min(ctid) FROM whole WHERE s = 10);
-- wait
ALTER TABLE computed ALTER s DROP EXPRESSION;
INSERT INTO computed (a, b, s, c) VALUES (4, 4, 'given', 'four');
-- wait
UPDATE computed SET s = 'now plain' WHERE a = 3;
DELETE FROM doubled WHERE b = 4;
