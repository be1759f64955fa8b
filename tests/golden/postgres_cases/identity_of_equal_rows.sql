-- Rows with equal values are changed where whole rows identify; a table that gives inserts only takes in everything; a key carries other columns along.
-- replicate inserted insert_only
-- replicate keyed
-- replicate bag
-- replicate words
-- replicate carried
-- replicate becomes_full
-- setup
CREATE TABLE inserted (a int);
CREATE TABLE keyed (a int PRIMARY KEY);
CREATE TABLE bag (a int);
ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE words (x text);
ALTER TABLE words REPLICA IDENTITY FULL;
CREATE TABLE carried (a int, b text, CONSTRAINT covering PRIMARY KEY (a) INCLUDE (b));
CREATE TABLE becomes_full (a int PRIMARY KEY, b text);
INSERT INTO inserted SELECT generate_series(1, 1002);
INSERT INTO bag SELECT generate_series(1, 10);
INSERT INTO words VALUES ('a'), ('b'), ('b');
INSERT INTO becomes_full SELECT g, 'v' FROM generate_series(1, 5) g;
-- workload
INSERT INTO inserted SELECT generate_series(1, 50);
INSERT INTO keyed SELECT generate_series(1, 50);
DELETE FROM keyed WHERE a > 20;
UPDATE keyed SET a = -a;
INSERT INTO bag SELECT generate_series(1, 10);
INSERT INTO carried SELECT g, 'text ' || g FROM generate_series(1, 50) g;
-- session compare
inserts and changes of keys
-- session a
UPDATE bag SET a = a * a;
UPDATE words SET x = 'bb' WHERE x = 'b';
DELETE FROM carried WHERE a > 20;
UPDATE carried SET a = -a;
UPDATE carried SET b = 'changed' WHERE a = -3;
-- session compare
equal rows are as many as on the source
-- session a
ALTER TABLE becomes_full REPLICA IDENTITY FULL;
UPDATE becomes_full SET a = a + 100 WHERE a < 3;
DELETE FROM becomes_full WHERE a = 4;
-- wait
ALTER TABLE becomes_full REPLICA IDENTITY DEFAULT;
UPDATE becomes_full SET a = a + 1000;
INSERT INTO bag VALUES (0), (0);
DELETE FROM bag WHERE a = 100;
