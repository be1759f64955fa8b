-- Structures change while a transaction is open that wrote to another table and writes to the changed one next.
-- replicate opens
-- replicate wider
-- replicate worded
-- replicate grown
-- replicate shrunk
-- replicate both_ways
-- setup
CREATE TABLE opens (id serial PRIMARY KEY, v int);
CREATE TABLE wider (id serial PRIMARY KEY, v int);
CREATE TABLE worded (id serial PRIMARY KEY, v varchar);
CREATE TABLE grown (id serial PRIMARY KEY, v int);
CREATE TABLE shrunk (id serial PRIMARY KEY, v int, w int);
CREATE TABLE both_ways (id serial PRIMARY KEY, v int);
INSERT INTO wider (v) VALUES (0);
INSERT INTO worded (v) VALUES ('zero');
INSERT INTO shrunk (v, w) VALUES (0, 0);
-- workload
-- session b
BEGIN;
INSERT INTO opens (v) VALUES (1);
-- session a
ALTER TABLE wider ALTER v TYPE float8;

ALTER TABLE worded ALTER v TYPE text;

ALTER TABLE grown ADD COLUMN w int;

ALTER TABLE shrunk DROP COLUMN w;

ALTER TABLE both_ways ADD COLUMN w text;
-- session b
INSERT INTO wider (v) VALUES (1.5);
INSERT INTO worded (v) VALUES ('one');
INSERT INTO grown (v, w) VALUES (1, 1);
INSERT INTO shrunk (v) VALUES (1);
INSERT INTO both_ways (v, w) VALUES (1, 'one');
COMMIT;
-- wait
-- session b
BEGIN;
INSERT INTO opens (v) VALUES (2);
-- session a
ALTER TABLE wider ALTER v TYPE text;
ALTER TABLE worded ALTER v TYPE varchar;
ALTER TABLE grown DROP COLUMN w;
ALTER TABLE shrunk ADD COLUMN w float8;
ALTER TABLE both_ways ALTER w TYPE varchar;
-- session b
INSERT INTO wider (v) VALUES ('two');
INSERT INTO worded (v) VALUES ('two');
INSERT INTO grown (v) VALUES (2);
INSERT INTO shrunk (v, w) VALUES (2, 2.5);
INSERT INTO both_ways (v, w) VALUES (2, '2');
COMMIT;
-- session a
ALTER TABLE both_ways ALTER w TYPE int USING CASE WHEN w ~ '^\d+$' THEN w::int END;
-- wait
INSERT INTO both_ways (v, w) VALUES (3, 3);
INSERT INTO wider (v) VALUES ('three');
