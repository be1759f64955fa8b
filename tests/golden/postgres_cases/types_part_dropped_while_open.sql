-- A part of a type is dropped while a row of it was written by a transaction that is still open, and nothing keeps the catalog's old row.
-- replicate harvest
-- replicate bystander
-- setup
CREATE TYPE basket AS (apples int, pears int, plums int);
CREATE TABLE harvest (id int PRIMARY KEY, fruits basket);
CREATE TABLE bystander (id int PRIMARY KEY);
-- workload
-- session b
BEGIN;
INSERT INTO bystander VALUES (1);
INSERT INTO harvest VALUES (1, (1, 2, 3));
-- session a
ALTER TYPE basket DROP ATTRIBUTE plums;

CHECKPOINT;
-- session b
INSERT INTO bystander VALUES (2);
COMMIT;
-- session a
VACUUM pg_attribute;

INSERT INTO harvest VALUES (2, (4, 5));
