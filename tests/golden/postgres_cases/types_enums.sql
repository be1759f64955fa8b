-- An enum as column, as key and as array.
-- replicate one
-- replicate keyed
-- setup
CREATE TYPE hue AS ENUM ('red', 'green', 'blue', 'no colour');
CREATE TABLE one (id int PRIMARY KEY, v hue);
CREATE TABLE keyed (v hue PRIMARY KEY, others hue[]);
INSERT INTO one VALUES (1, 'red'), (2, NULL);
INSERT INTO keyed VALUES ('red', '{green, NULL}');
-- workload
INSERT INTO one VALUES (3, 'blue'), (4, 'no colour');
INSERT INTO keyed VALUES ('green', '{}'), ('no colour', '{"no colour", red}'), ('blue', NULL);
-- wait
UPDATE one SET v = 'green' WHERE id = 1;
UPDATE one SET v = NULL WHERE id > 3;
UPDATE keyed SET others = '{blue, NULL}' WHERE v > 'green';
DELETE FROM keyed WHERE v = 'green';
UPDATE keyed SET v = 'green' WHERE v = 'red';
-- wait
DELETE FROM one WHERE v = 'blue';
DELETE FROM keyed WHERE others[1] = 'green';
